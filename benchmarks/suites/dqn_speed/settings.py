"""What is trained: CartPole-v1, by DQN or by PPO, with the same settings for everyone.

A call is a slice of so many steps of a run that goes on and on; the check counts that as many
gradient steps were made as the settings say. Imports the trainers' configs. Tests:
`tests/suites/dqn_speed/test_bench_loops.py`, `tests/suites/ppo_speed/test_bench_ppo_loop.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from loopless.bench.contest import Contender, Verdict
from loopless.train.dqn.config import DQN
from loopless.train.ppo.config import PPO
from suites.q_learning.plain import Rules

ENV = "CartPole-v1"
BUFFER, STARTS = 10_000, 1_000
EPSILON = 0.05  # from the start: a random action would cost less than a chosen one
TARGET_EVERY = 500
FOREVER = 1_000_000_000  # steps: the run is sliced until the clock is satisfied
RULES = Rules(double=False, rate=2.5e-4)
PPO_RATE = 3e-4


class Slice:
    """What the cases of all trainers share: `steps` a call, and a check that it learned."""

    trainer: ClassVar[str]
    steps: int

    @property
    def label(self) -> str:
        raise NotImplementedError

    @property
    def size(self) -> int:
        return self.steps

    @property
    def gradient_steps(self) -> int:
        """Of one slice."""
        raise NotImplementedError

    def config(self, **changes: Any) -> Any:
        """For our trainer."""
        raise NotImplementedError

    def check(self, contender: Contender, call: Any, output: Any) -> Verdict:
        """A slice gives back how many gradient steps it made."""
        made = call.read(output)
        if made == self.gradient_steps:
            return Verdict()
        return Verdict(f"{made} gradient steps in {self.steps} steps, not {self.gradient_steps}")


@dataclass(frozen=True)
class Training(Slice):
    """DQN: after each `every` of `steps` steps `updates` batches, `repeats` times."""

    trainer: ClassVar[str] = "dqn"

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
    def gradient_steps(self) -> int:
        return self.steps // self.every * self.updates * self.repeats

    def config(self, **changes: Any) -> DQN:
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


@dataclass(frozen=True)
class PPOTraining(Slice):
    """PPO: rollouts of `envs` × `horizon` steps, `epochs` × `minibatches` gradient steps on each.

    Everything else is what our trainer and Stable-Baselines3 do by default, but that the step size
    stays what it is.
    """

    trainer: ClassVar[str] = "ppo"

    steps: int
    hidden: tuple[int, ...] = (64, 64)
    envs: int = 4
    horizon: int = 128
    epochs: int = 4
    minibatches: int = 4

    @property
    def label(self) -> str:
        what = f"{self.envs} envs × {self.horizon} steps, {self.epochs} × {self.minibatches}"
        return f"{list(self.hidden)}, {what} updates"

    @property
    def rows(self) -> int:
        """Steps of a rollout."""
        return self.envs * self.horizon

    @property
    def gradient_steps(self) -> int:
        return self.steps // self.rows * self.epochs * self.minibatches

    def config(self, **changes: Any) -> PPO:
        return PPO(
            **{
                "env": ENV, "steps": FOREVER, "hidden": self.hidden, "envs": self.envs,
                "horizon": self.horizon, "epochs": self.epochs, "minibatches": self.minibatches,
                "learning_rate": PPO_RATE, "learning_rate_end": PPO_RATE,
                "log_every": self.steps, "eval_every": 0,
            } | changes
        )  # fmt: skip
