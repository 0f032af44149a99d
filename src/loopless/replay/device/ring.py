"""A ring of transitions on the device: `RingBuffer`, and `Stored`, which holds a buffer's state.

A handle, such as a `RingBuffer`, says what is stored, and is static. A state is a pytree of arrays.
Every call that adds returns a new state, which takes over the memory of the old one inside `jit`
and `scan`, and outside of them with `Stored`.
Host twin: `host.ring`. Loop twin: `reference.replay`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import index
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax import lax

from loopless.refusals import check_count, refuse
from loopless.replay.device.layout import (
    JAX,
    Layout,
    check_fits,
    declare,
    fields_like,
    layout_of,
    read_values,
    steps_from,
)
from loopless.replay.device.words import below, check_words, random_words, wrap
from loopless.replay.fields import Field, top_name, unflatten
from loopless.replay.sampling import LAST, RESERVED, check_counts, check_windows
from loopless.replay.storage.memory import count_bytes, readable_bytes

MOST = 2**31 - 1  # slots that an int32 can name


class RingState(NamedTuple):
    """Transitions in the order in which they came, around a ring."""

    packed: jax.Array  # uint32 [capacity, words]: the small fields
    large: dict[str, jax.Array]  # [capacity, ...] each
    head: jax.Array  # int32: the slot of the next transition
    size: jax.Array  # int32: how many slots are filled


@dataclass(frozen=True, repr=False)
class Ring:
    """What ring buffers share: fields, slots and writing; how to draw is up to each of them."""

    capacity: int
    fields: Any
    n_step: int = 1
    gamma: float | None = None
    envs: int = 1

    def __post_init__(self) -> None:
        where = type(self).__name__
        fields, problems = declare(where, self.fields, RESERVED)
        problems += check_count("capacity", self.capacity, 1)
        problems += check_count("n_step", self.n_step, 1) + check_count("envs", self.envs, 1)
        if not problems:
            problems += check_windows(dict(fields), self.n_step, self.gamma)
            if not self.envs <= self.capacity <= MOST:
                problems.append(
                    f"capacity must be from envs={self.envs} to 2³¹ − 1; received {self.capacity}"
                )
        refuse(where, problems, self._problems())
        values = {"fields": fields, "gamma": None if self.gamma is None else float(self.gamma)}
        values |= {"capacity": index(self.capacity), "n_step": index(self.n_step)}
        values["envs"] = index(self.envs)
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _problems(self) -> list[str]:
        """Return what else is wrong with the arguments, in a subclass."""
        return []

    @classmethod
    def like(cls, transition: Mapping[str, Any], capacity: int, **options) -> Self:
        """Return a buffer with the fields of an example: the shapes and dtypes JAX sees in it."""
        return cls(capacity, fields_like(f"{cls.__name__}.like", transition), **options)

    @property
    def layout(self) -> Layout:
        """Return where each field is stored."""
        return layout_of(self.fields)

    @property
    def arrays(self) -> dict[str, Field]:
        """Return what is allocated for each slot."""
        return self.layout.arrays

    @property
    def nbytes(self) -> int:
        """Return the bytes of a state."""
        return count_bytes(self.capacity, self.arrays, JAX)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name} {field}" for name, field in self.layout.fields.items())
        return (
            f"{type(self).__name__}({self.capacity:,} transitions, "
            f"{readable_bytes(self.nbytes)}: {fields})"
        )

    def _empty(self) -> RingState:
        """Return an empty state; raise, before anything is allocated, if it does not fit."""
        check_fits(
            type(self).__name__, self.capacity, self.arrays, f"{self.capacity:,} transitions"
        )
        packed, large = self.layout.zeros(self.capacity)
        return RingState(packed, large, jnp.int32(0), jnp.int32(0))

    def can_sample(self, state: Any, batch_size: int = 1) -> jax.Array:
        """Return whether there are at least `batch_size` transitions."""
        return state.size >= batch_size

    def _gather(self, state: RingState, indices: Any, gamma: Any = None) -> dict[str, Any]:
        """Return the transitions in slots `indices`, of any shape; gamma: instead of the ring's."""
        slots, layout, values = jnp.asarray(indices).astype(jnp.uint32), self.layout, {}
        names = list(layout.fields)
        if self.n_step > 1:
            last, total, discount = walk(
                lambda name, rows: layout.read_column(state.packed, rows, name),
                slots,
                state.head.astype(jnp.uint32),
                capacity=self.capacity,
                envs=self.envs,
                steps=self.n_step,
                gamma=(self.gamma or 0.0) if gamma is None else gamma,
            )
            ends = [name for name in names if top_name(name) in LAST]
            values = layout.read(state.packed, state.large, last, ends)
            values |= {"reward": total, "discount": discount}
            names = [name for name in names if name not in values]
        values |= layout.read(state.packed, state.large, slots, names)
        return unflatten({"indices": slots.astype(jnp.int32), **values})

    def _append(self, state: RingState, transitions, valid) -> tuple[RingState, jax.Array]:
        """Return the state with `transitions` added, and their slots (`capacity` if left out)."""
        where = f"{type(self).__name__}.add"
        values, leading = read_values(where, transitions, self.layout.fields, axes=2)
        problems, count = [], math.prod(leading)
        if count % self.envs or (len(leading) == 2 and leading[1] != self.envs):
            problems.append(
                f"the transitions have leading shape {leading}; with envs={self.envs} a call "
                f"brings whole steps, [envs, ...] or [steps, envs, ...]"
            )
        if valid is not None:
            if jnp.shape(valid) != leading or jnp.asarray(valid).dtype != jnp.bool_:
                problems.append(f"valid must be a boolean array {leading}")
            if self.n_step > 1 and self.envs > 1:
                problems.append(
                    "valid would shift streams against each other, which n_step > 1 with envs > 1 "
                    "finds by their places"
                )
        refuse(where, problems)
        values = {name: v.reshape(count, *v.shape[len(leading) :]) for name, v in values.items()}
        capacity, head = self.capacity, state.head.astype(jnp.uint32)
        if valid is None:
            skipped = max(0, count - capacity)  # what the rest of the call overwrites
            values = {name: value[skipped:] for name, value in values.items()}
            first = wrap(head + jnp.uint32(skipped % capacity), capacity)
            slots = steps_from(first, count - skipped, capacity)
            moved, options = jnp.uint32(count), {"mode": "promise_in_bounds"}
            options |= {"unique_indices": True}
        else:
            stored = jnp.asarray(valid).reshape(count)
            place = jnp.cumsum(stored, dtype=jnp.int32) - 1
            moved = jnp.sum(stored, dtype=jnp.int32)
            stored = stored & (place >= moved - capacity)
            turns = place.astype(jnp.uint32) % jnp.uint32(capacity)
            slots = jnp.where(stored, wrap(head + turns, capacity), jnp.uint32(capacity))
            moved, options = moved.astype(jnp.uint32), {"mode": "drop"}
        packed, large = self.layout.write(state.packed, state.large, slots, values, options)
        head = wrap(head + moved % jnp.uint32(capacity), capacity)
        size = jnp.minimum(state.size.astype(jnp.uint32) + moved, jnp.uint32(capacity))
        return RingState(packed, large, head.astype(jnp.int32), size.astype(jnp.int32)), slots


