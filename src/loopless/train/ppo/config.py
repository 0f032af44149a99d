"""What a PPO run can be told: every switch with its default, and what makes no sense.

Apart from `ppo.py`, so that `--help` and mistakes cost no import of JAX. Imports
`ranges`. Tests: `tests/train/test_ppo_config.py`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from loopless.train.engine import ranges


@dataclass(frozen=True)
class PPO:
    """Proximal policy optimisation, for choices and for numbers, with or without memory; and A2C.

    The defaults solve CartPole-v1. Every env makes `horizon` steps; then the policy is improved on
    these rows, `epochs` times over, in `minibatches` shuffled parts; then the rows are forgotten.
    """

    env: str = "CartPole-v1"
    """Gymnasium id of the environment."""
    mode: Literal["auto", "compiled", "hosted"] = "auto"
    """compiled: environment and learner are one program. hosted: any Gymnasium environment.
    auto: compiled where there is a compiled environment of that id, and neither overlap nor a
    vectorization is asked for."""
    steps: int = 300_000
    """Environment steps in all, over all envs."""
    seed: int = 0
    """The seed of everything random."""
    seeds: int = 1
    """Train so many agents in one program, with seeds from `seed` on (compiled mode)."""
    envs: int = 4
    """Environments side by side."""
    horizon: int = 128
    """Steps that each env makes between two improvements of the policy."""
    vectorization: Literal["auto", "sync", "async", "native", "envpool"] = "auto"
    """How hosted environments run side by side."""
    overlap: bool = False
    """Hosted: act while the learner works, with weights that are one rollout old. A slightly
    different algorithm, and faster on two cores."""

    algorithm: Literal["ppo", "a2c"] = "ppo"
    """a2c: one gradient step on all rows of a rollout, by the plain policy gradient; epochs,
    minibatches, clip, value_clip and target_kl are then not used."""
    net: Literal["auto", "mlp", "conv"] = "auto"
    """auto: convolutions for images of bytes, else an MLP."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers (after the convolutions, if there are any)."""
    activation: Literal["tanh", "relu", "selu"] = "tanh"
    """What follows each hidden layer."""
    shared: bool = False
    """One body for policy and value, in place of one each. Convolutions and cores are always
    shared."""
    core: Literal["none", "gru", "lstm"] = "none"
    """Memory of the policy, behind the hidden layers. It is empty at every episode's start."""
    core_width: int = 64
    """Numbers that the core remembers."""
    squash: bool = False
    """Actions that are numbers: bent into their bounds by tanh, not clipped to them."""
    state_std: bool = False
    """Actions that are numbers: their spread depends on the observation."""
    log_std_start: float = 0.0
    """Logarithm of that spread at the start."""

    gamma: float = 0.99
    """Discount."""
    gae_lambda: float = 0.95
    """Decay of the traces of generalised advantage estimates."""
    epochs: int = 4
    """How often a rollout's rows are gone over."""
    minibatches: int = 4
    """Parts that an epoch is cut into, with a gradient step on each. With a core a part is some
    envs' whole rollouts, in order."""
    clip: float = 0.2
    """How far the ratio of new to old probabilities may go from 1 and still be rewarded."""
    clip_end: float | None = None
    """`clip` at the end of the run, reached in a line; constant if left out."""
    value_clip: float | None = None
    """How far a value may go from the old one and still be rewarded; no limit if left out."""
    value_coefficient: float = 0.5
    """Weight of the value loss."""
    entropy_coefficient: float = 0.0
    """Weight of the policy's entropy, which keeps it exploring."""
    entropy_end: float | None = None
    """`entropy_coefficient` at the end of the run, reached in a line; constant if left out."""
    normalize_advantages: Literal["minibatch", "batch", "off"] = "minibatch"
    """Advantages get mean 0 and deviation 1 in each minibatch, in each rollout, or not at all."""
    target_kl: float | None = None
    """Once the approximate KL divergence from the policy that acted exceeds this, the rest of
    the rollout's gradient steps are left out."""
    normalize_obs: bool = False
    """Observations get mean 0 and deviation 1, by statistics of all that were seen; these are
    saved with the weights."""
    normalize_rewards: bool = False
    """Rewards are divided by the deviation of the discounted return. Reported returns are not."""

    learning_rate: float = 1e-3
    """Adam's step size at the start."""
    learning_rate_end: float = 0.0
    """Step size at the end of the run, reached in a line."""
    adam_epsilon: float = 1e-5
    """Added to the root of Adam's second moments."""
    max_gradient_norm: float = 0.5
    """Longer gradients are shortened to this norm; 0: none are."""

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
        """Environment steps of a rollout."""
        return self.envs * self.horizon

    @property
    def updates(self) -> int:
        """Gradient steps on a rollout."""
        return 1 if self.algorithm == "a2c" else self.epochs * self.minibatches

    def problems(self) -> list[str]:
        """What makes no sense, in words."""
        wrong = ranges.problems(
            self, LEAST,
            shares=("gamma", "gae_lambda"),
            above_zero=("learning_rate", "adam_epsilon", "target_kl"),
        )  # fmt: skip
        if wrong:
            return wrong
        if self.core != "none" and self.envs % self._parts:
            wrong.append(
                f"minibatches is {self.minibatches}, which does not divide envs={self.envs}: with "
                f"a core a minibatch is whole rollouts of some envs."
            )
        elif self.rows % self._parts:
            wrong.append(
                f"minibatches is {self.minibatches}, which does not divide the {self.rows} rows of "
                f"a rollout (envs={self.envs} times horizon={self.horizon})."
            )
        if self.algorithm == "a2c" and self.target_kl is not None:
            wrong.append("target_kl is for ppo; a2c makes one step, which it cannot stop.")
        if self.mode == "hosted" and self.seeds > 1:
            wrong.append("seeds above 1 are for compiled mode; start one run for each seed.")
        if self.mode == "compiled" and self.overlap:
            wrong.append("overlap is for hosted mode; a compiled run has nothing to wait for.")
        if self.mode == "compiled" and self.vectorization != "auto":
            wrong.append("vectorization is for hosted mode; compiled envs are always side by side.")
        return wrong

    @property
    def _parts(self) -> int:
        return 1 if self.algorithm == "a2c" else self.minibatches


LEAST = {
    "steps": 1, "seed": 0, "seeds": 1, "envs": 1, "horizon": 1, "core_width": 1, "epochs": 1,
    "minibatches": 1, "clip": 0, "clip_end": 0, "value_clip": 0, "value_coefficient": 0,
    "entropy_coefficient": 0, "entropy_end": 0, "learning_rate_end": 0, "max_gradient_norm": 0,
    "eval_every": 0, "eval_episodes": 1, "log_every": 1, "plot_every": 0, "checkpoint_every": 1,
}  # fmt: skip
