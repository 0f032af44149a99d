"""The original's way to collect: every environment carries its whole row through every step.

A compiled scan whose carry holds observations, marks and flags [envs, 2 · steps + 1], each
rewritten under a condition. Imports JAX. Tests: `tests/suites/allo_speed/test_bench_allo.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from loopless.envs.grids.world import GridWorld


class Row(NamedTuple):
    """An environment and its row: where it writes next, and what it has written."""

    state: jax.Array
    age: jax.Array
    head: jax.Array
    obs: jax.Array
    terminals: jax.Array
    valid: jax.Array
    actions: jax.Array


def collect_rows(
    world: GridWorld, envs: int, steps: int, limit: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Observations and marks [envs, length] of so many steps each; ends are marked twice."""
    targets = jnp.asarray(world.targets[:, :, 0])
    width = 2 * steps + 1

    def begin(key: jax.Array) -> Row:
        state = jax.random.randint(key, (), 0, world.states, jnp.int32)
        empty = jnp.zeros(width, jnp.int32)
        return Row(state, jnp.int32(0), jnp.int32(1), empty.at[0].set(state), empty, empty, empty)

    def step(row: Row, key: jax.Array) -> Row:
        for_action, for_reset = jax.random.split(key)
        action = jax.random.randint(for_action, (), 0, 4, jnp.int32)
        later, head = targets[row.state, action], row.head
        done = row.age + 1 >= limit
        row = row._replace(
            obs=row.obs.at[head].set(later),
            actions=row.actions.at[head - 1].set(action),
            valid=row.valid.at[head - 1].set(1),
        )

        def ended(row: Row) -> Row:
            start = jax.random.randint(for_reset, (), 0, world.states, jnp.int32)
            return row._replace(
                state=start, age=jnp.int32(0), head=head + 2,
                terminals=row.terminals.at[head - 1].set(1).at[head].set(1),
                obs=row.obs.at[head + 1].set(start),
            )  # fmt: skip

        def goes_on(row: Row) -> Row:
            return row._replace(state=later, age=row.age + 1, head=head + 1)

        return jax.lax.cond(done, ended, goes_on, row)

    @jax.jit
    def all_steps(key: jax.Array) -> Row:
        for_start, for_steps = jax.random.split(key)
        rows = jax.vmap(begin)(jax.random.split(for_start, envs))
        keys = jax.random.split(for_steps, steps)
        many = jax.vmap(step)
        return jax.lax.scan(lambda r, k: (many(r, jax.random.split(k, envs)), None), rows, keys)[0]

    found = all_steps(jax.random.key(seed))
    length = steps + steps // limit + (steps % limit > 0)
    return np.asarray(found.obs)[:, :length], np.asarray(found.terminals)[:, :length] > 0