@dataclass(frozen=True, repr=False)
class RingBuffer(Ring):
    """A ring of transitions, drawn uniformly and with replacement, for use in a compiled graph.

        buffer = RingBuffer(100_000, {"obs": ((4,), np.float32), "action": ((), np.int32)})
        state = buffer.init()
        state = buffer.add(state, {"obs": obs, "action": action})
        batch = buffer.sample(state, key, 256)      # {"obs": [256, 4], "action": [256], "indices"}

    The handle is hashable: close over it, or pass it as a static argument. Add before you sample:
    XLA copies a ring that is first read, and then written by an operation that does not depend on
    what was read.
    `fields`, `n_step`, `gamma` and `envs` mean what they mean to `loopless.replay.ReplayBuffer`.
    """

    def init(self) -> RingState:
        """Return an empty state; raise, before anything is allocated, if it does not fit."""
        return self._empty()

    def add(self, state: RingState, transitions: Mapping[str, Any], valid: Any = None) -> RingState:
        """Return the state after adding one transition, or [n, ...] or [steps, envs, ...] of them.

        They replace the oldest. Those whose `valid` (boolean, of the leading shape) is false are
        left out, and take no slot. If there are more transitions than slots, the last ones stay.
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
        gamma: Any = None,
    ) -> dict[str, Any]:
        """Return a dict of arrays [batch_size, ...], or [batches, batch_size, ...].

        "indices" are the slots. The last `newest` entries of each batch are the newest transitions,
        the newest last. `gamma`, which may be traced, is used instead of the buffer's. Compiled
        code cannot raise: an empty ring returns slot 0, which holds zeros. Wait until `state.size`
        is large enough.
        """
        where = f"{type(self).__name__}.sample"
        leading = check_counts(where, batch_size, batches, newest=newest)
        if newest > batch_size:
            refuse(where, [f"newest={newest} is more than batch_size={batch_size}"])
        return self.sample_from(state, random_words(key, leading), newest=newest, gamma=gamma)

    def sample_from(
        self, state: RingState, words: jax.Array, *, newest: int = 0, gamma: Any = None
    ) -> dict[str, Any]:
        """Return what `sample` does, with random words [2, *leading] that the caller has made."""
        check_words("RingBuffer.sample_from", words, 2)
        # Once the oldest of a full ring are dropped (see `FrameBuffer`), they begin after the head
        rest = jnp.uint32(self.capacity) - state.size.astype(jnp.uint32)
        oldest = wrap(state.head.astype(jnp.uint32) + rest, self.capacity)
        oldest = jnp.where(rest == 0, jnp.uint32(0), oldest)
        slots = wrap(oldest + below(words, state.size), self.capacity)
        if newest:
            ages = lax.iota(jnp.int32, newest)[::-1] + 1
            ages = jnp.minimum(ages, jnp.maximum(state.size, 1)).astype(jnp.uint32)
            head = state.head.astype(jnp.uint32)
            latest = wrap(head + jnp.uint32(self.capacity) - ages, self.capacity)
            slots = slots.at[..., -newest:].set(latest)
        return self.gather(state, slots, gamma)

    def drop(self, state: RingState, slots: jax.Array, lost: jax.Array) -> RingState:
        """Return the state without the oldest transitions, those of `slots` that are `lost`."""
        return state._replace(size=state.size - jnp.sum(lost, dtype=jnp.int32))

    def gather(self, state: RingState, indices: Any, gamma: Any = None) -> dict[str, Any]:
        """Return the transitions in slots `indices`, of any shape, as `sample` does."""
        return self._gather(state, indices, gamma)


def walk(
    column: Callable[[str, jax.Array], jax.Array],
    slots: jax.Array,
    head: jax.Array,
    *,
    capacity: int,
    envs: int,
    steps: int,
    gamma: Any,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the last slot, R = Σ_{k<h} γ^k r_k and γ^h of the window that begins at each slot.

    A window has up to `steps` transitions, and ends with one that terminated or was truncated, or
    with the newest of its stream. Consecutive transitions of a stream are `envs` slots apart;
    `column(name, slots)` reads a field. Host twin: `compiled.ring.walk`.
    """

    def step(_, carry: Any) -> Any:
        row, newer, total, discount, going = carry
        ended = column("terminated", row) | column("truncated", row)
        going = going & ~ended & (newer >= envs)
        row = jnp.where(going, wrap(row + jnp.uint32(envs), capacity), row)
        newer = jnp.where(going, newer - jnp.uint32(envs), newer)
        total = jnp.where(going, total + discount * column("reward", row), total)
        discount = jnp.where(going, discount * gamma, discount)
        return row, newer, total, discount, going

    newer = wrap(head + jnp.uint32(capacity - 1) - slots, capacity)  # how many came after each
    rewards = column("reward", slots)
    discounts = jnp.full_like(rewards, gamma)
    carry = (slots, newer, rewards, discounts, jnp.ones_like(slots, bool))
    last, _, total, discount, _ = lax.fori_loop(1, steps, step, carry)
    return last, total, discount


