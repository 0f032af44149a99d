"""What DQN has to learn, by which preset, in how many steps, and how well.

A preset is a file that `loopless train TRAINER --config` takes. The tasks here serve
PPO, too, and `Job` every suite that makes runs.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from loopless.envs.compiled import compiled_ids

ROOT = Path(__file__).parents[3]  # of the checkout
PRESETS = Path("src/loopless/train/presets")  # from there, by trainer
RUNS = Path("bench-results")  # by suite
EPISODES = 100  # of the evaluation at the end
SEEDS, ENOUGH = 5, 4


@dataclass(frozen=True)
class Job:
    """One training run, of `seeds` agents."""

    name: str  # of its folder
    trainer: str
    path: Path  # of its preset, from the root of the checkout
    flags: tuple[str, ...] = ()
    seeds: int = 1
    folder: Path | None = None  # of files that flags name; the command that is shown calls it DIR
    critic: str = ""  # the name of its critic's run
    placed: bool = False  # whether the command that is shown says where runs are

    @property
    def words(self) -> list[str]:
        """Return the words of the command, without those that say where runs are."""
        return ["train", self.trainer, "--config", str(self.path), *self.flags]

    def where(self, runs: Path) -> list[str]:
        """Return the flags that say where the run and its critic are."""
        critic = ["--critic", str(runs / self.critic)] if self.critic else []
        return [*critic, "--runs", str(runs), "--run", self.name]

    @property
    def command(self) -> str:
        """Return the command for the result."""
        words = [*self.words, *(self.where(Path("runs")) if self.placed else [])]
        if self.folder:
            words = [word.replace(str(self.folder), "DIR") for word in words]
        return shlex.join(["loopless", *words])


def agent_job(
    preset: str,
    mode: str = "hosted",
    seed: int = 0,
    seeds: int = 1,
    steps: int | None = None,
    trainer: str = "dqn",
) -> Job:
    """Return the job of a preset of DQN or PPO; `steps` is instead of the preset's."""
    path = PRESETS / trainer / f"{preset}.toml"
    name, flags = f"{preset}-{mode}-seed{seed}", ["--mode", mode, "--seed", str(seed)]
    if seeds > 1:
        name, flags = f"{name}-{seeds}seeds", [*flags, "--seeds", str(seeds)]
    if steps is not None:
        name, flags = f"{name}-{steps}steps", [*flags, "--steps", str(steps)]
    return Job(name, trainer, path, tuple(flags), seeds)


@dataclass(frozen=True)
class Task:
    """A row: an environment, an agent, runs that differ by seed, and what they must reach.

    The agents of a `compiled` task are trained in one program, if the environment has a compiled
    form. `published` is (steps, return) from the table of the project that loopless began with; if
    `judged`, that return must be reached after that many steps.
    """

    env: str
    agent: str
    preset: str
    steps: int
    threshold: float | None  # return that a seed must reach; None: it is only stated
    mean: bool = True  # whether the mean over seeds must reach it, too
    published: tuple[int, float] | None = None
    judged: bool = True
    seeds: int = SEEDS
    enough: int = ENOUGH  # seeds that must reach the threshold
    most: float | None = None  # limit that the mean may not exceed
    short: bool = False  # whether `steps` is less than the preset's, and has to be passed
    trainer: str = "dqn"
    compiled: bool = False
    needs: str = ""  # a module without which the environment cannot be made

    @property
    def jobs(self) -> list[Job]:
        if self.missing:
            return []
        steps = self.steps if self.short else None
        job = partial(agent_job, self.preset, steps=steps, trainer=self.trainer)
        if self.compiled and self.env in compiled_ids():
            return [job(mode="compiled", seeds=self.seeds)]
        return [job(seed=seed) for seed in range(self.seeds)]

    @property
    def missing(self) -> bool:
        """Return whether the module that it needs is not installed."""
        return bool(self.needs) and find_spec(self.needs) is None

    @property
    def label(self) -> str:
        return f"{self.env}, {self.steps // 1000}k steps"


DQN, DOUBLE = "DQN", "double, prioritized"
TASKS = (
    Task("CartPole-v1", DQN, "cartpole", 500_000, 475, mean=False, published=(200_000, 239.9)),
    Task("CartPole-v1", DOUBLE, "cartpole_double_prioritized", 500_000, 475, mean=False),
    Task(
        "CartPole-v1", DOUBLE, "cartpole_double_prioritized_200k", 200_000, None,
        published=(200_000, 451.5),
    ),
    Task(
        "Acrobot-v1", DOUBLE, "acrobot_double_prioritized", 300_000, -90,
        published=(300_000, -83.9),
    ),
    Task(
        "LunarLander-v3", DOUBLE, "lunarlander_double_prioritized", 300_000, 230,
        published=(300_000, 265.9),
    ),
    # The best possible return is 1: every goal is reached in time.
    Task("loopless/Pixels-v0", "convolutional, double", "pixels", 60_000, 0.98),
)  # fmt: skip

QUICK = replace(TASKS[0], steps=50_000, seeds=1, short=True)
