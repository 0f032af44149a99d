"""What the rings of transitions share on the device: declaration, writing, n-step windows.

A handle says what is stored, and is static; a state is a pytree of arrays, and every call makes a
new one of the old: inside `jit` and `scan`, and by `Stored` from outside, in the same memory.
Imports JAX and the helpers of this folder. Twins: `replay/transitions.py`, in loops
`reference/replay.py`. Tests: `tests/replay/test_device_ring.py`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp

from loopless.refusals import check_count, refuse
from loopless.replay.device.layout import (
    Layout,
    check_fits,
    count_bytes,
    declare,
    fields_like,
    layout_of,
    steps_from,
)
from loopless.replay.device.values import read_values
from loopless.replay.device.windows import walk
from loopless.replay.device.words import around
from loopless.replay.fields import Field, unflatten
from loopless.replay.host.transitions import RESERVED
from loopless.replay.host.windows import LAST, window_problems
from loopless.replay.storage.size import readable_bytes

MOST = 2**31 - 1  # slots that an int32 can name


class RingState(NamedTuple):
    """Transitions in the order in which they came, around a ring."""

    packed: jax.Array  # uint32 [capacity, words]: the small fields
    large: dict[str, jax.Array]  # [capacity, ...] each
    head: jax.Array  # int32: the slot of the next row
    size: jax.Array  # int32: how many slots are filled


@dataclass(frozen=True, repr=False)
class Ring:
    """Fields, slots and writing of a ring of transitions; how they are drawn is a buffer's own."""

    capacity: int
    fields: Any
    n_step: int = 1
    gamma: float | None = None
    envs: int = 1

    def __post_init__(self) -> None:
        where = type(self).__name__
        fields, problems = declare(where, self.fields, RESERVED)
        problems += check_count("capacity", self.capacity, 1) + check_count(
            "n_step", self.n_step, 1
        )
        problems += check_count("envs", self.envs, 1)
        if not problems:
            problems += window_problems(dict(fields), self.n_step, self.gamma)
            if not self.envs <= self.capacity <= MOST:
                problems.append(f"capacity={self.capacity} is not from envs={self.envs} to 2³¹ − 1")
        refuse(where, problems + self._problems())
        gamma = None if self.gamma is None else float(self.gamma)
        object.__setattr__(self, "fields", fields)
        object.__setattr__(self, "gamma", gamma)
        object.__setattr__(self, "capacity", index(self.capacity))
        object.__setattr__(self, "n_step", index(self.n_step))
        object.__setattr__(self, "envs", index(self.envs))

    def _problems(self) -> list[str]:
        """What else is wrong."""
        return []

    @classmethod
    def like(cls, transition: Mapping[str, Any], capacity: int, **options) -> Self:
        """A buffer with the fields of an example: the shapes and dtypes that JAX sees in it."""
        return cls(capacity, fields_like(f"{cls.__name__}.like", transition), **options)

    @property
    def layout(self) -> Layout:
        """Where the fields are."""
        return layout_of(self.fields)

    @property
    def arrays(self) -> dict[str, Field]:
        """What is allocated for each slot."""
        return self.layout.arrays

    @property
    def nbytes(self) -> int:
        """Bytes of a state."""
        return count_bytes(self.capacity, self.arrays)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name} {field}" for name, field in self.layout.fields.items())
        return (
            f"{type(self).__name__}({self.capacity:,} transitions, "
            f"{readable_bytes(self.nbytes)}: {fields})"
        )

    def _empty(self) -> RingState:
        """An empty state; an error, before anything is allocated, if it does not fit."""
        check_fits(
            type(self).__name__, self.capacity, self.arrays, f"{self.capacity:,} transitions"
        )
        packed, large = self.layout.zeros(self.capacity)
        return RingState(packed, large, jnp.int32(0), jnp.int32(0))

    def can_sample(self, state: Any, batch_size: int = 1) -> jax.Array:
        """Whether there are as many transitions as a batch is to have."""
        return state.size >= batch_size

    def _gather(self, state: RingState, indices: Any) -> dict[str, Any]:
        """The transitions in slots `indices`, of any shape."""
        slots, layout, found = jnp.asarray(indices).astype(jnp.uint32), self.layout, {}
        names = list(layout.fields)
        if self.n_step > 1:
            last, total, discount = walk(
                lambda name, rows: layout.read_column(state.packed, rows, name),
                slots,
                state.head.astype(jnp.uint32),
                capacity=self.capacity,
                envs=self.envs,
                steps=self.n_step,
                gamma=self.gamma or 0.0,
            )
            ends = [name for name in names if name.split("/")[0] in LAST]
            found = layout.read(state.packed, state.large, last, ends)
            found |= {"reward": total, "discount": discount}
            names = [name for name in names if name not in found]
        found |= layout.read(state.packed, state.large, slots, names)
        return unflatten({"indices": slots.astype(jnp.int32), **found})

    def _append(self, state: RingState, transitions, valid) -> tuple[RingState, jax.Array]:
        """The state with the rows, and their slots; `capacity` for those left out."""
        where = f"{type(self).__name__}.add"
        values, leading = read_values(where, transitions, self.layout.fields, axes=2)
        problems, count = [], math.prod(leading)
        if count % self.envs or (len(leading) == 2 and leading[1] != self.envs):
            problems.append(
                f"rows have leading shape {leading}; with envs={self.envs} a call brings whole "
                f"steps, [envs, ...] or [steps, envs, ...]"
            )
        if valid is not None:
            if jnp.shape(valid) != leading or jnp.asarray(valid).dtype != jnp.bool_:
                problems.append(f"valid is no boolean array {leading}")
            if self.n_step > 1 and self.envs > 1:
                problems.append(
                    "valid would shift streams against each other, which n_step > 1 with envs > 1 "
                    "finds by their places"
                )
        refuse(where, problems)
        values = {name: v.reshape(count, *v.shape[len(leading) :]) for name, v in values.items()}
        capacity, head = self.capacity, state.head.astype(jnp.uint32)
        if valid is None:
            skipped = max(0, count - capacity)  # rows that the rest of the call overwrites
            values = {name: value[skipped:] for name, value in values.items()}
            first = around(head + jnp.uint32(skipped % capacity), capacity)
            slots = steps_from(first, count - skipped, capacity)
            moved, options = jnp.uint32(count), {"mode": "promise_in_bounds"}
            options |= {"unique_indices": True}
        else:
            kept = jnp.asarray(valid).reshape(count)
            place = jnp.cumsum(kept, dtype=jnp.int32) - 1
            moved = jnp.sum(kept, dtype=jnp.int32)
            kept = kept & (place >= moved - capacity)
            turns = place.astype(jnp.uint32) % jnp.uint32(capacity)
            slots = jnp.where(kept, around(head + turns, capacity), jnp.uint32(capacity))
            moved, options = moved.astype(jnp.uint32), {"mode": "drop"}
        packed, large = self.layout.write(state.packed, state.large, slots, values, options)
        head = around(head + moved % jnp.uint32(capacity), capacity)
        size = jnp.minimum(state.size.astype(jnp.uint32) + moved, jnp.uint32(capacity))
        return RingState(packed, large, head.astype(jnp.int32), size.astype(jnp.int32)), slots


def leading_shape(where: str, batch_size, batches, newest=0) -> tuple[int, ...]:
    """The shape of a draw."""
    problems = check_count("batch_size", batch_size, 1) + check_count("newest", newest, 0)
    problems += [] if batches is None else check_count("batches", batches, 1)
    if not problems and newest > batch_size:
        problems.append(f"newest={newest} is more than batch_size={batch_size}")
    refuse(f"{where}.sample", problems)
    return (batch_size,) if batches is None else (batches, batch_size)