class Stored:
    """A device buffer of any kind together with its state, for a program that runs on the host.

    Every call that changes the state donates the old one, so that adding to a buffer of any size
    writes the new rows and copies nothing.

        memory = Stored(RingBuffer(100_000, fields))
        memory.add({"obs": obs, ...})                     # compiled once for each shape
        batch = memory.sample(key, 256)
        memory.state = train_chunk(memory.state, ...)     # which may donate it in turn

    The methods are those of the buffer's handle, without the state. `sample` compiles once for
    each shape and each value of its options; only beta and gamma may change freely.
    """

    def __init__(self, buffer: Any, state: Any = None) -> None:
        self.buffer = buffer
        self.state = buffer.init() if state is None else state
        self._enough = 0  # a batch size that was possible; it stays so, as no buffer shrinks

    def __repr__(self) -> str:
        return f"Stored({self.buffer!r})"

    def add(self, *rows: Any, **options: Any) -> None:
        """Call the buffer's `add`; on an error nothing is added."""
        self.state = _change("add", self.buffer, self.state, rows, options)

    def update_priorities(self, indices: Any, priorities: Any, **options: Any) -> None:
        """Call the buffer's `update_priorities`; on an error nothing changes."""
        pair = (indices, priorities)
        self.state = _change("update_priorities", self.buffer, self.state, pair, options)

    def sample(self, key: Any, batch_size: int, batches: int | None = None, **options: Any) -> Any:
        """Return what the buffer's `sample` returns; raise while it holds too little."""
        traced = {"beta": options.pop("beta")} if "beta" in options else {}
        traced |= {"gamma": options.pop("gamma")} if "gamma" in options else {}
        static = (("batch_size", batch_size), ("batches", batches), *sorted(options.items()))
        if isinstance(batch_size, int) and batch_size > self._enough:
            if not self.buffer.can_sample(self.state, batch_size):
                raise RuntimeError(
                    f"{type(self.buffer).__name__}.sample: the buffer holds too little for "
                    f"batch_size={batch_size:,}. Add more first, or draw smaller batches."
                )
            self._enough = batch_size
        return _draw(self.buffer, static, self.state, key, traced)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _change(method: str, buffer: Any, state: Any, arguments: Any, options: Any) -> Any:
    return getattr(buffer, method)(state, *arguments, **options)


@partial(jax.jit, static_argnums=(0, 1))
def _draw(buffer: Any, static: Any, state: Any, key: Any, traced: Any) -> Any:
    return buffer.sample(state, key, **dict(static), **traced)
