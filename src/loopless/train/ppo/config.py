"""The settings of a PPO run, and which of them contradict each other.

`algorithm.py` uses them. This file needs no JAX, so that `--help` and a mistyped flag are quick.
"""

from dataclasses import dataclass
from typing import Literal

from loopless.train.engine import options


@dataclass(frozen=True)
class PPO(options.AgentOptions, options.RunOptions):
    """Proximal policy optimisation, for choices and for numbers, with or without memory; and A2C.

    The defaults solve CartPole-v1. Every env makes `horizon` steps; then the policy is improved on
    these rows, `epochs` times over, in `minibatches` shuffled parts; then the rows are forgotten.
    """

    steps: int = 300_000
    """Environment steps in all, over all envs."""
    envs: int = 4
    """Environments side by side."""
    horizon: int = 128
    """Steps that each env makes between two improvements of the policy."""
    overlap: bool = False
    """Hosted: act while the learner works, with weights that are one rollout old. A slightly
    different algorithm, and faster on two cores."""

    algorithm: Literal["ppo", "a2c"] = "ppo"
    """a2c: one gradient step on all rows of a rollout, by the plain policy gradient; epochs,
    minibatches, clip, value_clip and target_kl are then not used."""
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

    @property
    def rollout_size(self) -> int:
        """Environment steps of a rollout."""
        return self.envs * self.horizon

    @property
    def is_recurrent(self) -> bool:
        """Whether the policy has a memory."""
        return self.core != "none"

    @property
    def updates(self) -> int:
        """Gradient steps on a rollout."""
        return 1 if self.algorithm == "a2c" else self.epochs * self.minibatches

    def problems(self) -> list[str]:
        """Return what is wrong with the settings, one sentence for each problem."""
        problems = super().problems() + options.range_problems(
            self, LEAST | options.AGENT_LEAST,
            shares=("gamma", "gae_lambda"),
            positive=("learning_rate", "adam_epsilon", "target_kl"),
        )  # fmt: skip
        if problems:
            return problems
        if self.is_recurrent and self.envs % self._parts:
            problems.append(
                f"minibatches is {self.minibatches}, which does not divide envs={self.envs}: with "
                f"a core a minibatch is whole rollouts of some envs."
            )
        elif self.rollout_size % self._parts:
            problems.append(
                f"minibatches is {self.minibatches}, which does not divide the {self.rollout_size} "
                f"steps of a rollout (envs={self.envs} times horizon={self.horizon})."
            )
        if self.algorithm == "a2c" and self.target_kl is not None:
            problems.append("target_kl is for ppo; a2c makes a single step, which it cannot stop.")
        return problems + self.mode_problems()

    @property
    def _parts(self) -> int:
        return 1 if self.algorithm == "a2c" else self.minibatches


LEAST = {
    "horizon": 1, "core_width": 1, "epochs": 1, "minibatches": 1, "clip": 0, "clip_end": 0,
    "value_clip": 0, "value_coefficient": 0, "entropy_coefficient": 0, "entropy_end": 0,
    "learning_rate_end": 0, "max_gradient_norm": 0,
}  # fmt: skip
