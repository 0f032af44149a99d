"""What the ring buffers share: declaration, writing, results, n-step windows, state, files.

Transitions stand in the order in which they came, around a ring; how they are drawn is the
buffers' own matter. Imports the helpers of this folder; Numba on the first draw. Twin:
`reference/replay.py`. Tests: `tests/replay/test_ring.py`, through the buffers.
"""

from collections.abc import Mapping
from functools import cache
from operator import index
from typing import Any, Self

import numpy as np

from loopless.refusals import check_count, check_names, refuse
from loopless.replay.casts import convert_all
from loopless.replay.fields import Field, flatten, parse_fields, unflatten
from loopless.replay.host.outputs import as_library, check_library
from loopless.replay.host.rollout.stores import NumPyStore
from loopless.replay.host.rows import PackedRows, Plan, leading_shape
from loopless.replay.host.successors import Successors, pair_fields
from loopless.replay.host.windows import LAST, window_problems
from loopless.replay.storage import saved
from loopless.replay.storage.kept import Kept
from loopless.replay.storage.memory import storage_of
from loopless.replay.storage.size import readable_bytes

RESERVED = {"indices", "weights", "discount"}  # what buffers add to the fields that are drawn
NOTHING: frozenset[str] = frozenset()


@cache
def kernels() -> Any:
    """The compiled functions; importing Numba takes longer than most programs' whole run."""
    from loopless.compiled import ring as numba_ring

    return numba_ring


