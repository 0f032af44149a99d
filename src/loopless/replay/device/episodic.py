"""The episodic buffer on the device, which draws a state and a later one of the same segment.

Host twin: `host.episodic`. Loop twin: `reference.episodic`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from loopless.refusals import check_choice, check_count, refuse
from loopless.replay.device.episodes import EpisodicState, append, draw_gaps, empty, table_lines
from loopless.replay.device.layout import (
    JAX,
    Layout,
    check_fits,
    declare,
    layout_of,
    read_values,
    take,
)
from loopless.replay.device.ring import MOST
from loopless.replay.device.words import below, check_words, random_words, wrap
from loopless.replay.fields import Field, declaration, top_name, unflatten
from loopless.replay.host.episodic.buffer import LAWS, RESERVED, EpisodicReplayBuffer
from loopless.replay.host.episodic.episodes import CONVENTIONS
from loopless.replay.sampling import check_counts
from loopless.replay.storage.memory import count_bytes, readable_bytes


@dataclass(frozen=True, repr=False)
class EpisodicBuffer:
    """Rows of unequal length, `capacity` steps in all; the oldest rows make room for new ones.

        buffer = EpisodicBuffer(1_000_000, {"obs": ((2,), np.float32)}, terminals="double")
        state = buffer.add(buffer.init(), {"obs": obs}, terminals=marks, length=length)
        batch = buffer.sample(state, key, 256, discount=0.9)   # obs, next_obs, gap, indices
        buffer, state = EpisodicBuffer.from_host(filled)       # of an EpisodicReplayBuffer

    `terminals`, `law` and the draws are those of `loopless.replay.EpisodicReplayBuffer`. There
    are at most `max_rows` rows (0: as many as could fit), and adding one costs
    O(steps + max_rows). Pass the state to compiled functions as an argument; a state that a
    function closes over becomes a constant of its program.
    """

    capacity: int
    fields: Any
    terminals: str = "double"
    law: str = "episode"
    max_rows: int = 0

    def __post_init__(self) -> None:
        where = "EpisodicBuffer"
        fields, problems = declare(where, self.fields, RESERVED)
        problems += check_count("capacity", self.capacity, 2)
        problems += check_choice("terminals", self.terminals, CONVENTIONS)
        problems += check_choice("law", self.law, LAWS)
        problems += check_count("max_rows", self.max_rows, 0)
        if not any(top_name(name) == "obs" for name, _ in fields):
            problems.append('fields has no "obs"')
        if not problems and self.capacity > MOST:
            problems.append(f"capacity must be from 2 to 2³¹ − 1; received {self.capacity}")
        refuse(where, problems)
        capacity = index(self.capacity)
        could_fit = capacity // 2
        rows = min(index(self.max_rows) or could_fit, could_fit)
        values = {"fields": fields, "capacity": capacity, "max_rows": rows}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def layout(self) -> Layout:
        """Return where each field is stored."""
        return layout_of(self.fields)

    @property
    def nbytes(self) -> int:
        """Return the bytes of a state."""
        return sum(count_bytes(count, arrays, JAX) for count, arrays in self._arrays().values())

    def _arrays(self) -> dict[str, tuple[int, dict[str, Field]]]:
        """Return how many steps and rows there are, and what is allocated for each."""
        starts, rows = Field((2,), "int32"), Field((4,), "int32")
        return {
            "steps": (self.capacity, {**self.layout.arrays, "starts": starts}),
            "rows": (self.max_rows, {"rows": rows}),
        }

    def __repr__(self) -> str:
        fields = ", ".join(f"{name} {field}" for name, field in self.layout.fields.items())
        return (
            f"EpisodicBuffer({self.capacity:,} steps in up to {self.max_rows:,} rows, "
            f"{readable_bytes(self.nbytes)}: {fields})"
        )

    def init(self) -> EpisodicState:
        """Return an empty state; raise, before anything is allocated, if it does not fit."""
        self._check_fits()
        return empty(self.layout, self.capacity, self.max_rows)

    def _check_fits(self) -> None:
        for unit, (count, arrays) in self._arrays().items():
            check_fits("EpisodicBuffer", count, arrays, f"{count:,} {unit}")

    @classmethod
    def from_host(
        cls, host: EpisodicReplayBuffer, *, max_rows: int = 0
    ) -> tuple[Self, EpisodicState]:
        """Return a buffer and a state that holds the same rows as `host`, at the same flat indices.

        `host` must have no weights of rows or steps. There is room for `max_rows` rows (0: as many
        as could fit), and at least for those of `host`.
        """
        arena, queue = host._arena, host._arena.queue
        problems = ["rows or steps have weights, which device buffers do not know"] * arena.weighted
        refuse("EpisodicBuffer.from_host", problems)
        room = max(max_rows, queue.rows) if max_rows else 0
        fields = declaration(arena.fields)
        buffer = cls(host.capacity, fields, host.terminals, host.law, room)
        buffer._check_fits()
        table = np.zeros((buffer.max_rows, 4), np.int32)
        before = queue.starts_before
        table[: queue.rows] = np.stack(
            [queue.offsets, queue.lengths, before[:-1] % host.capacity, np.diff(before)], 1
        )
        end = queue.offsets[-1] + queue.lengths[-1] if queue.rows else 0
        return buffer, EpisodicState(
            *buffer.layout.filled({name: host[name] for name, _ in arena.fields.items()}),
            pairs=jnp.array(arena.pairs),
            table=jnp.array(table),
            oldest=jnp.int32(0),
            rows=jnp.int32(queue.rows),
            end=jnp.int32(end),
            starts_end=jnp.int32(before[-1] % host.capacity),
            refused=jnp.int32(0),
        )

    def add(
        self,
        state: EpisodicState,
        row: Mapping[str, Any],
        *,
        terminals: Any = None,
        length: Any = None,
        valid: Any = None,
    ) -> EpisodicState:
        """Return the state after adding a row, [steps, ...] of each field, or [rows, steps, ...].

        Only the first `length` steps of a row count (by default all); the rest is padding. A step
        is marked where `terminals` is not 0. Where `valid` is false the step is never drawn, and
        cuts its segment in two. Compiled code cannot raise: a row with no two steps of one segment,
        or with "double" marks that do not come in pairs, is left out and counted in
        `state.refused`.
        """
        where = "EpisodicBuffer.add"
        values, leading = read_values(where, row, self.layout.fields, axes=2)
        problems = []
        if not leading:
            problems.append("the arrays must be [steps, ...] or [rows, steps, ...]")
        elif leading[-1] > self.capacity:
            problems.append(
                f"rows of {leading[-1]:,} steps do not fit a capacity of {self.capacity:,}"
            )
        if terminals is None and self.terminals != "none":
            problems.append(f'terminals is missing, which "{self.terminals}" needs')
        marks = _flags("terminals", terminals, leading, False, problems)
        valid = _flags("valid", valid, leading, True, problems)
        length = jnp.full(leading[:-1], leading[-1] if leading else 0) if length is None else length
        length = jnp.asarray(length)
        if length.shape != leading[:-1] or not jnp.issubdtype(length.dtype, jnp.integer):
            problems.append(f"length must be an integer array {leading[:-1]}")
        refuse(where, problems)

        def step(state: EpisodicState, row: Any) -> tuple[EpisodicState, None]:
            values, marks, valid, length = row
            return append(state, self.layout, values, marks, valid, length, self.terminals), None

        if len(leading) == 1:
            return step(state, (values, marks, valid, length))[0]
        return lax.scan(step, state, (values, marks, valid, length))[0]

    def can_sample(self, state: EpisodicState, batch_size: int = 1) -> jax.Array:
        """Return whether there is a row; a batch may be of any size."""
        return state.rows >= 1

    def sample(
        self,
        state: EpisodicState,
        key: Any,
        batch_size: int,
        batches: int | None = None,
        *,
        discount: Any,
        max_horizon: Any = None,
    ) -> dict[str, Any]:
        """Return states "obs", and "next_obs" that come "gap" steps later, by the buffer's law.

        Arrays are [batch_size, ...], or [batches, batch_size, ...]. "indices" are flat indices of
        the starts, at which the other fields are read too. `max_horizon` caps the gap; it and
        `discount` may be traced. Compiled code cannot raise: an empty buffer returns step 0, which
        holds zeros, with gap 0.
        """
        words = self._draw_words(key, batch_size, batches)
        return self.sample_from(state, words, discount=discount, max_horizon=max_horizon)

    def sample_goals(
        self, state: EpisodicState, key: Any, batch_size: int, batches: int | None = None, **options
    ) -> dict[str, Any]:
        """Return steps with a "goal" in hindsight: a later "obs" of the same segment.

        The draws and the options are those of `sample`; "next_obs" is called "goal".
        """
        words = self._draw_words(key, batch_size, batches)
        return self.sample_from(state, words, later="goal", **options)

    def _draw_words(self, key: Any, batch_size: int, batches: int | None) -> jax.Array:
        leading = check_counts("EpisodicBuffer.sample", batch_size, batches)
        return random_words(key, (3, *leading))

    def sample_from(
        self,
        state: EpisodicState,
        words: jax.Array,
        *,
        discount: Any,
        max_horizon: Any = None,
        later: str = "next_obs",
    ) -> dict[str, Any]:
        """Return what `sample` does, drawn by words [2, 3, *leading]: for row, start and gap."""
        check_words("EpisodicBuffer.sample_from", words, 3)
        starts, room = self.locate(state, words)
        gap = draw_gaps(words[:, 2], room, discount, max_horizon)
        layout, names = self.layout, list(self.layout.fields)
        here = layout.read(state.packed, state.large, starts, names)
        ahead = [name for name in names if top_name(name) == "obs"]
        there = layout.read(state.packed, state.large, starts + gap, ahead)
        there = {f"{later}{name.removeprefix('obs')}": value for name, value in there.items()}
        drawn = {"indices": starts.astype(jnp.int32), "gap": gap.astype(jnp.int32)}
        return unflatten({**drawn, **here, **there})

    def sample_starts(
        self, state: EpisodicState, key: Any, batch_size: int, batches: int | None = None
    ) -> dict[str, Any]:
        """Return the fields at starts, and "indices": what `sample` draws, without later states."""
        words = self._draw_words(key, batch_size, batches)
        starts, _ = self.locate(state, words)
        here = self.layout.read(state.packed, state.large, starts, list(self.layout.fields))
        return unflatten({"indices": starts.astype(jnp.int32), **here})

    def locate(self, state: EpisodicState, words: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return flat indices of starts, drawn by words [2, 3, *leading], and their horizons."""
        if self.law == "episode":
            number = below(words[:, 0], state.rows)
            line = table_lines(state, number)
            first, count = line[..., 2], line[..., 3]
        else:
            first = table_lines(state, jnp.uint32(0))[2]
            end = state.starts_end.astype(jnp.uint32) + jnp.uint32(self.capacity)
            count = wrap(end - first, self.capacity)  # < capacity, as no row ends with a start
        place = wrap(first + below(words[:, 1], count), self.capacity)
        pair = take(state.pairs, place)
        return pair[..., 0].astype(jnp.uint32), pair[..., 1]


def _flags(name: str, values: Any, leading: tuple[int, ...], default: bool, problems: list) -> Any:
    """Return `values` != 0, or `default`, in shape `leading`; a last axis of 1 is dropped."""
    if values is None:
        return jnp.full(leading, default)
    array = jnp.asarray(values)
    if array.shape == (*leading, 1):
        array = array.reshape(leading)
    if array.shape != leading:
        problems.append(f"{name} has shape {array.shape}, expected {leading}")
    return array != 0
