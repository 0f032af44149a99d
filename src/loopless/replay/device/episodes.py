"""Rows of unequal length in a device's memory: where they lie, and the index of their starts.

The arena of the host's buffer, in a graph: rows lie side by side in flat arrays, and the oldest go
until a new one fits. A row never wraps around the end of the arrays: if the rest there is too
short, it stays unused for that lap. The starts of all rows stand in a ring of their own, row after
row, so that those of any one row, and those of all, are neighbours. Imports JAX, `layout`,
`segments` and `words`. Twins: `replay/episodic_store.py`, `replay/row_queue.py`. Tests:
`tests/replay/test_device_episodic.py`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from loopless.replay.device.layout import Layout, take
from loopless.replay.device.segments import horizons
from loopless.replay.device.words import around


class EpisodicState(NamedTuple):
    """Steps, starts, and a ring of rows; integers are int32."""

    packed: jax.Array  # uint32 [capacity, words]: the small fields of each step
    large: dict[str, jax.Array]  # [capacity, ...] each
    pairs: jax.Array  # [capacity, 2]: a ring of starts, each with its horizon
    table: jax.Array  # [max_rows, 4]: offset, length, first start and count of starts of each row
    oldest: jax.Array  # the line of `table` of the oldest row
    rows: jax.Array  # how many rows there are
    end: jax.Array  # where the newest row ends in the flat arrays
    starts_end: jax.Array  # where its starts end in `pairs`
    refused: jax.Array  # how many rows could not be added


def empty(layout: Layout, capacity: int, max_rows: int) -> EpisodicState:
    """A state without rows."""
    pairs, table = jnp.zeros((capacity, 2), jnp.int32), jnp.zeros((max_rows, 4), jnp.int32)
    # One array each: an array that a state holds twice could not be donated
    return EpisodicState(*layout.zeros(capacity), pairs, table, *jnp.zeros(5, jnp.int32))


def lines_from(state: EpisodicState, number: jax.Array) -> jax.Array:
    """The lines of `table` of rows `number`, 0 the oldest: [..., 4] uint32."""
    line = around(state.oldest.astype(jnp.uint32) + number, state.table.shape[0])
    return take(state.table, line).astype(jnp.uint32)


def append(
    state: EpisodicState, layout: Layout, values: dict[str, Any], marks, valid, length, convention
) -> EpisodicState:
    """The state with one row more, of the first `length` steps of `values` [steps, ...].

    A row without a start, or whose marks are unsound, is not added, but counted.
    """
    capacity, max_rows, steps = state.pairs.shape[0], state.table.shape[0], marks.size
    length = jnp.clip(jnp.asarray(length, jnp.int32), 0, steps)
    ahead, sound = horizons(marks, length, convention, valid)
    is_start = ahead > 0
    starts = jnp.sum(is_start, dtype=jnp.int32)
    fine = sound & (starts > 0)

    size, end = length.astype(jnp.uint32), state.end.astype(jnp.uint32)
    rest = jnp.uint32(capacity) - end
    begin = jnp.where(rest < size, jnp.uint32(0), end)
    taken = size + jnp.where(rest < size, rest, jnp.uint32(0))
    # Rows are in the way from the oldest on: the arena is a circle, and begins behind the newest
    number = lax.iota(jnp.uint32, max_rows)
    ahead_of_end = around(lines_from(state, number)[:, 0] + jnp.uint32(capacity) - end, capacity)
    in_the_way = (number < state.rows.astype(jnp.uint32)) & (ahead_of_end < taken)
    dropped = jnp.sum(in_the_way, dtype=jnp.int32)
    dropped = jnp.maximum(dropped, state.rows + 1 - max_rows)
    dropped = jnp.where(fine, dropped, 0)

    step, nowhere = lax.iota(jnp.uint32, steps), jnp.uint32(capacity)
    places = jnp.where(fine & (step < size), begin + step, nowhere)
    packed, large = layout.write(state.packed, state.large, places, values, {"mode": "drop"})
    rank = jnp.cumsum(is_start, dtype=jnp.int32).astype(jnp.uint32) - 1
    first = state.starts_end.astype(jnp.uint32)
    listed = jnp.where(fine & is_start, around(first + rank, capacity), nowhere)
    pairs = jnp.stack([places.astype(jnp.int32), ahead], 1)
    pairs = state.pairs.at[listed].set(pairs, mode="drop")

    oldest = around((state.oldest + dropped).astype(jnp.uint32), max_rows)
    rows = state.rows - dropped
    line = around(oldest + rows.astype(jnp.uint32), max_rows)
    row = jnp.stack([begin, size, first, starts.astype(jnp.uint32)]).astype(jnp.int32)
    table = state.table.at[jnp.where(fine, line, max_rows)].set(row, mode="drop")
    after = around(first + starts.astype(jnp.uint32), capacity)
    return EpisodicState(
        packed, large, pairs, table,
        oldest.astype(jnp.int32),
        rows + fine,
        jnp.where(fine, (begin + size).astype(jnp.int32), state.end),
        jnp.where(fine, after.astype(jnp.int32), state.starts_end),
        state.refused + ~fine,
    )  # fmt: skip
