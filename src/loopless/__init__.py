"""Reinforcement-learning hot paths with no Python loop, checked against the loop they replace."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loopless.fused.actor import actor
    from loopless.fused.forward import forward
    from loopless.fused.step import fuse
    from loopless.kernels.avatarl.baselines import cross_entropy, distillation, soft_cross_entropy
    from loopless.kernels.avatarl.loss import avatarl_actions, avatarl_loss, avatarl_rewards
    from loopless.kernels.laplacian.losses import allo_loss, ggdo_loss
    from loopless.kernels.normalize import normalize
    from loopless.kernels.off_policy import retrace, vtrace
    from loopless.kernels.policy_gradient import policy_gradient_loss, ppo_loss
    from loopless.kernels.q_learning import q_loss, q_targets
    from loopless.kernels.returns import (
        discounted_returns,
        gae,
        lambda_returns,
        n_step_returns,
        upgo,
    )
    from loopless.kernels.rollouts import successor_values, unlag, valid_mask
    from loopless.kernels.scan import affine_scan
    from loopless.kernels.tokens import token_gae
    from loopless.replay.host.episodic.buffer import EpisodicReplayBuffer
    from loopless.replay.host.prioritized import PrioritizedReplayBuffer
    from loopless.replay.host.rollout.buffer import RolloutBuffer
    from loopless.replay.host.uniform import ReplayBuffer
    from loopless.train.api import (
        open_run,
        train_allo,
        train_avatarl,
        train_dqn,
        train_lm,
        train_ppo,
    )
    from loopless.train.policies import load_policy

__version__ = "0.1.0"

_HOMES = {
    "fused.actor": ("actor",),
    "fused.forward": ("forward",),
    "fused.step": ("fuse",),
    "kernels.avatarl.loss": ("avatarl_actions", "avatarl_loss", "avatarl_rewards"),
    "kernels.avatarl.baselines": ("cross_entropy", "distillation", "soft_cross_entropy"),
    "kernels.laplacian.losses": ("allo_loss", "ggdo_loss"),
    "kernels.normalize": ("normalize",),
    "kernels.off_policy": ("retrace", "vtrace"),
    "kernels.policy_gradient": ("policy_gradient_loss", "ppo_loss"),
    "kernels.q_learning": ("q_loss", "q_targets"),
    "kernels.returns": (
        "discounted_returns",
        "gae",
        "lambda_returns",
        "n_step_returns",
        "upgo",
    ),
    "kernels.rollouts": ("successor_values", "unlag", "valid_mask"),
    "kernels.scan": ("affine_scan",),
    "kernels.tokens": ("token_gae",),
    "replay.host.episodic.buffer": ("EpisodicReplayBuffer",),
    "replay.host.prioritized": ("PrioritizedReplayBuffer",),
    "replay.host.rollout.buffer": ("RolloutBuffer",),
    "replay.host.uniform": ("ReplayBuffer",),
    "train.api": (
        "open_run",
        "train_allo",
        "train_avatarl",
        "train_dqn",
        "train_lm",
        "train_ppo",
    ),
    "train.policies": ("load_policy",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str):
    # Names load on first use: the command line starts without NumPy, and a kernel without the rest.
    if name not in _HOME_OF:
        raise AttributeError(f"module 'loopless' has no attribute {name!r}")
    value = getattr(import_module(f"loopless.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
