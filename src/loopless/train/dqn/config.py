"""The settings of a DQN run, and which of them contradict each other.

`algorithm.py` uses them. This file needs no JAX, so that `--help` and a mistyped flag are quick.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from loopless.train.engine import options


@dataclass(frozen=True)
class DQN(options.AgentOptions, options.RunOptions):
    """Deep Q-learning and its family: double, dueling, n-step, prioritized, SARSA.

    The defaults solve CartPole-v1. Every `train_every` environment steps one event happens:
    `updates` batches are drawn from the replay buffer, and `repeats` gradient steps are made on
    each, one after the other.
    """

    TRACED: ClassVar = (
        "steps", "gamma", "target_every", "tau", "learning_starts", "alpha", "beta",
        "priority_epsilon", "explore_start", "explore_end", "explore_steps", "huber_delta",
        "learning_rate", "learning_rate_end", "weight_decay", "max_gradient_norm",
    )  # fmt: skip
    BEFORE: ClassVar[Mapping[str, str]] = {"frames": "twice"}  # see `runs.config.from_run`

    overlap_events: int = 8
    """With overlap: number of events in one call. The same events happen one after the other; only
    the weights that act are older."""

    hidden: tuple[int, ...] = (120, 84)
    """Widths of the hidden layers (after the convolutions, if there are any)."""
    activation: Literal["relu", "tanh", "selu"] = "relu"
    """Activation function after each hidden layer."""
    duelling: bool = False
    """Dueling network: Q = V + A − mean A."""

    target: Literal["replace", "polyak", "off"] = "replace"
    """How the target network follows the online network. replace: copied from time to time. polyak:
    a moving average. off: there is none, and the online network gives the targets."""
    target_every: int = 500
    """Environment steps between two copies, or between two steps of polyak averaging."""
    tau: float = 0.005
    """Share of the online network that a step of polyak averaging takes over."""
    double: bool = False
    """Double DQN: the online network chooses the action that the target network evaluates."""
    sarsa: bool = False
    """Targets use the action that was taken next, not the best one."""
    n_step: int = 1
    """Number of rewards that are summed before the bootstrap."""

    buffer_size: int = 10_000
    """Number of transitions that the replay buffer holds."""
    frames: Literal["once", "twice"] = "once"
    """Pictures of hosted environments in the replay buffer. once: each frame is stored once, and
    stacks and successors are found from it. twice: every transition has its two observations."""
    batch_size: int = 128
    """Number of transitions in a batch."""
    learning_starts: int = 10_000
    """Environment steps before the first event."""
    train_every: int = 10
    """Environment steps between two events; must be a multiple of envs."""
    updates: int = 1
    """Number of batches drawn in an event."""
    repeats: int = 1
    """Number of gradient steps on each batch."""
    accumulate: int = 1
    """Number of batches whose gradients are averaged for one gradient step."""
    mega_batch: bool = False
    """Make one gradient step on all batches of an event together, instead of one on each. A
    different algorithm: fewer, larger steps."""
    newest: int = 0
    """Combined experience replay: how many transitions of each batch are the newest ones."""
    prioritized: Literal["off", "exact", "block"] = "off"
    """Prioritized replay. exact: priorities are written after each batch, before the next one is
    drawn. block: all batches of an event are drawn first, with slightly old priorities, and
    priorities are written at the end of the event."""
    alpha: float = 0.6
    """Exponent of the priorities."""
    beta: float = 0.4
    """Exponent of the importance weights at the start; it rises linearly to 1 over the run."""
    priority_epsilon: float = 1e-6
    """Added to |TD error| to get a priority."""

    exploration: Literal["epsilon", "boltzmann"] = "epsilon"
    """epsilon: a random action with probability epsilon, otherwise the best one. boltzmann: P(a)
    proportional to exp(Q / temperature)."""
    explore_start: float = 1.0
    """Epsilon or temperature at the start."""
    explore_end: float = 0.05
    """Epsilon or temperature after `explore_steps`."""
    explore_steps: int = 250_000
    """Environment steps over which epsilon or the temperature changes, linearly."""

    loss: Literal["mse", "huber"] = "mse"
    """Loss function of the TD errors."""
    huber_delta: float = 1.0
    """TD error at which the Huber loss becomes linear."""
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    """Optimizer."""
    learning_rate: float = 2.5e-4
    """Learning rate at the start."""
    learning_rate_end: float | None = None
    """Learning rate at the end of the run, reached linearly; constant if left out."""
    weight_decay: float = 1e-4
    """Weight decay of AdamW."""
    max_gradient_norm: float | None = None
    """Gradients with a larger norm are scaled down to it; none are if left out."""
    update: Literal["fused", "loop"] = "fused"
    """fused: all updates of an event are one compiled call. loop: the same updates one by one, for
    comparison and debugging."""

    @property
    def update_size(self) -> int:
        """Transitions that one gradient step sees."""
        return self.batch_size * self.accumulate * (self.updates if self.mega_batch else 1)

    def keeps_once(self, obs: Any) -> bool:
        """Return whether the replay buffer stores each frame of such observations once."""
        return self.frames == "once" and obs.stack > 0

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
