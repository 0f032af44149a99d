"""AvataRL: a student that learns from the rewards of reality and of a frozen critic.

Here is what an update minimises, and what the critic is asked. How an update is made is the same
as of any language model: `lm`. The critic's stream (what its last block hands to its head) is
asked for a chunk at a time, before the updates; the head is applied within them, so that no more
than one batch of critic logits is ever held.

Imports everything below `train`, `lm`, and JAX. Tests: `tests/train/test_avatarl_objectives.py`,
`tests/train/test_avatarl_run.py`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from loopless.kernels.avatarl.baselines import cross_entropy, distillation, soft_cross_entropy
from loopless.kernels.avatarl.loss import avatarl_actions, avatarl_loss, avatarl_rewards
from loopless.nets.gpt.model import GPT
from loopless.process import free_memory_bytes
from loopless.runs.failures import BadConfig
from loopless.runs.progress.quantities import size
from loopless.text.windows import Windows
from loopless.train.avatarl.config import AvataRL
from loopless.train.lm.algorithm import Objective


def objective_of(config: AvataRL) -> Objective:
    """What the updates of `config` minimise: (student, critic, rows) → loss, statistics."""
    numbers: dict[str, Any] = {
        "variant": config.variant,
        "reality_weight": config.reality_weight,
        "critic_weight": "confidence" if config.confidence else config.critic_weight,
        "label_smoothing": config.label_smoothing,
        "reward_scale": config.reward_scale,
        "reward_clamp": config.reward_clamp,
    }

    def avatarl(logits, judged, targets):
        beta = config.entropy_coefficient
        options = {"top_k": config.top_k, "entropy_coefficient": beta}
        return avatarl_loss(logits, judged, targets, **options, **numbers)

    def soft(logits, judged, targets):
        actions, present = avatarl_actions(logits, judged, targets, top_k=config.top_k)
        rewards = avatarl_rewards(judged, actions, present, **numbers)
        return soft_cross_entropy(logits, actions, rewards), {
            "gold_reward": rewards[..., 0].mean(),
            "gold_rewarded": (rewards[..., 0] > 0).mean(dtype=rewards.dtype),
            "kept": (rewards > 0).sum(-1).mean(dtype=rewards.dtype),
            "actions": present.sum(-1).mean(dtype=rewards.dtype),
        }

    losses = {
        "avatarl": avatarl,
        "soft": soft,
        "distillation": lambda logits, judged, targets: (distillation(logits, judged), {}),
        "ce": lambda logits, judged, targets: (cross_entropy(logits, targets), {}),
    }
    chosen = losses[config.loss]

    def objective(student: GPT, critic: GPT, rows: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
        windows = rows["windows"]
        judged = lax.stop_gradient(critic.logits(rows["stream"])) if "stream" in rows else None
        return chosen(student(windows[:, :-1]), judged, windows[:, 1:])

    return objective


class Streams:
    """What a critic makes of windows, a group of `batch` of them at a time.

    The same program answers whether answers are kept or not, and each window of a group goes its
    own way through it: what is kept is, bit for bit, what would be computed anew.
    """

    def __init__(self, critic: GPT, windows: Windows, batch: int, groups: int) -> None:
        self.critic, self.windows, self.batch, self.groups = critic, windows, batch, groups
        self.shape = windows.block, critic.tokens.shape[1]
        self._program = jax.jit(_streams)

    def of(self, windows: np.ndarray, starts: np.ndarray) -> Any:
        """Of windows [n, block + 1], n ≤ groups · batch: the streams, [groups · batch, block, w].

        What stands behind the first n means nothing.
        """
        groups, shape = -(-len(windows) // self.batch), (self.groups, self.batch, -1)
        inputs = np.zeros((self.groups * self.batch, self.windows.block), np.int32)
        inputs[: len(windows)] = windows[:, :-1]
        found = self._program(self.critic, inputs.reshape(shape), np.int32(groups))
        return found.reshape(-1, *self.shape)


class KeptStreams(Streams):
    """The same for windows that come again: each is asked for once."""

    def __init__(self, critic: GPT, windows: Windows, batch: int, groups: int) -> None:
        super().__init__(critic, windows, batch, groups)
        if windows.order != "shuffled":
            raise BadConfig(
                [f"cache_critic needs aligned windows (order=shuffled); order is {windows.order}."]
            )
        needed, free = 4 * windows.count * int(np.prod(self.shape)), free_memory_bytes()
        if free is not None and needed > free:
            shape = f"{windows.count:,} windows × {self.shape} float32"
            advice = "Leave it out, or train on less text."
            raise BadConfig(
                [f"cache_critic: {shape} need {size(needed)}; {size(free)} is free. {advice}"]
            )
        # Memory that the system hands out when it is written to.
        self._kept = np.empty((windows.count, *self.shape), np.float32)
        self._known = np.zeros(windows.count, bool)

    def of(self, windows: np.ndarray, starts: np.ndarray) -> Any:
        places = starts // self.windows.block
        new, first = np.unique(places, return_index=True)
        first = first[~self._known[new]]
        if len(first):
            found = np.asarray(super().of(windows[first], starts[first]))
            self._kept[places[first]] = found[: len(first)]
            self._known[places[first]] = True
        out = np.zeros((self.groups * self.batch, *self.shape), np.float32)
        out[: len(places)] = self._kept[places]
        return out


def _streams(critic: GPT, windows: jax.Array, count: jax.Array) -> jax.Array:
    """Streams [groups, batch, block, width] of the first `count` groups [groups, batch, block]."""

    def one(i, found):
        stream, _ = critic.stream(lax.dynamic_index_in_dim(windows, i, keepdims=False))
        return lax.dynamic_update_index_in_dim(found, stream, i, 0)

    found = jnp.zeros((*windows.shape, critic.tokens.shape[1]), critic.tokens.dtype)
    return lax.fori_loop(jnp.zeros_like(count), count, one, found)