class Ring(Kept):
    """Fields, rows, head and generator of a ring of transitions."""

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
        beside=None,
    ) -> None:
        """`beside` maps the checked capacity to what else is allocated for each row."""
        where, store = type(self).__name__, NumPyStore()
        parsed, problems = parse_fields(where, fields, store, RESERVED)
        pairs: dict[str, str] = {}
        problems += check_count("capacity", capacity, 1) + check_count("seed", seed, 0)
        problems += check_count("n_step", n_step, 1) + check_count("envs", envs, 1)
        if not parsed and not problems:
            problems.append("fields is empty")
        if not problems:
            problems += window_problems(parsed, n_step, gamma)
            pairs, wrong = pair_fields(single_copy, parsed) if single_copy else (pairs, [])
            problems += wrong
            if not envs <= capacity < 2**32:
                problems.append(f"capacity={capacity} is not from envs={envs} to 2³² − 1")
        refuse(where, problems)
        self._store, self._fields = store, parsed
        self._n_step, self._gamma, self._envs = index(n_step), gamma, index(envs)
        beside = {} if beside is None else beside(index(capacity))
        if pairs:
            beside["places"] = Field((), "int64")
        self._storage = storage_of(where, storage, path)
        rows = PackedRows(
            where,
            index(capacity),
            parsed,
            store,
            storage=self._storage,
            beside=beside,
            elsewhere=pairs,
        )
        self._rows, self._single_copy = rows, single_copy
        self._successors = Successors(rows, pairs, self._envs) if pairs else None
        self._head = self._size = 0
        key = np.random.SeedSequence(index(seed)).generate_state(1, np.uint64)[0]
        self._random = np.array([key, 0], np.uint64)  # generator: its key, draws made so far
        self._plans: dict[tuple[int, int | None], Plan] = {}
        self._nested = any("/" in name for name in parsed)
        self._own: dict[str, np.dtype] = {}
        self._last = self._summed = NOTHING
        if self._n_step > 1:
            self._own["discount"] = self._rows.views["reward"].dtype
            self._last = frozenset(name for name in parsed if name.split("/")[0] in LAST)
            self._summed = frozenset({"reward"})

    @classmethod
    def like(cls, transition: Mapping[str, Any], capacity: int, **options) -> Self:
        """A buffer with the fields of an example: the shapes and dtypes that NumPy sees in it."""
        flat = flatten(f"{cls.__name__}.like", transition)
        arrays = {name: np.asarray(value) for name, value in flat.items()}
        fields = {name: (array.shape, array.dtype) for name, array in arrays.items()}
        return cls(capacity, unflatten(fields), **options)

    @property
    def capacity(self) -> int:
        """How many transitions fit; from then on each new one replaces the oldest."""
        return self._rows.capacity

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return self._rows.nbytes + (self._successors.nbytes if self._successors else 0)

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        fields = ", ".join(f"{name} {field}" for name, field in self._fields.items())
        return (
            f"{type(self).__name__}({self._size:,} of {self.capacity:,} transitions, "
            f"{readable_bytes(self.nbytes)}{self._storage.place}: {fields})"
        )

    def _append(self, given: Mapping[str, Any]) -> tuple[int, int]:
        """Write one transition, or [n, ...] of them; the first slot and n."""
        where = f"{type(self).__name__}.add"
        flat = flatten(where, given) if self._nested else given
        problems, leading = check_names(flat, self._fields), leading_shape(flat, self._fields)
        if self._envs > 1 and leading != (self._envs,):
            problems.append(
                f"rows have leading shape {leading}; with envs={self._envs} every call brings "
                f"[{self._envs}, ...]"
            )
        known = {name: value for name, value in flat.items() if name in self._fields}
        arrays = convert_all(
            where,
            known,
            self._fields,
            leading,
            self._store,
            problems=problems,
            note=saved.UNCHANGED,
        )
        count = leading[0] if leading else 1
        first = self._head
        self._rows.announce(first, count)
        if self._successors and count:
            kept = min(count, self.capacity)
            older = min(self._size, self.capacity - kept)
            self._successors.link((first + count - kept) % self.capacity, kept, older, arrays)
        self._rows.write(first, leading[0] if leading else None, arrays)
        self._head = (first + count) % self.capacity
        self._size = min(self.capacity, self._size + count)
        return first, count

    def _plan(self, where: str, batch_size, batches) -> Plan:
        """The plan for draws of this shape; an error if they cannot be made."""
        if type(batch_size) is not int or (batches is not None and type(batches) is not int):
            problems = check_count("batch_size", batch_size, 1)
            refuse(where, problems, [] if batches is None else check_count("batches", batches))
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
            problems = check_count("batch_size", batch_size, 1)
            refuse(where, problems, [] if batches is None else check_count("batches", batches))
            leading = (batch_size,) if batches is None else (batches, batch_size)
            plan = self._rows.plan(leading, self._own, follow_last=self._last, summed=self._summed)
            if len(self._plans) >= 64:  # a caller with ever new shapes
                self._plans.clear()
            self._plans[batch_size, batches] = plan
        return plan

    def _arrays(
        self, where: str, plan: Plan, out, library: str
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """What results are written into: a new block and its views, large fields in `out`."""
        if library != "numpy":
            check_library(where, library, out)
        block = np.empty(plan.nbytes, np.uint8)
        arrays = {
            name: np.ndarray(shape, dtype, block, place)
            for name, (shape, dtype, place) in plan.places.items()
        }
        if out is not None:
            nested = self._nested and isinstance(out, Mapping)
            flat = flatten(where, out) if nested else out
            self._rows.check_out(where, plan, flat)
            arrays |= {name: flat[name] for name in self._rows.large}
        return block, arrays

    def _gather(self, plan: Plan, block: np.ndarray, arrays: dict[str, Any]) -> None:
        """Fill `arrays` from the rows that arrays["indices"] names."""
        rows, count = self._rows, plan.count
        indices = last = arrays["indices"].reshape(-1)
        if self._n_step > 1:
            views = rows.views
            last = block[8 * count : 16 * count].view(np.int64)
            kernels().walk(
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
        kernels().gather_all(block, count, rows.packed, rows.stride, plan.table)
        rows.gather_large(arrays, indices, last, self._last)
        if self._successors:
            self._successors.gather(arrays, last)

    def _result(self, where: str, arrays: dict[str, Any], out, library: str) -> Any:
        """`arrays` nested like the fields, in the caller's arrays if there are any."""
        if out is None:
            if library != "numpy":
                arrays = as_library(library, arrays)
            return unflatten(arrays) if self._nested else arrays
        flat = flatten(where, out) if self._nested else out
        for name, array in flat.items():
            if name not in self._rows.large:
                array[...] = arrays[name]
        return out

    def state(self) -> dict[str, Any]:
        """Copies of all that `restore` needs to go on as if nothing had happened: arrays, ints."""
        views = self._rows.views
        data = {name: view[: self._size].copy() for name, view in views.items()}
        if self._successors:
            for name, own in self._successors.pairs.items():
                data[name] = np.empty_like(data[own])
            self._successors.gather(data, np.arange(self._size))
        return {f"data/{name}": array for name, array in data.items()} | self._numbers()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a `state()` of a buffer of the same shape; on an error nothing changes."""
        where = f"{type(self).__name__}.restore"
        own, same = self._numbers(), ("capacity", "envs")
        read = saved.read_numbers(where, state, own, self._fields, same=same)
        refuse(where, self._inconsistent(read), note=saved.UNCHANGED)
        arrays = saved.read_fields(where, state, self._fields, (read["size"],), self._store)
        size, oldest = read["size"], read["head"] if read["size"] == self.capacity else 0
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
        self._take_over(read)

    def _beside(self) -> dict[str, Any]:
        return self._numbers() | (self._successors.state() if self._successors else {})

    def _used(self) -> int:
        return self._size

    def _reopen(self, where: str, state: dict[str, Any]) -> None:
        if self._successors:
            self._successors.restore(where, state)
        read = saved.read_numbers(where, state, self._numbers(), (), same=("capacity", "envs"))
        refuse(where, self._inconsistent(read))
        self._take_over(read)

    def _forget(self) -> None:
        self._head = self._size = 0

    def _settings(self) -> dict[str, Any]:
        """What the constructor takes, but for the seed."""
        fields = {name: (field.shape, field.dtype) for name, field in self._fields.items()}
        return {
            "capacity": self.capacity,
            "fields": unflatten(fields),
            "n_step": self._n_step,
            "gamma": None if self._gamma is None else float(self._gamma),
            "envs": self._envs,
            "single_copy": self._single_copy,
        }

    def _numbers(self) -> dict[str, Any]:
        """All that is saved beside the rows."""
        return {
            "capacity": self.capacity,
            "envs": self._envs,
            "head": self._head,
            "size": self._size,
            "random": self._random.copy(),
        }

    def _inconsistent(self, read: Mapping[str, Any]) -> list[str]:
        """What cannot be in numbers of the right types and shapes."""
        head, size = read["head"], read["size"]
        if head < self.capacity and size <= self.capacity and (size in (head, self.capacity)):
            return []
        return [f"head {head} and size {size} do not fit a ring of {self.capacity}"]

    def _take_over(self, read: Mapping[str, Any]) -> None:
        self._head, self._size, self._random = read["head"], read["size"], read["random"]
