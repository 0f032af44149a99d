"""Transitions in memory: how a ring's rows lie there, how they are written and gathered.

The small fields of a transition stand side by side in one packed row of bytes, so that drawing it
touches one or two cache lines, and each field is a strided view of all rows; a large field has an
array of its own. What is drawn comes out in one block of bytes, of which each result is a
contiguous view. Imports `fields`, `memory` and `refusals`; Numba on the first draw. Tests:
`tests/replay/test_ring.py`.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopless.refusals import check_names, refuse
from loopless.replay.fields import Field
from loopless.replay.storage import size as memory
from loopless.replay.storage.memory import Memory

LARGE = 256  # bytes from which a field has an array of its own
LINE = 64  # bytes in a cache line


@dataclass(frozen=True)
class Plan:
    """What draws of one shape look like: computed once, then looked up."""

    leading: tuple[int, ...]
    count: int  # rows
    nbytes: int
    places: dict[str, tuple[tuple[int, ...], np.dtype, int]]  # shape, dtype, place in the block
    table: np.ndarray  # the small fields, as `numba_ring.gather_all` reads them


class PackedRows:
    """`capacity` rows of all `fields`. `owner` is whom errors speak of."""

    def __init__(
        self,
        owner: str,
        capacity: int,
        fields: Mapping[str, Field],
        store,
        *,
        storage: Any = None,
        beside: Mapping[str, Field],
        elsewhere: Collection[str] = (),
        unit: str = "transitions",
    ) -> None:
        """Rows lie in `storage`, memory if left out; `beside` is what else the owner keeps.

        Fields `elsewhere` are drawn with the others but kept by others. A row is called a `unit`.
        """
        self.owner, self.capacity, self.fields = owner, capacity, fields
        self.storage = storage = storage or Memory()
        dtypes = {name: store.dtype(field.dtype) for name, field in fields.items()}
        self.widths = {
            name: math.prod(field.shape) * dtypes[name].itemsize for name, field in fields.items()
        }
        small = sorted(
            (n for n, width in self.widths.items() if width < LARGE and n not in elsewhere),
            key=lambda name: -dtypes[name].itemsize,  # the widest first: then all are aligned
        )
        ends = np.cumsum([0, *(self.widths[name] for name in small)]).tolist()
        self.offsets = dict(zip(small, ends[:-1], strict=True))
        align = max([8, *(dtypes[name].itemsize for name in small)])
        self.stride = -(-ends[-1] // align) * align
        if self.stride % LINE >= 3 * LINE // 4:  # then a row never straddles two lines
            self.stride += -self.stride % LINE
        padding = {"padding": Field((self.stride - ends[-1],), "uint8")}
        rows = {name: field for name, field in fields.items() if name not in elsewhere} | padding
        extent, advice = f"{capacity:,} {unit}", "Use a smaller capacity or smaller dtypes"
        if storage.watched:
            args = (owner, f"{extent}{storage.place}", capacity, rows, store, f"{advice}.")
            self.nbytes = memory.bytes_that_fit(*args, place=storage)
            rows, advice = {}, f"{advice}; this is what files do not hold"
        else:
            self.nbytes = 0
            images = ", single_copy if observations are images" if unit == "transitions" else ""
            advice += f'{images}, or storage="memmap"'
        args = (owner, extent, capacity, {**rows, **beside}, store, f"{advice}.")
        self.nbytes += memory.bytes_that_fit(*args)
        self.packed = storage.allocate("packed rows", capacity, self.stride)
        number = dict(zip(fields, range(len(fields)), strict=True))  # a name may be none for a file
        self.large = {
            name: storage.allocate(f"field {number[name]}", capacity, width)
            for name, width in self.widths.items()
            if width >= LARGE and name not in elsewhere
        }
        self.views = {
            name: self._view(name, field.shape, dtypes[name])
            for name, field in fields.items()
            if name not in elsewhere
        }

    def _view(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        if name in self.large:
            return self.large[name].view(dtype).reshape(self.capacity, *shape)
        inner = np.empty(shape, dtype).strides
        return np.ndarray(
            (self.capacity, *shape),
            dtype,
            self.packed if self.packed.size else np.empty(1, np.uint8),  # fields of no bytes
            self.offsets[name],
            (self.stride, *inner),
        )

    def source(self, name: str) -> tuple[np.ndarray, int, int]:
        """The bytes that hold a field, how far rows are apart there, and where the first is."""
        if name in self.large:
            return self.large[name], self.widths[name], 0
        return self.packed, self.stride, self.offsets[name]

    def announce(self, first: int, count: int) -> None:
        """`count` rows from `first` on, around the ring's seam, are about to be overwritten."""
        if self.storage.watched:
            kept = min(count, self.capacity)
            first = (first + count - kept) % self.capacity
            before = min(kept, self.capacity - first)
            self.storage.before_write(first, before)
            self.storage.before_write(0, kept - before)

    def write(self, head: int, count: int | None, arrays: Mapping[str, Any]) -> None:
        """Write one row at `head`, or `count` rows from there on and around the ring's seam."""
        if count is None:
            for name, view in self.views.items():
                view[head] = arrays[name]
            return
        skipped = max(0, count - self.capacity)  # rows that the rest of the call overwrites
        first = (head + skipped) % self.capacity
        before = min(count - skipped, self.capacity - first)
        after = count - skipped - before
        for name, view in self.views.items():
            array = arrays[name]
            view[first : first + before] = array[skipped : skipped + before]
            if after:
                view[:after] = array[skipped + before :]

    def plan(
        self,
        leading: tuple[int, ...],
        own: Mapping[str, np.dtype],
        *,
        follow_last: Collection[str] = (),
        summed: Collection[str] = (),
    ) -> Plan:
        """Where the results of draws [*leading] stand in one block of bytes.

        First the indices, then, if any field follows them, the indices of the last rows of
        windows; then what the buffer adds of its `own`, and the fields. Those `summed` are
        written by others.
        """
        count, places = math.prod(leading), {}
        end = 8 * count * (2 if follow_last else 1)
        places["indices"] = (leading, np.dtype(np.int64), 0)
        for name, dtype in own.items():
            end += -end % LINE
            places[name] = (leading, dtype, end)
            end += count * dtype.itemsize
        table = []
        for name, field in self.fields.items():
            end += -end % LINE
            places[name] = ((*leading, *field.shape), np.dtype(field.dtype), end)
            if name in self.offsets and name not in summed:
                which = int(name in follow_last)
                table.append((self.offsets[name], self.widths[name], end, which))
            end += count * self.widths[name]
        return Plan(leading, count, end, places, np.array(table, np.int64).reshape(-1, 4))

    def check_out(self, where: str, plan: Plan, out: Mapping[str, Any]) -> None:
        """Refuse what the results cannot be written into."""
        if not isinstance(out, Mapping):
            raise TypeError(f"{where}: out is a dict of arrays like the result; received {out!r}.")
        problems = check_names(out, plan.places)
        for name, (shape, dtype, _place) in plan.places.items():
            array = out.get(name)
            if array is None:
                continue
            if array.__class__ is not np.ndarray:
                problems.append(f"out[{name!r}] is no NumPy array")
            elif array.shape != shape or array.dtype != dtype:
                problems.append(
                    f"out[{name!r}] is {array.shape} {array.dtype}, expected {shape} {dtype}"
                )
            elif not array.flags.carray:
                problems.append(f"out[{name!r}] is not contiguous, aligned and writeable")
        refuse(where, problems)

    def gather_large(
        self, arrays: Mapping[str, np.ndarray], indices, last, follow_last: Collection[str]
    ) -> None:
        """Gather the large fields into `arrays`."""
        if self.large:
            from loopless.compiled.ring import gather

            for name, source in self.large.items():
                rows, width = last if name in follow_last else indices, self.widths[name]
                flat = arrays[name].reshape(-1).view(np.uint8)
                gather(flat, 0, source, width, 0, width, rows)


def leading_shape(flat: Mapping[str, Any], fields: Mapping[str, Field]) -> tuple[int, ...]:
    """(n,) if the first field that is given has an axis more than declared, else ()."""
    name = next((name for name in fields if name in flat), None)
    if name is None:
        return ()
    try:
        shape = np.shape(flat[name])
    except ValueError:  # ragged, which the conversion will say
        return ()
    return shape[:1] if len(shape) == len(fields[name].shape) + 1 else ()
