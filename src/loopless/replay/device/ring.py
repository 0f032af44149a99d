"""A ring of transitions on the device, drawn from uniformly, the newest on demand.

Imports JAX, `transitions` and `words`. Twins: `replay/ring.py`, in loops `reference/replay.py`.
Tests: `tests/replay/test_device_ring.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from loopless.replay.device.transitions import Ring, RingState, leading_shape
from loopless.replay.device.words import around, below, check_words, random_words


@dataclass(frozen=True, repr=False)
class RingBuffer(Ring):
    """A ring of transitions, drawn uniformly and with replacement, for use in a compiled graph.

        buffer = RingBuffer(100_000, {"obs": ((4,), np.float32), "action": ((), np.int32)})
        state = buffer.init()
        state = buffer.add(state, {"obs": obs, "action": action})
        batch = buffer.sample(state, key, 256)      # {"obs": [256, 4], "action": [256], "indices"}

    The handle is hashable: closed over, or a static argument. Add, then sample: XLA copies a
    ring that is read, and then written to by something that does not wait for what was read.
    `fields`, `n_step`, `gamma` and `envs` mean what they mean to `loopless.replay.ReplayBuffer`.
    """

    def init(self) -> RingState:
        """An empty state; an error, before anything is allocated, if it does not fit."""
        return self._empty()

    def add(self, state: RingState, transitions: Mapping[str, Any], valid: Any = None) -> RingState:
        """Append one transition, [n, ...] of them, or [steps, envs, ...]; the oldest give way.

        Rows whose `valid` (boolean, of the leading shape) is false are left out, and take no slot.
        Of more rows than there are slots the last stay.
        """
        return self._append(state, transitions, valid)[0]

    def sample(
        self,
        state: RingState,
        key: Any,
        batch_size: int,
        batches: int | None = None,
        *,
        newest: int = 0,
    ) -> dict[str, Any]:
        """A dict of arrays [batch_size, ...], or [batches, batch_size, ...], with "indices".

        The last `newest` of each batch are the newest transitions, the newest last. There is no
        error in a graph: an empty ring gives zeros, as slot 0. Wait until `state.size` is enough.
        """
        leading = leading_shape(type(self).__name__, batch_size, batches, newest)
        return self.sample_from(state, random_words(key, leading), newest=newest)

    def sample_from(self, state: RingState, words: jax.Array, *, newest: int = 0) -> dict[str, Any]:
        """`sample`, given its random words [2, *leading]: such as one chunk's, drawn at once."""
        check_words("RingBuffer.sample_from", words, 2)
        slots = below(words, state.size)
        if newest:
            ages = lax.iota(jnp.int32, newest)[::-1] + 1
            ages = jnp.minimum(ages, jnp.maximum(state.size, 1)).astype(jnp.uint32)
            head = state.head.astype(jnp.uint32)
            latest = around(head + jnp.uint32(self.capacity) - ages, self.capacity)
            slots = slots.at[..., -newest:].set(latest)
        return self.gather(state, slots)

    def gather(self, state: RingState, indices: Any) -> dict[str, Any]:
        """The transitions in slots `indices`, of any shape, as `sample` gives them."""
        return self._gather(state, indices)
