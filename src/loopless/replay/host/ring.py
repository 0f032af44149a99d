"""A ring of transitions on the host: what the buffers of `uniform` and `prioritized` share.

Transitions lie around a ring in the order in which they came. Their layout in memory is in
`packed`, what a draw returns in `replay.sampling`, and the kernels that draw and walk along n-step
windows in `compiled.ring`. Loop twin: `reference.replay`. Device twin: `device.ring`.
"""

from collections.abc import Callable, Mapping
from operator import index
from typing import Any, Self

import numpy as np

from loopless.refusals import check_choice, check_count, check_names, refuse
from loopless.replay.casts import NUMPY, convert_all, leading_shape
from loopless.replay.fields import Field, declaration, flatten, parse_fields, top_name, unflatten
from loopless.replay.host.packed import PackedRows, Successors, pair_fields
from loopless.replay.host.packer import Packer
from loopless.replay.locks import give_lock, locked
from loopless.replay.sampling import (
    LAST,
    MOST_PLANS,
    RESERVED,
    Plan,
    check_counts,
    check_windows,
    kernels,
    new_generator,
    plan_draws,
)
from loopless.replay.storage.file import UNCHANGED, read_fields, read_numbers
from loopless.replay.storage.memory import choose_storage, readable_bytes

MOST = 2**32 - 1  # transitions, so that a random index needs one multiplication


