"""What has to be learned, by which preset, in how many steps, how well.

A preset is a file that `loopless train TRAINER --config` takes. Here are the shapes of tasks for
every trainer, and the tasks of DQN.
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
        """Of its preset, from the root of the checkout."""
        return PRESETS / self.trainer / f"{self.preset}.toml"

    @property
    def name(self) -> str:
        """Of its folder."""
        parts = [self.preset, self.mode, f"seed{self.seed}"]
        parts += [f"{self.seeds}seeds"] * (self.seeds > 1)
        parts += [f"{self.steps}steps"] * (self.steps is not None)
        return "-".join(parts)

    @property
    def words(self) -> list[str]:
        """The command line, without where the run is put."""
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
    """A row: an environment, an agent, runs that differ by seed, and what is asked of them.

    Agents of a compiled task are one program, where the environment exists compiled. `published`
    is (steps, return) of the founding project's own table; if `judged`, the same is to be reached
    after as many steps.
    """

    env: str
    agent: str
    preset: str
    steps: int
    threshold: float | None  # of a seed; None: stated as it comes
    mean: bool = True  # whether the mean over seeds has to reach it, too
    published: tuple[int, float] | None = None
    judged: bool = True
    seeds: int = SEEDS
    enough: int = ENOUGH  # seeds that have to reach the threshold
    most: float | None = None  # which the mean may not exceed
    short: bool = False  # fewer steps than the preset has
    trainer: str = "dqn"
    compiled: bool = False
    needs: str = ""  # a module, without which the environment cannot be made

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
        """Whether what it needs is not installed."""
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
    # The best possible is 1: every goal reached in time.
    Task("loopless/Pixels-v0", "convolutional, double", "pixels", 60_000, 0.98),
)  # fmt: skip

MODES = Modes.of(TASKS[0])
QUICK = replace(TASKS[0], steps=50_000, seeds=1, short=True)
