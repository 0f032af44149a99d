"""Next observations that are not stored twice: most are the next row's observation.

A row's next observation is kept aside until the next row of its stream arrives, and dropped then
if both are the same, byte for byte. What differs stays aside: final observations at ends, the
newest rows', and whatever else does not follow on. So nothing is assumed about ends or resets,
and what is drawn is exactly what was added. Imports `memory` and `rows`; Numba on first use.
Twin: `reference/replay.py`. Tests: `tests/replay/test_successors.py`.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from loopless.refusals import refuse
from loopless.replay.fields import Field
from loopless.replay.host.rows import PackedRows
from loopless.replay.storage import size as memory


@cache
def kernels() -> Any:
    """The compiled functions, imported when first needed."""
    from loopless.compiled import successors as numba_successors

    return numba_successors


def pair_fields(name: str, fields: Mapping[str, Field]) -> tuple[dict[str, str], list[str]]:
    """Which field's next row each field "next_…" is, and what is wrong with the pair."""
    pairs = {f"next_{path}": path for path, _field in fields.items() if path.split("/")[0] == name}
    following = {
        path: field for path, field in fields.items() if path.split("/")[0] == f"next_{name}"
    }
    problems = []
    if not pairs or following != {path: fields[own] for path, own in pairs.items()}:
        problems.append(
            f"single_copy={name!r} needs the fields {name} and next_{name}, alike in all"
        )
    return pairs, problems


class Successors:
    """The fields `pairs` names, as rows `envs` slots further on or as rows kept aside."""

    def __init__(self, rows: PackedRows, pairs: Mapping[str, str], envs: int) -> None:
        self.rows, self.pairs, self.envs = rows, pairs, envs
        self.place = np.full(rows.capacity, -1, np.int64)  # of each slot's row aside; −1: none
        self.free, self.left = np.empty(0, np.int64), 0  # places aside, the first `left` unused
        self.aside = {name: np.empty(0, np.uint8) for name, _ in pairs.items()}

    @property
    def nbytes(self) -> int:
        """Bytes allocated aside; `place` is declared to `rows`."""
        return sum(array.nbytes for array in self.aside.values()) + self.free.nbytes

    @property
    def kept(self) -> int:
        """How many rows are kept aside."""
        return self.free.size - self.left

    def state(self) -> dict[str, Any]:
        """What `restore` needs: arrays and ints."""
        aside = {f"aside/{name}": array.copy() for name, array in self.aside.items()}
        numbers = {"place": self.place.copy(), "free": self.free.copy(), "left": self.left}
        return numbers | aside

    def restore(self, where: str, state: dict[str, Any]) -> None:
        """Take over what `state` gave, out of a dict that holds more; it is removed there."""
        place, free, left = state.pop("place"), state.pop("free"), state.pop("left")
        aside = {name: state.pop(f"aside/{name}") for name, _ in self.pairs.items()}
        sound = (
            isinstance(left, int)
            and _is(place, self.place.size, np.int64)
            and _is(free, np.size(free), np.int64)
            and 0 <= left <= len(free)
            and all(_is(a, len(free) * self.rows.widths[n], np.uint8) for n, a in aside.items())
            and ((place >= -1) & (place < len(free))).all()
            and ((free[:left] >= 0) & (free[:left] < len(free))).all()
        )
        refuse(where, [] if sound else ["the next observations kept aside do not fit together"])
        self.place[:], self.free, self.left, self.aside = place, free, left, aside

    def link(self, first: int, count: int, older: int, arrays: Mapping[str, Any]) -> None:
        """Take over the last `count` rows of `arrays`, whose slots begin with `first`.

        Before them came `older` rows that will still be alive. If there is no memory for what
        must be kept aside, that is an error and nothing has changed.
        """
        kernel, same = kernels(), np.ones(count, np.bool_)
        nexts = {name: self._bytes(arrays[name], name, count) for name, _ in self.pairs.items()}
        for name, own in self.pairs.items():
            width, observations = self.rows.widths[name], self._bytes(arrays[own], own, count)
            args = (self.place, first, older, self.envs, nexts[name], observations)
            kernel.compare(same, self.aside[name], width, *args)
        wanted = kernel.unfollowed(same, self.envs)
        self._reserve(int(np.count_nonzero(wanted)))
        args = (same, wanted, self.place, self.free, self.left, first, self.envs)
        self.left = kernel.exchange(*args)
        for name, rows in nexts.items():
            kernel.put(self.aside[name], self.rows.widths[name], wanted, self.place, first, rows)

    def _bytes(self, array, name: str, count: int) -> np.ndarray:
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return flat[flat.size - count * self.rows.widths[name] :]

    def _reserve(self, count: int) -> None:
        """Have `count` places free."""
        if self.left >= count:
            return
        old = self.free.size
        more = max(count - self.left, old // 2, 16)
        widths = {name: self.rows.widths[name] for name, _ in self.aside.items()}
        needed, available = (old + more) * sum(widths.values()), memory.free_memory_bytes()
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
        """Gather the next observations of the rows at `indices` into `arrays`."""
        for name, own in self.pairs.items():
            width, flat = self.rows.widths[name], arrays[name].reshape(-1).view(np.uint8)
            source, stride, offset = self.rows.source(own)
            kernels().gather(
                flat,
                self.aside[name],
                width,
                self.place,
                self.envs,
                source,
                stride,
                offset,
                indices,
            )


def _is(array, size: int, dtype) -> bool:
    return isinstance(array, np.ndarray) and array.shape == (size,) and array.dtype == dtype
