"""n-step windows on the device: rewards summed along a stream until it ends or the ring does.

Imports JAX and `words`. Twins: `replay/numba_ring.py`, in loops `reference/replay.py`. Tests:
`tests/replay/test_device_ring.py`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from loopless.replay.device.words import around


def walk(
    column: Callable[[str, jax.Array], jax.Array],
    slots: jax.Array,
    head: jax.Array,
    *,
    capacity: int,
    envs: int,
    steps: int,
    gamma: float,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The last row, R = Σ_{k<h} γ^k r_k and γ^h of the window of up to `steps` rows from each slot.

    Consecutive rows of a stream stand `envs` slots apart; `column` reads a field of slots. A
    window ends with a row that terminated or was truncated, or with the newest row of its stream.
    """

    def step(_, carry: Any) -> Any:
        row, newer, total, discount, going = carry
        ended = column("terminated", row) | column("truncated", row)
        going = going & ~ended & (newer >= envs)
        row = jnp.where(going, around(row + jnp.uint32(envs), capacity), row)
        newer = jnp.where(going, newer - jnp.uint32(envs), newer)
        total = jnp.where(going, total + discount * column("reward", row), total)
        discount = jnp.where(going, discount * gamma, discount)
        return row, newer, total, discount, going

    newer = around(head + jnp.uint32(capacity - 1) - slots, capacity)  # rows written after this one
    rewards = column("reward", slots)
    discounts = jnp.full_like(rewards, gamma)
    carry = (slots, newer, rewards, discounts, jnp.ones_like(slots, bool))
    last, _, total, discount, _ = lax.fori_loop(1, steps, step, carry)
    return last, total, discount
