"""The settings of a DQN run, and which of them contradict each other.

`algorithm.py` uses them. This file needs no JAX, so that `--help` and a mistyped flag are quick.
"""

from dataclasses import dataclass
from typing import Literal

from loopless.train.engine import options


@dataclass(frozen=True)
class DQN(options.AgentOptions, options.RunOptions):
    """Deep Q-learning and its family: double, duelling, n-step, prioritized, SARSA.

    The defaults solve CartPole-v1. Every `train_every` environment steps one event happens:
    `updates` batches are drawn from the replay buffer, and `repeats` gradient steps are made on
    each, one after the other.
    """

    overlap_events: int = 8
    """With overlap: events in a call. They are the same events, one after the other; only the
    weights that act are older."""

    hidden: tuple[int, ...] = (120, 84)
    """Widths of the hidden layers (after the convolutions, if there are any)."""
    activation: Literal["relu", "tanh", "selu"] = "relu"
    """What follows each hidden layer."""
    duelling: bool = False
    """Q = V + A − mean A."""

    target: Literal["replace", "polyak", "off"] = "replace"
    """The target network: copied now and then, followed slowly, or none (targets by the online
    network)."""
    target_every: int = 500
    """Environment steps between two copies, or between two steps of polyak averaging."""
    tau: float = 0.005
    """Polyak: how much of the online network a step takes over."""
    double: bool = False
    """The online network chooses the action that the target network values."""
    sarsa: bool = False
    """Targets by the action that was taken next, not by the best one."""
    n_step: int = 1
    """Rewards summed before the bootstrap."""

    buffer_size: int = 10_000
    """Transitions that the replay buffer holds."""
    batch_size: int = 128
    """Transitions of a gradient step."""
    learning_starts: int = 10_000
    """Environment steps before the first event."""
    train_every: int = 10
    """Environment steps between two events; a multiple of envs."""
    updates: int = 1
    """Batches drawn in an event."""
    repeats: int = 1
    """Gradient steps on each of them."""
    accumulate: int = 1
    """Batches whose gradients are averaged before a gradient step."""
    mega_batch: bool = False
    """One gradient step on all of an event's batches together, in place of one on each. A
    different algorithm: fewer, larger steps."""
    newest: int = 0
    """Combined experience replay: so many of each batch are the newest transitions."""
    prioritized: Literal["off", "exact", "block"] = "off"
    """exact: draw, step, write priorities, draw the next. block: draw all batches of an event
    first, with priorities that are then a little old, and write at its end."""
    alpha: float = 0.6
    """Exponent of priorities."""
    beta: float = 0.4
    """Exponent of importance weights at the start; it rises to 1 in a line over the run."""
    priority_epsilon: float = 1e-6
    """Added to |TD error| to make a priority."""

    exploration: Literal["epsilon", "boltzmann"] = "epsilon"
    """epsilon: the best action, or with some probability any. boltzmann: P ∝ exp(Q / temperature).
    """
    explore_start: float = 1.0
    """Epsilon or temperature at the start."""
    explore_end: float = 0.05
    """Epsilon or temperature after `explore_steps`."""
    explore_steps: int = 250_000
    """Environment steps over which it falls, in a line."""

    loss: Literal["mse", "huber"] = "mse"
    """Loss of a TD error."""
    huber_delta: float = 1.0
    """Where the Huber loss turns linear."""
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    """How gradients become steps."""
    learning_rate: float = 2.5e-4
    """Step size at the start."""
    learning_rate_end: float | None = None
    """Step size at the end of the run, reached in a line; constant if left out."""
    weight_decay: float = 1e-4
    """AdamW's."""
    max_gradient_norm: float | None = None
    """Longer gradients are shortened to this norm."""
    update: Literal["fused", "loop"] = "fused"
    """fused: an event's updates are one compiled call. loop: the same updates one by one, for
    comparison and debugging."""

    @property
    def update_size(self) -> int:
        """Transitions that one gradient step sees."""
        return self.batch_size * self.accumulate * (self.updates if self.mega_batch else 1)

    @property
    def draws(self) -> int:
        """How many times an event draws `update_size` transitions."""
        return 1 if self.mega_batch else self.updates

    def problems(self) -> list[str]:
        """Return what is wrong with the settings, one sentence for each problem."""
        problems = super().problems() + options.range_problems(
            self, LEAST | options.AGENT_LEAST,
            shares=("gamma", "tau", "beta"),
            positive=("learning_rate", "huber_delta", "max_gradient_norm"),
        )  # fmt: skip
        if problems:
            return problems
        if self.exploration == "epsilon" and max(self.explore_start, self.explore_end) > 1:
            problems.append(
                "explore_start and explore_end are probabilities with exploration=epsilon; neither "
                "may be above 1."
            )
        if self.exploration == "boltzmann" and not min(self.explore_start, self.explore_end) > 0:
            problems.append(
                "explore_start and explore_end are temperatures with exploration=boltzmann; both "
                "must be above 0."
            )
        problems += self._size_problems()
        if self.newest and self.prioritized != "off":
            problems.append("newest and prioritized cannot be combined; leave one of them out.")
        if self.double and (self.sarsa or self.target == "off"):
            problems.append("double needs a target network, and cannot be combined with sarsa.")
        if self.sarsa and self.n_step > 1:
            problems.append("sarsa looks one step ahead; leave n_step out.")
        if self.vectorization in ("native", "envpool") and self.n_step > 1 and self.envs > 1:
            problems.append(
                f"n_step above 1 with vectorization={self.vectorization} needs envs=1, because "
                f"steps that only reset are left out. Use vectorization sync or async."
            )
        problems += self.mode_problems()
        if self.overlap and (self.sarsa or self.update == "loop"):
            problems.append("overlap cannot be combined with sarsa or with update=loop.")
        if self.update == "loop" and self.seeds > 1:
            problems.append("update=loop trains one seed at a time; leave seeds out.")
        return problems

    def _size_problems(self) -> list[str]:
        problems = [
            f"{name} must be a multiple of envs={self.envs}; received {getattr(self, name)}."
            for name in ("train_every", "buffer_size")
            if getattr(self, name) % self.envs
        ]
        if self.update_size > self.buffer_size:
            problems.append(
                f"a gradient step sees {self.update_size} transitions, more than buffer_size="
                f"{self.buffer_size}. Use a smaller batch_size or a larger buffer_size."
            )
        if self.update_size > max(self.learning_starts, self.train_every):
            problems.append(
                f"learning_starts must be at least {self.update_size}, the transitions of the "
                f"first gradient step; received {self.learning_starts}."
            )
        if self.train_every > self.buffer_size:
            problems.append(
                f"train_every must not be larger than buffer_size={self.buffer_size}; received "
                f"{self.train_every}."
            )
        if self.newest > self.batch_size:
            problems.append(
                f"newest must not be larger than batch_size={self.batch_size}; received "
                f"{self.newest}."
            )
        return problems


LEAST = {
    "target_every": 1, "n_step": 1, "buffer_size": 1, "batch_size": 1, "learning_starts": 0,
    "train_every": 1, "updates": 1, "overlap_events": 1, "repeats": 1, "accumulate": 1, "newest": 0,
    "alpha": 0, "priority_epsilon": 0, "explore_start": 0, "explore_end": 0, "explore_steps": 0,
    "learning_rate_end": 0, "weight_decay": 0,
}  # fmt: skip
