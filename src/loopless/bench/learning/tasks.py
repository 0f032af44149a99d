"""What has to be learned, by which preset, in how many steps, how well.

A preset is a file that `loopless train dqn --config` takes. Imports the standard library. Tests:
`tests/bench/learning/test_bench_tasks.py`.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[4]  # of the checkout: presets are not in the wheel
PRESETS = Path("benchmarks/presets/dqn")  # from there
RUNS = Path("bench-results/learning")
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
        flags = ["--config", str(PRESETS / f"{self.preset}.toml"), "--mode", self.mode]
        flags += ["--seed", str(self.seed)]
        flags += ["--seeds", str(self.seeds)] if self.seeds > 1 else []
        flags += ["--steps", str(self.steps)] if self.steps is not None else []
        return ["train", "dqn", *flags]

    @property
    def command(self) -> str:
        return shlex.join(["loopless", *self.words])


@dataclass(frozen=True)
class Task:
    """A row: an environment, an agent, runs that differ by seed, and what is asked of them.

    `published` is (steps, return) of the founding project's own table; the same is to be reached
    after as many steps.
    """

    env: str
    agent: str
    preset: str
    steps: int
    threshold: float
    mean: bool = True  # whether the mean over seeds has to reach it, too
    published: tuple[int, float] | None = None
    seeds: int = SEEDS
    short: bool = False  # fewer steps than the preset has

    @property
    def jobs(self) -> list[Job]:
        steps = self.steps if self.short else None
        return [Job(self.preset, seed=seed, steps=steps) for seed in range(self.seeds)]

    @property
    def label(self) -> str:
        return f"{self.env}, {self.steps // 1000}k steps"


DQN, DOUBLE = "DQN", "double, prioritized"
TASKS = (
    Task("CartPole-v1", DQN, "cartpole", 500_000, 475, mean=False, published=(200_000, 239.9)),
    Task(
        "CartPole-v1", DOUBLE, "cartpole_double_prioritized", 500_000, 475,
        mean=False, published=(200_000, 451.5),
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

MODE_SEEDS = 10
HOSTED_JOBS = tuple(Job("cartpole", seed=seed) for seed in range(MODE_SEEDS))
COMPILED_JOB = Job("cartpole", "compiled", seeds=MODE_SEEDS)
QUICK = replace(TASKS[0], steps=50_000, seeds=1, short=True)
