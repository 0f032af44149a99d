"""How transitions are laid out in a host's memory: packed, and next observations only once.

`PackedRows`: the small fields of a transition stand side by side in one packed row of bytes, so
that drawing it touches one or two cache lines, and each field is a strided view of all rows; a
large field has an array of its own.

`Successors`: a next observation is kept aside until the next transition of its stream arrives, and
dropped then if both are the same, byte for byte. What differs stays aside: final observations at
ends, those of the newest transitions, and whatever else does not follow on. So nothing is assumed
about ends or resets, and what is drawn is exactly what was added.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from loopless import process
from loopless.refusals import refuse
from loopless.replay.casts import NUMPY
from loopless.replay.fields import Field, top_name
from loopless.replay.sampling import kernels
from loopless.replay.storage import memory
from loopless.replay.storage.memory import CACHE_LINE

LARGE = 256  # bytes from which a field has an array of its own


class PackedRows:
    """`capacity` rows of all `fields`. `owner` is the class that errors name."""

    def __init__(
        self,
        owner: str,
        capacity: int,
        fields: Mapping[str, Field],
        storage,
        *,
        beside: Mapping[str, Field],
        elsewhere: Collection[str] = (),
        unit: str = "transitions",
    ) -> None:
        """Allocate rows in `storage`.

        `beside` is what else the owner allocates for each row, which has to fit too. Fields
        `elsewhere` are drawn like the others but stored by the owner. Messages call rows `unit`.
        """
        self.owner, self.capacity, self.fields, self.storage = owner, capacity, fields, storage
        dtypes = {name: NUMPY.dtype(field.dtype) for name, field in fields.items()}
        self.widths = {
            name: math.prod(field.shape) * dtypes[name].itemsize for name, field in fields.items()
        }
        here = {name: field for name, field in fields.items() if name not in elsewhere}
        small = sorted(
            (name for name, _ in here.items() if self.widths[name] < LARGE),
            key=lambda name: -dtypes[name].itemsize,  # the widest first: then all are aligned
        )
        ends = np.cumsum([0, *(self.widths[name] for name in small)]).tolist()
        self.offsets = dict(zip(small, ends[:-1], strict=True))
        align = max([8, *(dtypes[name].itemsize for name in small)])
        self.stride = -(-ends[-1] // align) * align
        if self.stride % CACHE_LINE >= 3 * CACHE_LINE // 4:  # pad: then rows share no line
            self.stride += -self.stride % CACHE_LINE
        rows = here | {"padding": Field((self.stride - ends[-1],), "uint8")}
        self.nbytes = self._check_fits(rows, beside, unit)
        self.packed = storage.allocate("packed rows", capacity, self.stride)
        # Files are numbered, because a field's name may not be possible as a file's name
        number = dict(zip(fields, range(len(fields)), strict=True))
        self.large = {
            name: storage.allocate(f"field {number[name]}", capacity, self.widths[name])
            for name, _ in here.items()
            if self.widths[name] >= LARGE
        }
        self.views = {name: self._view(name, f.shape, dtypes[name]) for name, f in here.items()}

    def _check_fits(self, rows: dict[str, Field], beside: Mapping[str, Field], unit: str) -> int:
        """Return the bytes of `rows` and of what is `beside`; raise if they do not fit."""
        owner, capacity, storage = self.owner, self.capacity, self.storage
        extent, advice = f"{capacity:,} {unit}", "Use a smaller capacity or smaller dtypes"
        nbytes = 0
        if storage.in_files:
            args = (owner, f"{extent}{storage.place}", capacity, rows, NUMPY, f"{advice}.")
            nbytes = memory.check_bytes_fit(*args, storage=storage)
            rows, advice = {}, f"{advice}; these bytes are in memory, not in files"
        else:
            images = ", single_copy if observations are images" if unit == "transitions" else ""
            advice += f'{images}, or storage="memmap"'
        args = (owner, extent, capacity, {**rows, **beside}, NUMPY, f"{advice}.")
        return nbytes + memory.check_bytes_fit(*args)

    def _view(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return the array [capacity, *shape] of a field."""
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
        """Return the bytes that hold a field, the stride of its rows, and the first offset."""
        if name in self.large:
            return self.large[name], self.widths[name], 0
        return self.packed, self.stride, self.offsets[name]

    def announce(self, first: int, count: int) -> None:
        """Tell the storage that `count` rows from `first` on, across the seam, will be written."""
        if self.storage.in_files:
            remaining = min(count, self.capacity)
            first = (first + count - remaining) % self.capacity
            before = min(remaining, self.capacity - first)
            self.storage.before_write(first, before)
            self.storage.before_write(0, remaining - before)

    def write(self, head: int, count: int | None, arrays: Mapping[str, Any]) -> None:
        """Write one row at `head`, or `count` rows from there on and across the ring's seam."""
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


