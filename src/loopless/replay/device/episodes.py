"""Rows of unequal length on the device: find segment ends, store rows, draw gaps.

This is the arena of the host's buffer as pure functions. Rows lie end to end in flat arrays, and
the oldest rows are dropped until a new one fits. A row never wraps around the end of the arrays: if
the space left there is too short, it stays unused for that lap. A separate ring lists the starts of
all rows, row after row, so that the starts of one row, and those of all rows, are contiguous. Host
twins: `host.episodic.episodes` (horizons), `host.episodic.arena` (storage), `compiled.episodic`
(gaps).
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from loopless.replay.device.layout import Layout, take
from loopless.replay.device.words import below, unit, wrap

FARTHEST = 2**31 - 256  # below 2³¹, and exact in float32


class EpisodicState(NamedTuple):
    """Steps, starts, and a ring of rows; integers are int32."""

    packed: jax.Array  # uint32 [capacity, words]: the small fields of each step
    large: dict[str, jax.Array]  # [capacity, ...] each
    pairs: jax.Array  # [capacity, 2]: a ring of starts, each with its horizon
    table: jax.Array  # [max_rows, 4]: offset, length, first start and count of starts of each row
    oldest: jax.Array  # the oldest row's line in `table`
    rows: jax.Array  # how many rows there are
    end: jax.Array  # where the newest row ends in the flat arrays
    starts_end: jax.Array  # where the newest row's starts end in `pairs`
    refused: jax.Array  # how many rows could not be added


def empty(layout: Layout, capacity: int, max_rows: int) -> EpisodicState:
    """Return a state without rows."""
    pairs, table = jnp.zeros((capacity, 2), jnp.int32), jnp.zeros((max_rows, 4), jnp.int32)
    # One array each: an array that a state holds twice could not be donated
    return EpisodicState(*layout.zeros(capacity), pairs, table, *jnp.zeros(5, jnp.int32))


def table_lines(state: EpisodicState, number: jax.Array) -> jax.Array:
    """Return the lines of `table` for the rows `number` (0 is the oldest): uint32 [..., 4]."""
    line = wrap(state.oldest.astype(jnp.uint32) + number, state.table.shape[0])
    return take(state.table, line).astype(jnp.uint32)


def append(
    state: EpisodicState, layout: Layout, values: dict[str, Any], marks, valid, length, convention
) -> EpisodicState:
    """Return the state with one more row: the first `length` steps of `values` [steps, ...].

    A row without a start, or with marks that are not sound (see `horizons`), is not added, but
    counted in `refused`.
    """
    capacity, max_rows, steps = state.pairs.shape[0], state.table.shape[0], marks.size
    length = jnp.clip(jnp.asarray(length, jnp.int32), 0, steps)
    ahead, sound = horizons(marks, length, convention, valid)
    is_start = ahead > 0
    starts = jnp.sum(is_start, dtype=jnp.int32)
    accepted = sound & (starts > 0)

    size, end = length.astype(jnp.uint32), state.end.astype(jnp.uint32)
    rest = jnp.uint32(capacity) - end
    begin = jnp.where(rest < size, jnp.uint32(0), end)
    taken = size + jnp.where(rest < size, rest, jnp.uint32(0))
    # The arena is a circle that begins after the newest row, so the oldest rows are in the way
    number = lax.iota(jnp.uint32, max_rows)
    beyond_end = wrap(table_lines(state, number)[:, 0] + jnp.uint32(capacity) - end, capacity)
    in_the_way = (number < state.rows.astype(jnp.uint32)) & (beyond_end < taken)
    dropped = jnp.sum(in_the_way, dtype=jnp.int32)
    dropped = jnp.maximum(dropped, state.rows + 1 - max_rows)
    dropped = jnp.where(accepted, dropped, 0)

    step, outside = lax.iota(jnp.uint32, steps), jnp.uint32(capacity)  # writes there are dropped
    places = jnp.where(accepted & (step < size), begin + step, outside)
    packed, large = layout.write(state.packed, state.large, places, values, {"mode": "drop"})
    rank = jnp.cumsum(is_start, dtype=jnp.int32).astype(jnp.uint32) - 1
    first = state.starts_end.astype(jnp.uint32)
    listed = jnp.where(accepted & is_start, wrap(first + rank, capacity), outside)
    pairs = jnp.stack([places.astype(jnp.int32), ahead], 1)
    pairs = state.pairs.at[listed].set(pairs, mode="drop")

    oldest = wrap((state.oldest + dropped).astype(jnp.uint32), max_rows)
    rows = state.rows - dropped
    line = wrap(oldest + rows.astype(jnp.uint32), max_rows)
    row = jnp.stack([begin, size, first, starts.astype(jnp.uint32)]).astype(jnp.int32)
    table = state.table.at[jnp.where(accepted, line, max_rows)].set(row, mode="drop")
    after = wrap(first + starts.astype(jnp.uint32), capacity)
    return EpisodicState(
        packed, large, pairs, table,
        oldest.astype(jnp.int32),
        rows + accepted,
        jnp.where(accepted, (begin + size).astype(jnp.int32), state.end),
        jnp.where(accepted, after.astype(jnp.int32), state.starts_end),
        state.refused + ~accepted,
    )  # fmt: skip


def horizons(
    marks: jax.Array, length: Any, convention: str, valid: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Return how many steps each step is before its segment's end, int32 [steps], 0 past `length`.

        n_t = end(t) − t,  end(t) the first segment end ≥ t

    Also return whether the marks are sound: with "double", a run of marks must have even
    length, unless the end of the row cuts it off. `marks` and `valid` are boolean [steps].
    """
    steps = lax.iota(jnp.int32, marks.size)
    inside, last = steps < length, steps == length - 1
    marks, sound = marks & inside, jnp.array(True)
    ends = last
    if convention == "single":
        ends = ends | marks
    elif convention == "double":
        before = lax.cummax(jnp.where(marks, -1, steps))  # the step just before a run of marks
        odd = (steps - before) % 2 == 1
        ends = ends | (marks & ~odd)
        goes_on = jnp.append(marks[1:], False) | last
        sound = ~jnp.any(marks & odd & ~goes_on)
    if valid is not None:
        ends = ends | ~valid | jnp.append(~valid[1:], False)
    ahead = lax.cummin(jnp.where(ends, steps, marks.size), reverse=True) - steps
    return jnp.where(inside, ahead, 0), sound