class Ring:
    """What ring buffers share: fields, writing, state; how to draw is up to each of them."""

    def __init__(
        self,
        capacity,
        fields,
        *,
        seed,
        n_step,
        gamma,
        envs,
        single_copy,
        storage,
        path,
        beside: Callable[[int], dict[str, Field]] | None = None,
    ) -> None:
        """Allocate; `beside(capacity)` returns what else is allocated for each transition."""
        where = type(self).__name__
        parsed, problems = parse_fields(where, fields, NUMPY, RESERVED)
        pairs: dict[str, str] = {}
        problems += check_count("capacity", capacity, 1) + check_count("seed", seed, 0)
        problems += check_count("n_step", n_step, 1) + check_count("envs", envs, 1)
        if not parsed and not problems:
            problems.append("fields is empty")
        if not problems:
            problems += check_windows(parsed, n_step, gamma)
            if single_copy:
                pairs, of_pairs = pair_fields(single_copy, parsed)
                problems += of_pairs
            if not envs <= capacity <= MOST:
                problems.append(
                    f"capacity must be from envs={envs} to {MOST:,}; received {capacity:,}"
                )
        refuse(where, problems)
        self._fields = parsed
        self._n_step, self._gamma, self._envs = index(n_step), gamma, index(envs)
        extra = {} if beside is None else beside(index(capacity))
        if pairs:
            extra["places"] = Field((), "int64")
        self._storage = choose_storage(where, storage, path)
        self._rows = PackedRows(
            where, index(capacity), parsed, self._storage, beside=extra, elsewhere=pairs
        )
        self._single_copy = single_copy
        self._successors = Successors(self._rows, pairs, self._envs) if pairs else None
        self._head = self._size = self._added = self._sampled = 0
        give_lock(self)
        self._random = new_generator(seed)
        self._plans: dict[tuple[int, int | None], Plan] = {}
        self._nested = any("/" in name for name in parsed)
        plain = not (pairs or self._nested or self._envs > 1)
        self._packer = Packer.of(self._rows) if plain else None
        self._extra: dict[str, np.dtype] = {}  # what a draw adds to the fields
        if self._n_step > 1:
            self._extra["discount"] = self._rows.views["reward"].dtype

    @classmethod
    def like(cls, transition: Mapping[str, Any], capacity: int, **options) -> Self:
        """Return a buffer with the fields of an example: the shapes and dtypes NumPy sees in it."""
        flat = flatten(f"{cls.__name__}.like", transition)
        arrays = {name: np.asarray(value) for name, value in flat.items()}
        fields = {name: (array.shape, array.dtype) for name, array in arrays.items()}
        return cls(capacity, unflatten(fields), **options)

    @property
    def capacity(self) -> int:
        """Return how many transitions fit; after that each new one replaces the oldest."""
        return self._rows.capacity

    @property
    def nbytes(self) -> int:
        """Return the bytes allocated."""
        return self._rows.nbytes + (self._successors.nbytes if self._successors else 0)

    def __len__(self) -> int:
        return self._size

    @property
    def head(self) -> int:
        """Return the slot that the next transition is written to."""
        return self._head

    @property
    def added(self) -> int:
        """Return how many transitions were added so far, those that were replaced included."""
        return self._added

    def __repr__(self) -> str:
        fields = ", ".join(f"{name} {field}" for name, field in self._fields.items())
        return (
            f"{type(self).__name__}({self._size:,} of {self.capacity:,} transitions, "
            f"{readable_bytes(self.nbytes)}{self._storage.place}: {fields})"
        )

    def _append(self, values: Mapping[str, Any]) -> tuple[int, int]:
        """Write one transition, or [n, ...] of them; return the first slot and n."""
        packer, first = self._packer, self._head
        if packer is not None and (row := packer.pack(values)) is not None:
            packer.write(first, row)
            self._head = (first + 1) % self.capacity
            self._size = min(self.capacity, self._size + 1)
            self._added += 1
            return first, 1
        where = f"{type(self).__name__}.add"
        flat = flatten(where, values) if self._nested else values
        problems, leading = check_names(flat, self._fields), leading_shape(flat, self._fields)
        if self._envs > 1 and leading != (self._envs,):
            problems.append(
                f"the transitions have leading shape {leading}; with envs={self._envs} every call "
                f"brings [{self._envs}, ...]"
            )
        known = {name: value for name, value in flat.items() if name in self._fields}
        arrays = convert_all(
            where, known, self._fields, leading, NUMPY, problems=problems, note=UNCHANGED
        )
        count = leading[0] if leading else 1
        self._rows.announce(first, count)
        if self._successors and count:
            stay = min(count, self.capacity)
            older = min(self._size, self.capacity - stay)
            self._successors.link((first + count - stay) % self.capacity, stay, older, arrays)
        self._rows.write(first, leading[0] if leading else None, arrays)
        self._head = (first + count) % self.capacity
        self._size = min(self.capacity, self._size + count)
        self._added += count
        return first, count

    def _count_newest(self, where: str, newest, batch_size: int) -> int:
        """Return how many of the newest transitions each batch of a draw ends with."""
        if newest.__class__ is not int:
            if newest.__class__ is str:
                refuse(where, check_choice("newest", newest, ("since_last_sample",)))
                return min(self._added - self._sampled, batch_size)
            refuse(where, check_count("newest", newest, 0))
        if not 0 <= newest <= batch_size:
            raise ValueError(
                f"{where}: newest must be from 0 to batch_size={batch_size}; received {newest}."
            )
        return int(newest)

    def _plan(self, where: str, batch_size, batches) -> Plan:
        """Return the plan for draws of this shape; raise if they cannot be made."""
        if type(batch_size) is not int or (batches is not None and type(batches) is not int):
            check_counts(where, batch_size, batches)
            batch_size, batches = index(batch_size), None if batches is None else index(batches)
        if self._size < batch_size:
            if self._storage.closed:
                raise RuntimeError(f"{where}: the buffer was closed. Open it again.")
            raise RuntimeError(
                f"{where}: the buffer holds {self._size:,} transitions, fewer than "
                f"batch_size={batch_size:,}. Add more first, or draw smaller batches."
            )
        plan = self._plans.get((batch_size, batches))
        if plan is None:
            leading, windows = check_counts(where, batch_size, batches), self._n_step > 1
            at_last = {name: windows and top_name(name) in LAST for name, _ in self._fields.items()}
            plan = plan_draws(
                self._rows,
                leading,
                indices={"indices": 0},
                index_arrays=2 if windows else 1,  # the second: last transitions of windows
                extra=self._extra,
                read={name: (name, int(last)) for name, last in at_last.items()},
                computed={"reward"} if windows else (),
            )
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
            self._plans[batch_size, batches] = plan
        return plan

    def _gather(self, plan: Plan, block: np.ndarray, arrays: dict[str, Any]) -> None:
        """Fill `arrays` from the transitions that arrays["indices"] names."""
        rows, count = self._rows, plan.count
        indices = last = arrays["indices"].reshape(-1)
        if self._n_step > 1:
            views = rows.views
            last = block[8 * count : 16 * count].view(np.int64)
            kernels().ring.walk(
                indices,
                last,
                arrays["reward"].reshape(-1),
                arrays["discount"].reshape(-1),
                views["reward"],
                views["terminated"],
                views["truncated"],
                self._head,
                self._envs,
                self._n_step,
                float(self._gamma),
            )
        kernels().ring.gather_all(block, count, rows.packed, rows.stride, plan.table)
        plan.gather_large(rows, block, arrays)
        if self._successors:
            self._successors.gather(arrays, last)

    @locked
    def state(self) -> dict[str, Any]:
        """Return copies of all that `restore` needs to go on from here: arrays and ints."""
        data = {name: view[: self._size].copy() for name, view in self._rows.views.items()}
        if self._successors:
            for name, current in self._successors.pairs.items():
                data[name] = np.empty_like(data[current])
            self._successors.gather(data, np.arange(self._size))
        return {f"data/{name}": array for name, array in data.items()} | self._numbers()

    @locked
    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a `state()` of equal capacity, envs and fields; on an error nothing changes."""
        where = f"{type(self).__name__}.restore"
        numbers = self._read_numbers(where, state, self._fields)
        size = numbers["size"]
        arrays = read_fields(where, state, self._fields, (size,), NUMPY)
        oldest = numbers["head"] if size == self.capacity else 0
        self._rows.announce(0, self.capacity)
        if self._successors:
            fresh = Successors(self._rows, self._successors.pairs, self._envs)
            by_age = {
                name: np.roll(array, -oldest, 0)
                for name, array in arrays.items()
                if name in {*fresh.pairs, *fresh.pairs.values()}
            }
            fresh.link(oldest, size, 0, by_age)
            self._successors = fresh
        self._rows.write(0, size, arrays)
        self._take_over(numbers)

    def _unmapped(self) -> dict[str, Any]:
        return self._numbers() | (self._successors.state() if self._successors else {})

    def _used(self) -> int:
        return self._size

    def _reopen(self, where: str, state: dict[str, Any]) -> None:
        if self._successors:
            self._successors.restore(where, state)
        self._take_over(self._read_numbers(where, state, ()))

    def _forget(self) -> None:
        self._head = self._size = self._added = self._sampled = 0

    def _settings(self) -> dict[str, Any]:
        return {
            "capacity": self.capacity,
            "fields": declaration(self._fields),
            "n_step": self._n_step,
            "gamma": None if self._gamma is None else float(self._gamma),
            "envs": self._envs,
            "single_copy": self._single_copy,
        }

    def _numbers(self) -> dict[str, Any]:
        """Return all that is saved beside the transitions."""
        return {
            "capacity": self.capacity,
            "envs": self._envs,
            "head": self._head,
            "size": self._size,
            "added": self._added,
            "sampled": self._sampled,
            "random": self._random.copy(),
        }

    def _read_numbers(self, where: str, state: Mapping[str, Any], fields) -> dict[str, Any]:
        """Return the numbers of a state that also has `fields`, checked."""
        same = ("capacity", "envs")
        if "added" not in state and {"head", "size"} <= state.keys():  # not counted before
            full = state["size"] == self.capacity
            added = state["head"] + self.capacity if full else state["size"]
            state = {**state, "added": added, "sampled": added}
        numbers = read_numbers(where, state, self._numbers(), fields, same=same)
        refuse(where, self._inconsistent(numbers), note=UNCHANGED)
        return numbers

    def _inconsistent(self, numbers: Mapping[str, Any]) -> list[str]:
        """Return problems with `numbers` whose types and shapes are right."""
        head, size = numbers["head"], numbers["size"]
        if not (head < self.capacity and size <= self.capacity and size in (head, self.capacity)):
            return [f"head {head} and size {size} do not fit a ring of {self.capacity}"]
        added = numbers["added"]
        if not size <= added >= numbers["sampled"] or added % self.capacity != head:
            return [f"added {added} does not fit head {head}, size {size} and what was sampled"]
        return []

    def _take_over(self, numbers: Mapping[str, Any]) -> None:
        self._head, self._size = numbers["head"], numbers["size"]
        self._added, self._sampled = numbers["added"], numbers["sampled"]
        self._random = numbers["random"]