def pair_fields(name: str, fields: Mapping[str, Field]) -> tuple[dict[str, str], list[str]]:
    """Return for each field "next_…" the field whose next value it is, and what is wrong."""
    pairs = {f"next_{path}": path for path, _ in fields.items() if top_name(path) == name}
    following = {path: f for path, f in fields.items() if top_name(path) == f"next_{name}"}
    if pairs and following == {path: fields[current] for path, current in pairs.items()}:
        return pairs, []
    return pairs, [
        f"single_copy={name!r} needs the fields {name} and next_{name}, of equal shapes and dtypes"
    ]


class Successors:
    """Next observations, by `pairs` of (next, current): `envs` slots further on, or kept aside."""

    def __init__(self, rows: PackedRows, pairs: Mapping[str, str], envs: int) -> None:
        self.rows, self.pairs, self.envs = rows, pairs, envs
        self.place = np.full(rows.capacity, -1, np.int64)  # each slot's place aside; −1: none
        self.free, self.left = np.empty(0, np.int64), 0  # places aside, the first `left` unused
        self.aside = {name: np.empty(0, np.uint8) for name, _ in pairs.items()}

    @property
    def nbytes(self) -> int:
        """Return the bytes allocated aside, without `place`, which `rows` counts."""
        return sum(array.nbytes for array in self.aside.values()) + self.free.nbytes

    @property
    def count(self) -> int:
        """Return how many next observations are aside."""
        return self.free.size - self.left

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs: arrays and ints."""
        aside = {f"aside/{name}": array.copy() for name, array in self.aside.items()}
        return {"place": self.place.copy(), "free": self.free.copy(), "left": self.left} | aside

    def restore(self, where: str, state: dict[str, Any]) -> None:
        """Take over what `state` returned, and remove it from a dict that holds more."""
        place, free, left = state.pop("place"), state.pop("free"), state.pop("left")
        aside = {name: state.pop(f"aside/{name}") for name, _ in self.pairs.items()}
        sound = (
            isinstance(left, int)
            and _is_vector(place, self.place.size, np.int64)
            and _is_vector(free, np.size(free), np.int64)
            and 0 <= left <= len(free)
            and all(
                _is_vector(array, len(free) * self.rows.widths[name], np.uint8)
                for name, array in aside.items()
            )
            and ((place >= -1) & (place < len(free))).all()
            and ((free[:left] >= 0) & (free[:left] < len(free))).all()
        )
        refuse(where, [] if sound else ["the next observations kept aside do not fit together"])
        self.place[:], self.free, self.left, self.aside = place, free, left, aside

    def link(self, first: int, count: int, older: int, arrays: Mapping[str, Any]) -> None:
        """Take over the last `count` transitions of `arrays`, whose slots begin with `first`.

        `older` is how many transitions from before stay stored. If there is no memory for what
        must be kept aside, an error is raised and nothing has changed.
        """
        kernel, same = kernels().successors, np.ones(count, np.bool_)
        nexts = {name: self._bytes(arrays[name], name, count) for name, _ in self.pairs.items()}
        for name, current in self.pairs.items():
            width = self.rows.widths[name]
            observations = self._bytes(arrays[current], current, count)
            args = (self.place, first, older, self.envs, nexts[name], observations)
            kernel.compare(same, self.aside[name], width, *args)
        needed = kernel.unfollowed(same, self.envs)
        self._reserve(int(np.count_nonzero(needed)))
        args = (same, needed, self.place, self.free, self.left, first, self.envs)
        self.left = kernel.exchange(*args)
        for name, rows in nexts.items():
            kernel.put(self.aside[name], self.rows.widths[name], needed, self.place, first, rows)

    def _bytes(self, array, name: str, count: int) -> np.ndarray:
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return flat[flat.size - count * self.rows.widths[name] :]

    def _reserve(self, count: int) -> None:
        """Make sure that `count` places are free."""
        if self.left >= count:
            return
        old = self.free.size
        more = max(count - self.left, old // 2, 16)
        widths = {name: self.rows.widths[name] for name, _ in self.aside.items()}
        needed, available = (old + more) * sum(widths.values()), process.free_memory_bytes()
        if available is not None and needed > available:
            raise ValueError(
                f"{self.rows.owner}: {old + more:,} next observations kept aside need "
                f"{memory.readable_bytes(needed)}; {memory.readable_bytes(available)} is free. "
                f"The buffer is unchanged. Use a smaller capacity."
            )
        for name, width in widths.items():
            grown = np.zeros((old + more) * width, np.uint8)
            grown[: old * width] = self.aside[name]
            self.aside[name] = grown
        free = np.empty(old + more, np.int64)
        free[: self.left] = self.free[: self.left]
        free[self.left : self.left + more] = np.arange(old, old + more)
        self.free, self.left = free, self.left + more

    def gather(self, arrays: Mapping[str, np.ndarray], indices: np.ndarray) -> None:
        """Copy the next observations of the transitions at `indices` into `arrays`."""
        for name, current in self.pairs.items():
            width, flat = self.rows.widths[name], arrays[name].reshape(-1).view(np.uint8)
            args = (flat, self.aside[name], width, self.place, self.envs)
            kernels().successors.gather(*args, *self.rows.source(current), indices)


def _is_vector(array, size: int, dtype) -> bool:
    return isinstance(array, np.ndarray) and array.shape == (size,) and array.dtype == dtype