def draw_gaps(
    words: jax.Array, room: jax.Array, discount: Any, max_horizon: Any = None
) -> jax.Array:
    """Return gaps, uint32, drawn by words [2, *leading] up to the horizons n = `room` [*leading].

        P(gap) = (1−γ) γ^(gap−1) / (1−γⁿ),  gap 1 … n;  0 where n is 0

    `max_horizon` caps n. γ is `discount`: 0 gives the next step, 1 every later step with equal
    probability. A number is checked, and only its branch is compiled. A traced `discount` costs all
    three branches, and is not checked.
    """
    if max_horizon is not None:
        room = jnp.minimum(room, max_horizon)
    n = jnp.maximum(room, 1).astype(jnp.uint32)
    if isinstance(discount, int | float | np.number):
        if not 0 <= discount <= 1:
            raise ValueError(f"discount must be from 0 to 1; received {discount!r}.")
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
    """Return k = G mod n for a geometric G: exactly truncated to [0, n), as G is memoryless."""
    dtype = jnp.result_type(float)
    far = jnp.floor(jnp.log(unit(words, dtype)) / jnp.asarray(log_discount, dtype))
    if dtype == jnp.float64:
        return (far.astype(jnp.uint64) % n.astype(jnp.uint64)).astype(jnp.uint32)
    return jnp.minimum(far, FARTHEST).astype(jnp.uint32) % n
