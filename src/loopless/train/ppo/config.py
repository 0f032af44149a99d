"""The settings of a PPO run, and which of them contradict each other.

`algorithm.py` uses them. This file needs no JAX, so that `--help` and a mistyped flag are quick.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from loopless.train.engine import options


@dataclass(frozen=True)
class PPO(options.AgentOptions, options.RunOptions):
    """Proximal policy optimization for discrete and continuous actions, recurrent or not; and A2C.

    The defaults solve CartPole-v1. Every env makes `horizon` steps; then the policy is improved on
    this rollout in `epochs` passes of `minibatches` gradient steps each; then the rollout is
    discarded.
    """

    TRACED: ClassVar = (
        "steps", "gamma", "log_std_start", "gae_lambda", "clip", "clip_end", "value_clip",
        "value_coefficient", "entropy_coefficient", "entropy_end", "target_kl", "learning_rate",
        "learning_rate_end", "adam_epsilon", "max_gradient_norm",
    )  # fmt: skip

    steps: int = 300_000
    """Number of environment steps of the whole run, over all envs."""
    envs: int = 4
    """Number of environments that are stepped together."""
    horizon: int = 128
    """Number of steps that each env makes in a rollout."""
    overlap: bool = False
    """Hosted mode: act while the learner works, with weights that are one rollout old. A slightly
    different algorithm, and faster on two cores."""

    algorithm: Literal["ppo", "a2c"] = "ppo"
    """a2c: one gradient step on the whole rollout, by the plain policy gradient; epochs,
    minibatches, clip, value_clip and target_kl are then not used."""
    activation: Literal["tanh", "relu", "selu"] = "tanh"
    """Activation function after each hidden layer."""
    shared: bool = False
    """Policy and value share their hidden layers. Convolutions and cores are always shared."""
    core: Literal["none", "gru", "lstm"] = "none"
    """Recurrent core of the policy, after the hidden layers. Its memory is emptied at the start of
    every episode."""
    core_width: int = 64
    """Width of the core's memory."""
    squash: bool = False
    """Continuous actions are brought into their bounds by tanh, instead of by clipping."""
    state_std: bool = False
    """The standard deviation of continuous actions depends on the observation."""
    log_std_start: float = 0.0
    """Logarithm of the standard deviation of continuous actions at the start."""

    gae_lambda: float = 0.95
    """λ of generalized advantage estimation."""
    epochs: int = 4
    """Number of passes over a rollout."""
    minibatches: int = 4
    """Number of minibatches in an epoch, with a gradient step on each. With a core, a minibatch is
    the whole rollouts of some envs, in order."""
    clip: float = 0.2
    """How far the ratio of new to old probabilities may move from 1 before it is clipped."""
    clip_end: float | None = None
    """`clip` at the end of the run, reached linearly; constant if left out."""
    value_clip: float | None = None
    """How far a value may move from the old one before it is clipped; no limit if left out."""
    value_coefficient: float = 0.5
    """Weight of the value loss."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus, which keeps the policy exploring."""
    entropy_end: float | None = None
    """`entropy_coefficient` at the end of the run, reached linearly; constant if left out."""
    normalize_advantages: Literal["minibatch", "batch", "off"] = "minibatch"
    """Where advantages are normalized to mean 0 and deviation 1: in each minibatch, in each rollout
    (batch), or not at all."""
    target_kl: float | None = None
    """Once the approximate KL divergence from the policy that acted exceeds this, the remaining
    gradient steps of the rollout are left out."""
    normalize_obs: bool = False
    """Observations are normalized to mean 0 and deviation 1 by running statistics, which are saved
    with the weights."""
    normalize_rewards: bool = False
    """Rewards are divided by the deviation of the discounted returns. Reported returns are not."""

    learning_rate: float = 1e-3
    """Learning rate of Adam at the start."""
    learning_rate_end: float = 0.0
    """Learning rate at the end of the run, reached linearly."""
    adam_epsilon: float = 1e-5
    """Added to the root of Adam's second moments."""
    max_gradient_norm: float = 0.5
    """Gradients with a larger norm are scaled down to it; 0 turns this off."""

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
        if self.network and self.is_recurrent:
            problems.append("network cannot be combined with core: your network has no memory.")
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
