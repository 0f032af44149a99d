"""What a DQN run can be told: every switch of the family with its default, and what makes no sense.

Apart from `dqn.py`, so that `--help` and mistakes cost no import of JAX. Imports
`ranges`. Tests: `tests/train/test_dqn_config.py`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from loopless.train.engine import ranges


@dataclass(frozen=True)
class DQN:
    """Deep Q-learning and its family: double, duelling, n-step, prioritized, SARSA.

    The defaults solve CartPole-v1. Every `train_every` environment steps one event happens:
    `updates` batches are drawn from the replay buffer, and `repeats` gradient steps are made on
    each, one after the other.
    """

    env: str = "CartPole-v1"
    """Gymnasium id of the environment."""
    mode: Literal["auto", "compiled", "hosted"] = "auto"
    """compiled: environment and learner are one program. hosted: any Gymnasium environment.
    auto: compiled where there is a compiled environment of that id, and neither overlap nor a
    vectorization is asked for."""
    steps: int = 500_000
    """Environment steps in all, over all envs."""
    seed: int = 0
    """The seed of everything random."""
    seeds: int = 1
    """Train so many agents in one program, with seeds from `seed` on (compiled mode)."""
    envs: int = 1
    """Environments side by side."""
    vectorization: Literal["auto", "sync", "async", "native", "envpool"] = "auto"
    """How hosted environments run side by side."""
    overlap: bool = False
    """Hosted: act while the learner works, with weights that are one call old. A slightly
    different algorithm, and faster on two cores."""
    overlap_events: int = 8
    """With overlap: events in a call. They are the same events, one after the other; only the
    weights that act are older."""

    net: Literal["auto", "mlp", "conv"] = "auto"
    """auto: convolutions for images of bytes, else an MLP."""
    hidden: tuple[int, ...] = (120, 84)
    """Widths of the hidden layers (after the convolutions, if there are any)."""
    activation: Literal["relu", "tanh", "selu"] = "relu"
    """What follows each hidden layer."""
    duelling: bool = False
    """Q = V + A − mean A."""

    gamma: float = 0.99
    """Discount."""
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
    """Transitions a gradient step is computed from."""
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

    eval_every: int = 25_000
    """Environment steps between evaluations without exploration; 0: none."""
    eval_episodes: int = 10
    """Episodes of an evaluation."""
    run: str | None = None
    """Name of the run's folder under `runs`; the next free one if left out."""
    runs: Path = Path("runs")
    """Folder of all runs."""
    log_every: int = 5_000
    """Environment steps between two rows of metrics."""
    plot_every: int = 50_000
    """Environment steps between two drawings of the plots; 0: only at the end."""
    checkpoint_every: int = 100_000
    """Environment steps between two checkpoints."""
    on_nan: Literal["stop", "skip"] = "stop"
    """At an update that is not finite: stop the run, or leave that update out."""
    profile: bool = False
    """Print where the time went, and write a JAX trace into the run's folder."""
    tensorboard: bool = False
    """Write TensorBoard files, too."""

    @property
    def rows(self) -> int:
        """Transitions that one gradient step sees."""
        return self.batch_size * self.accumulate * (self.updates if self.mega_batch else 1)

    @property
    def draws(self) -> int:
        """How often an event draws so many."""
        return 1 if self.mega_batch else self.updates

    def problems(self) -> list[str]:
        """What makes no sense, in words."""
        wrong = ranges.problems(
            self, LEAST,
            shares=("gamma", "tau", "beta"),
            above_zero=("learning_rate", "huber_delta", "max_gradient_norm"),
        )  # fmt: skip
        if wrong:
            return wrong
        if self.exploration == "epsilon" and max(self.explore_start, self.explore_end) > 1:
            wrong.append("explore_start and explore_end are probabilities with epsilon.")
        if self.exploration == "boltzmann" and not min(self.explore_start, self.explore_end) > 0:
            wrong.append("explore_start and explore_end are temperatures above 0 with boltzmann.")
        if self.train_every % self.envs:
            wrong.append(f"train_every is {self.train_every}, no multiple of envs={self.envs}.")
        if self.rows > self.buffer_size:
            wrong.append(
                f"a gradient step sees {self.rows} transitions, more than buffer_size="
                f"{self.buffer_size}. Use a smaller batch_size or a larger buffer."
            )
        if self.rows > max(self.learning_starts, self.train_every):
            wrong.append(
                f"learning_starts is {self.learning_starts}, fewer than the {self.rows} "
                f"transitions of the first gradient step."
            )
        if self.train_every > self.buffer_size:
            wrong.append("train_every is larger than buffer_size.")
        if self.buffer_size % self.envs:
            wrong.append(f"buffer_size is {self.buffer_size}, no multiple of envs={self.envs}.")
        if self.newest > self.batch_size:
            wrong.append(f"newest is {self.newest}, more than batch_size={self.batch_size}.")
        if self.newest and self.prioritized != "off":
            wrong.append("newest and prioritized do not go together: leave one out.")
        if self.double and (self.sarsa or self.target == "off"):
            wrong.append("double needs a target network, and no sarsa.")
        if self.sarsa and self.n_step > 1:
            wrong.append("sarsa goes one step at a time: leave n_step out.")
        if self.vectorization in ("native", "envpool") and self.n_step > 1 and self.envs > 1:
            wrong.append(
                f"n_step above 1 with vectorization={self.vectorization} goes with one env: their "
                f"steps that only reset are left out. Use sync or async."
            )
        if self.mode == "hosted" and self.seeds > 1:
            wrong.append("seeds above 1 are for compiled mode; start one run for each seed.")
        if self.mode == "compiled" and self.overlap:
            wrong.append("overlap is for hosted mode; a compiled run has nothing to wait for.")
        if self.mode == "compiled" and self.vectorization != "auto":
            wrong.append("vectorization is for hosted mode; compiled envs are always side by side.")
        if self.overlap and (self.sarsa or self.update == "loop"):
            wrong.append("overlap goes with neither sarsa nor update=loop.")
        if self.update == "loop" and self.seeds > 1:
            wrong.append("update=loop goes one seed at a time.")
        return wrong


LEAST = {
    "steps": 1, "seed": 0, "seeds": 1, "envs": 1, "target_every": 1, "n_step": 1,
    "buffer_size": 1, "batch_size": 1, "learning_starts": 0, "train_every": 1, "updates": 1,
    "overlap_events": 1,
    "repeats": 1, "accumulate": 1, "newest": 0, "alpha": 0, "priority_epsilon": 0,
    "explore_start": 0, "explore_end": 0, "explore_steps": 0, "learning_rate_end": 0,
    "weight_decay": 0, "eval_every": 0, "eval_episodes": 1, "log_every": 1, "plot_every": 0,
    "checkpoint_every": 1,
}  # fmt: skip
