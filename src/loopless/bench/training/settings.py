"""What is trained: CartPole-v1 in one environment, by DQN with the same settings for everyone.

A call is a slice of so many steps of a run that goes on and on; the check counts that as many
gradient steps were made as the settings say. Imports NumPy and the trainer's config. Tests:
`tests/bench/training/test_bench_loops.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loopless.bench.contender import Contender, Verdict
from loopless.bench.q_learning.plain import Rules
from loopless.train.dqn_config import DQN

ENV = "CartPole-v1"
BUFFER, STARTS = 10_000, 1_000
EPSILON = 0.05  # from the start: a random action would cost less than a chosen one
TARGET_EVERY = 500
FOREVER = 1_000_000_000  # steps: the run is sliced until the clock is satisfied
RULES = Rules(double=False, rate=2.5e-4)


@dataclass(frozen=True)
class Training:
    """Slices of `steps` steps: after each `every` of them `updates` batches, `repeats` times."""

    steps: int
    hidden: tuple[int, ...] = (120, 84)
    batch: int = 128
    every: int = 10
    updates: int = 1
    repeats: int = 1

    @property
    def label(self) -> str:
        count = self.updates * self.repeats
        what = "1 update" if count == 1 else f"{count} updates"
        return f"{list(self.hidden)}, batch {self.batch}, {what} in {self.every} steps"

    @property
    def size(self) -> int:
        return self.steps

    @property
    def gradient_steps(self) -> int:
        """Of one slice."""
        return self.steps // self.every * self.updates * self.repeats

    def config(self, **changes: Any) -> DQN:
        """For our trainer."""
        return DQN(
            **{
                "env": ENV, "steps": FOREVER, "hidden": self.hidden, "batch_size": self.batch,
                "train_every": self.every, "updates": self.updates, "repeats": self.repeats,
                "buffer_size": BUFFER, "learning_starts": STARTS, "target_every": TARGET_EVERY,
                "explore_start": EPSILON, "explore_end": EPSILON, "learning_rate": RULES.rate,
                "gamma": RULES.gamma, "loss": "huber", "max_gradient_norm": RULES.max_norm,
                "log_every": self.steps, "eval_every": 0,
            } | changes
        )  # fmt: skip

    def check(self, contender: Contender, call: Any, output: Any) -> Verdict:
        """A slice gives back how many gradient steps it made."""
        made = call.read(output)
        if made == self.gradient_steps:
            return Verdict()
        return Verdict(f"{made} gradient steps in {self.steps} steps, not {self.gradient_steps}")
