"""How far ahead a pair looks: the exact truncated geometric law, on the device.

    P(gap) = (1−γ) γ^(gap−1) / (1−γⁿ),  gap 1 … n

Imports JAX and `words`. Twin: `numba_episodic.steps_beyond`. Tests:
`tests/replay/test_device_episodic.py`.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loopless.replay.device.words import below, unit

FARTHEST = 2**31 - 256  # what a float32 still rounds below 2³¹


def gaps(words: jax.Array, room: jax.Array, discount: Any, max_horizon: Any = None) -> jax.Array:
    """Gaps, uint32, from random words [2, *leading] and horizons n [*leading]; 0 where n is 0.

    A `discount` that is a number is checked, and its branch chosen when compiling: 0 the next
    step, 1 any alike. A traced one costs all three branches, and lies in [0, 1] unchecked.
    """
    if max_horizon is not None:
        room = jnp.minimum(room, max_horizon)
    n = jnp.maximum(room, 1).astype(jnp.uint32)
    if isinstance(discount, int | float | np.number):
        if not 0 <= discount <= 1:
            raise ValueError(f"discount lies in [0, 1]; received {discount!r}.")
        if discount == 0:
            beyond = jnp.zeros_like(n)
        elif discount == 1:
            beyond = below(words, n)
        else:
            beyond = _geometric(words, n, math.log(discount))
    else:
        limits = jnp.finfo(jnp.result_type(float))
        inner = jnp.clip(jnp.asarray(discount, limits.dtype), limits.tiny, 1 - limits.epsneg)
        beyond = _geometric(words, n, jnp.log(inner))
        beyond = jnp.where(discount == 0, 0, jnp.where(discount == 1, below(words, n), beyond))
    return jnp.where(room > 0, beyond + 1, 0).astype(jnp.uint32)


def _geometric(words: jax.Array, n: jax.Array, log_discount: Any) -> jax.Array:
    """k in [0, n). G mod n of an untruncated geometric G is the truncated one: G is memoryless."""
    dtype = jnp.result_type(float)
    far = jnp.floor(jnp.log(unit(words, dtype)) / jnp.asarray(log_discount, dtype))
    if dtype == jnp.float64:
        return (far.astype(jnp.uint64) % n.astype(jnp.uint64)).astype(jnp.uint32)
    return jnp.minimum(far, FARTHEST).astype(jnp.uint32) % n
