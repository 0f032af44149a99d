"""AvataRL: a student that learns from rewards by reality (the true text) and by a frozen critic.

This file has the objective that an update minimizes; the update itself is that of any language
model (`lm/algorithm.py`). The critic runs before the updates, for many of them in one call
(`critic_streams`), but without its head, which is applied inside the updates, so that no more than
one batch of its logits is ever in memory. `run.py` and `critic.py` call these functions.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from loopless.kernels.avatarl.baselines import cross_entropy, distillation, soft_cross_entropy
from loopless.kernels.avatarl.loss import avatarl_actions, avatarl_loss, avatarl_rewards
from loopless.nets.gpt.model import GPT
from loopless.train.avatarl.config import AvataRL


def objective(
    config: AvataRL, student: GPT, critic: GPT, batch: Any
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return what the updates of `config` minimize, and statistics."""
    windows, critic_logits = batch["windows"], None
    if "stream" in batch:
        critic_logits = lax.stop_gradient(critic.logits(batch["stream"]))
    return loss_of(config)(student(windows[:, :-1]), critic_logits, windows[:, 1:])


LOGGED = ("gold_reward", "gold_rewarded", "kept", "actions", "kl", "entropy")


def loss_of(config: AvataRL) -> Callable:
    """Return the loss of `config`: (student's logits, critic's, targets) → loss, statistics."""
    reward_options: dict[str, Any] = {
        "variant": config.variant,
        "reality_weight": config.reality_weight,
        "critic_weight": "confidence" if config.confidence else config.critic_weight,
        "label_smoothing": config.label_smoothing,
        "reward_scale": config.reward_scale,
        "reward_clamp": config.reward_clamp,
    }

    def avatarl(logits, critic_logits, targets):
        loss, stats = avatarl_loss(
            logits,
            critic_logits,
            targets,
            top_k=config.top_k,
            entropy_coefficient=config.entropy_coefficient,
            **reward_options,
        )
        return loss, {name: stats[name] for name in LOGGED}

    def soft(logits, critic_logits, targets):
        actions, present = avatarl_actions(logits, critic_logits, targets, top_k=config.top_k)
        rewards = avatarl_rewards(critic_logits, actions, present, **reward_options)
        return soft_cross_entropy(logits, actions, rewards), {
            "gold_reward": rewards[..., 0].mean(),
            "gold_rewarded": (rewards[..., 0] > 0).mean(dtype=rewards.dtype),
            "kept": (rewards > 0).sum(-1).mean(dtype=rewards.dtype),
            "actions": present.sum(-1).mean(dtype=rewards.dtype),
        }

    losses = {
        "avatarl": avatarl,
        "soft": soft,
        "distillation": lambda logits, critic_logits, targets: (
            distillation(logits, critic_logits),
            {},
        ),
        "ce": lambda logits, critic_logits, targets: (cross_entropy(logits, targets), {}),
    }
    return losses[config.loss]


def critic_streams(critic: GPT, inputs: jax.Array, count: jax.Array) -> jax.Array:
    """Return the output of the critic's last block, for its head, [groups, batch, block, width].

    Only the first `count` groups of inputs [groups, batch, block] are computed; the others are 0.
    """

    def one_group(i, streams):
        stream, _ = critic.stream(lax.dynamic_index_in_dim(inputs, i, keepdims=False))
        return lax.dynamic_update_index_in_dim(streams, stream, i, 0)

    streams = jnp.zeros((*inputs.shape, critic.tokens.shape[1]), critic.tokens.dtype)
    return lax.fori_loop(jnp.zeros_like(count), count, one_group, streams)
