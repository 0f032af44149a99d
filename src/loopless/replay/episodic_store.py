"""The memory of the episodic buffer: rows in flat arrays, and the index of where draws may start.

Nothing is padded. A ring beside the data lists the starts with their horizons, row after row, in
the order in which rows come and go, so that dropping a row is moving a number. Imports `fields`,
`memory`, `refusals`, `row_queue` and `saved`. Tests: `tests/replay/test_episodic.py`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from loopless.replay.episodic_rows import Rows
from loopless.replay.fields import Field
from loopless.replay.memory import bytes_that_fit
from loopless.replay.refusals import refuse
from loopless.replay.row_queue import RowQueue
from loopless.replay.saved import UNCHANGED, read_fields, read_numbers
from loopless.replay.stores import NumPyStore


class EpisodicStore:
    """All arrays of a buffer, allocated together, and its generator."""

    def __init__(self, owner: str, capacity: int, fields: Mapping[str, Field], seed: int) -> None:
        self.owner, self.capacity, self.fields = owner, capacity, fields
        index = {"index": Field((2,), "int32")}
        advice = "Use a smaller capacity, or smaller dtypes."
        extent = f"{capacity:,} steps"
        self._bytes = bytes_that_fit(
            owner, extent, capacity, {**fields, **index}, NumPyStore(), advice
        )
        self.data = {
            name: np.zeros((capacity, *field.shape), field.dtype) for name, field in fields.items()
        }
        self.pairs = np.zeros((capacity, 2), np.int32)  # a ring of (flat index, horizon)
        self.queue = RowQueue(capacity)
        self.generator = np.array([seed, 0], np.uint64)  # key and counter
        self.weighted = False
        self.changes = 0  # of rows or weights

    @property
    def nbytes(self) -> int:
        return self._bytes + self.queue.nbytes

    def write(self, rows: Rows) -> None:
        """Store checked `rows` side by side; the oldest rows make room."""
        steps = int(rows.lengths.sum())
        begin, in_the_way = self.queue.place(steps)
        self.queue.drop(in_the_way)
        offset = begin % self.capacity
        for name, array in rows.arrays.items():
            self.data[name][offset : offset + steps] = array
        self._enter(begin, offset, rows.lengths, rows.horizons, rows.starts)

    def weigh(self, weights: np.ndarray | None) -> None:
        """Weigh each row from now on; None: all alike."""
        self.weighted = weights is not None
        self.queue.weights[:] = 1 if weights is None else weights
        self.changes += 1

    def _enter(self, begin: int, offset: int, lengths, horizons, starts) -> None:
        """List the starts of rows whose data are in place."""
        first = int(self.queue.starts_before[-1]) % self.capacity
        found = np.flatnonzero(horizons)
        before_seam = min(len(found), self.capacity - first)
        here, there = found[:before_seam], found[before_seam:]
        self.pairs[first : first + len(here), 0] = here + offset
        self.pairs[first : first + len(here), 1] = horizons[here]
        self.pairs[: len(there), 0] = there + offset
        self.pairs[: len(there), 1] = horizons[there]
        self.queue.append(begin, lengths, starts)
        self.changes += 1

    def _in_order(self, array: np.ndarray) -> np.ndarray:
        """The live part of an array [capacity, ...], oldest row first."""
        older, newer = self.queue.extents()
        return np.concatenate((array[older], array[newer]))

    def horizons(self) -> np.ndarray:
        """The horizon of each stored step, int32, oldest row first."""
        flat = np.zeros(self.capacity, np.int32)
        numbers = np.arange(*self.queue.starts_before[[0, -1]]) % self.capacity
        flat[self.pairs[numbers, 0]] = self.pairs[numbers, 1]
        return self._in_order(flat)

    def numbers(self) -> dict[str, Any]:
        """All that is saved beside the rows."""
        return {
            "capacity": self.capacity,
            "first": int(self.queue.offsets[0]) if self.queue.rows else 0,
            "generator": self.generator.copy(),
            "weighted": int(self.weighted),
            "lengths": self.queue.lengths,
            "weights": self.queue.weights.copy(),
            "horizons": self.horizons(),
        }

    def state(self) -> dict[str, Any]:
        rows = {f"data/{name}": self._in_order(array) for name, array in self.data.items()}
        return rows | self.numbers()

    def restore(self, where: str, state: Mapping[str, Any], same: Mapping[str, int]) -> None:
        """Take over a saved state, `same` being what else must be equal; or change nothing."""
        given = np.asarray(state.get("lengths", ()))
        sound = given.ndim == 1 and given.dtype == np.int64
        lengths = given if sound else np.zeros(0, np.int64)
        steps = int(lengths.sum())
        own = self.numbers() | {
            "lengths": lengths,
            "weights": np.zeros(len(lengths)),
            "horizons": np.zeros(max(steps, 0), np.int32),
            **same,
        }
        most = {"lengths": self.capacity, "horizons": self.capacity}
        equal = ("capacity", *same)
        read = read_numbers(where, state, own, self.fields, same=equal, most=most)
        if not self._consistent(read):
            refuse(where, ["the rows of the state do not fit together"], UNCHANGED)
        arrays = read_fields(where, state, self.fields, (steps,), NumPyStore())
        first, ends = read["first"], read["first"] + np.cumsum(lengths)
        rows_before = int(np.searchsorted(ends, self.capacity, side="right"))
        steps_before = int(lengths[:rows_before].sum())
        self.queue = RowQueue(self.capacity)
        for name, array in arrays.items():
            self.data[name][first : first + steps_before] = array[:steps_before]
            self.data[name][: steps - steps_before] = array[steps_before:]
        ahead = read["horizons"]
        for begin, rows, part in (
            (first, slice(rows_before), slice(steps_before)),
            (self.capacity, slice(rows_before, None), slice(steps_before, None)),
        ):
            if len(lengths[rows]):
                counts = np.add.reduceat(
                    ahead[part] > 0, np.cumsum(lengths[rows]) - lengths[rows], dtype=np.int64
                )
                self._enter(begin, begin % self.capacity, lengths[rows], ahead[part], counts)
        self.queue.weights[:] = read["weights"]
        self.weighted = bool(read["weighted"])
        self.generator[:] = read["generator"]
        self.changes += 1

    def _consistent(self, read: Mapping[str, Any]) -> bool:
        """Whether rows lie in the storage without overlap, and horizons end within their rows."""
        lengths, ahead, first = read["lengths"], read["horizons"], read["first"]
        weights = read["weights"]
        if len(lengths) == 0:
            return first == 0
        ends = first + np.cumsum(lengths)
        later = lengths[ends > self.capacity].sum()
        last = np.cumsum(lengths) - 1
        inner = np.ones(len(ahead), bool)
        inner[last] = False
        follows = np.append(ahead[1:], np.int32(0)) + 1
        return bool(
            (lengths > 1).all()
            and ends[0] <= self.capacity
            and (later == 0 or later <= first)
            and not ahead[last].any()
            and ((ahead == 0) | (ahead == follows))[inner].all()
            and np.add.reduceat(ahead > 0, last - lengths + 1, dtype=np.int64).all()
            and (weights >= 0).all()
            and 1e-200 < weights.sum() < 1e200
        )
