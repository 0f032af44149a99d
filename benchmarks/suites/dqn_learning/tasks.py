"""What DQN has to learn, by which preset, in how many steps, and how well.

A preset is a file that `loopless train TRAINER --config` takes. The classes here serve the tasks of
PPO, too.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
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
    """One training run."""

    preset: str
    mode: str = "hosted"
    seed: int = 0
    seeds: int = 1
    steps: int | None = None  # instead of the preset's
    trainer: str = "dqn"

    @property
    def path(self) -> Path:
        """Return the path of its preset, from the root of the checkout."""
        return PRESETS / self.trainer / f"{self.preset}.toml"

    @property
    def name(self) -> str:
        """Return the name of its folder."""
        parts = [self.preset, self.mode, f"seed{self.seed}"]
        parts += [f"{self.seeds}seeds"] * (self.seeds > 1)
        parts += [f"{self.steps}steps"] * (self.steps is not None)
        return "-".join(parts)

    @property
    def words(self) -> list[str]:
        """Return the words of the command, without those that say where the run is put."""
        flags = ["--config", str(self.path), "--mode", self.mode]
        flags += ["--seed", str(self.seed)]
        flags += ["--seeds", str(self.seeds)] if self.seeds > 1 else []
        flags += ["--steps", str(self.steps)] if self.steps is not None else []
        return ["train", self.trainer, *flags]

    @property
    def command(self) -> str:
        return shlex.join(["loopless", *self.words])


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
        job = Job(self.preset, steps=self.steps if self.short else None, trainer=self.trainer)
        if self.compiled and self.env in compiled_ids():
            return [replace(job, mode="compiled", seeds=self.seeds)]
        return [replace(job, seed=seed) for seed in range(self.seeds)]

    @property
    def missing(self) -> bool:
        """Return whether the module that it needs is not installed."""
        return bool(self.needs) and find_spec(self.needs) is None

    @property
    def label(self) -> str:
        return f"{self.env}, {self.steps // 1000}k steps"


@dataclass(frozen=True)
class Modes:
    """The same agent in both modes: hosted runs, and one compiled run of as many seeds."""

    label: str
    hosted: tuple[Job, ...]
    compiled: Job

    @classmethod
    def of(cls, task: Task, seeds: int = 10) -> Modes:
        job = Job(task.preset, trainer=task.trainer)
        hosted = tuple(replace(job, seed=seed) for seed in range(seeds))
        return cls(task.label, hosted, replace(job, mode="compiled", seeds=seeds))

    @property
    def jobs(self) -> list[Job]:
        return [*self.hosted, self.compiled]


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

MODES = Modes.of(TASKS[0])
QUICK = replace(TASKS[0], steps=50_000, seeds=1, short=True)
