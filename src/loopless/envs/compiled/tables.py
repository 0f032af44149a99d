"""Worlds that are tables, compiled: every step is one look-up. Rules are the worlds' own.

Imports JAX. Their other faces are in `gym_worlds.py`; both are compared in
`tests/envs/test_worlds.py` and `tests/envs/test_table_worlds.py`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from loopless.envs.worlds.tables import MaskedWorld, MemoryWorld


class TableState(NamedTuple):
    """The state's number, and how many steps the episode has taken."""

    position: jax.Array
    steps: jax.Array


class Table:
    """A world's tables as pure functions; the world itself is the other base."""

    starts: Any
    next_states: Any
    rewards: Any
    terminates: Any
    observations: Any
    is_late: Any

    def reset(self, key: jax.Array) -> tuple[TableState, jax.Array]:
        """An episode that starts in any state that may come first."""
        position = jax.random.randint(key, (), 0, self.starts, jnp.int32)
        return TableState(position, jnp.int32(0)), jnp.asarray(self.observations)[position]

    def step(self, state: TableState, action: jax.Array, key: jax.Array):
        """(state, obs, reward, terminated, truncated). Nothing is random, so `key` is not read."""
        here = (state.position, action)
        after = TableState(jnp.asarray(self.next_states)[here], state.steps + 1)
        return (
            after,
            jnp.asarray(self.observations)[after.position],
            jnp.asarray(self.rewards)[here],
            jnp.asarray(self.terminates)[here],
            self.is_late(after.steps),
        )


class Memory(MemoryWorld, Table):
    """`table_worlds.MemoryWorld` as pure functions."""


class Masked(MaskedWorld, Table):
    """`table_worlds.MaskedWorld` as pure functions."""

    def action_mask(self, state: TableState) -> jax.Array:
        """Which actions are legal now."""
        return jnp.asarray(self.legal)[state.position]
