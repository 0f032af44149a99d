"""The memory of the episodic buffer: rows of steps in a circle, and the index of their starts.

`RowQueue` knows where rows are. The oldest are dropped until a new one fits. A row never wraps
around the end of the storage: if the space left there is too short, it stays unused for that lap.
Positions count on from lap to lap, so that a row at position p is stored at p mod capacity, and the
rows in the way of one that ends at p are those that begin before p − capacity.

`Arena` holds the steps. A ring beside them lists the starts with their horizons, row after row, in
the order in which rows come and go, so that dropping a row only changes a number. If steps are
weighted, each row also has an alias table (`compiled.tree.balance`), independent of other rows.
Device twin: `device.episodes`.
"""

import math
from collections.abc import Mapping

import numpy as np

from loopless.refusals import list_first
from loopless.replay.casts import NUMPY
from loopless.replay.fields import Field
from loopless.replay.host.episodic.episodes import Rows, check_weights, row_chances, sum_over_rows
from loopless.replay.host.packed import PackedRows
from loopless.replay.sampling import kernels, new_generator
from loopless.replay.storage.memory import Memory, check_bytes_fit

NO_WEIGHTS, NO_ALIASES = np.zeros(0), np.zeros((0, 2))


class RowQueue:
    """Where each row begins and ends, its number of starts, and its weights; oldest row first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.steps = 0
        self._first = self._end = 0  # live rows of the table; those before are gone
        self._table = np.zeros((3, 16), np.int64)
        self._weights = np.ones((2, 16))
        self._refresh()

    @property
    def rows(self) -> int:
        return self._end - self._first

    @property
    def starts(self) -> int:
        return int(self.starts_before[-1] - self.starts_before[0])

    @property
    def offsets(self) -> np.ndarray:
        """Return where in the storage each row begins."""
        return self.begins % self.capacity

    @property
    def lengths(self) -> np.ndarray:
        return self.ends - self.begins

    @property
    def nbytes(self) -> int:
        return self._table.nbytes + self._weights.nbytes

    def extents(self) -> tuple[slice, slice]:
        """Return the slices of the storage that rows of the older and of the newer lap take."""
        if not self.rows:
            return slice(0), slice(0)
        lap = int(self.begins[0]) // self.capacity * self.capacity
        older = int(np.searchsorted(self.begins, lap + self.capacity))
        newer = int(self.ends[-1]) - lap - self.capacity if older < self.rows else 0
        return slice(int(self.begins[0]) - lap, int(self.ends[older - 1]) - lap), slice(newer)

    def rows_of(self, where: str, indices: np.ndarray) -> np.ndarray:
        """Return which row each place in the storage belongs to; 0 is the oldest."""
        if indices.dtype.kind not in "iu":
            raise TypeError(f"{where}: indices must be integers; received {indices.dtype}.")
        if not self.rows:
            raise RuntimeError(f"{where}: the buffer is empty. Add an episode first.")
        first = int(self.begins[0])
        positions = first + (indices - first) % self.capacity
        rows = np.searchsorted(self.begins, positions, side="right") - 1
        stored = (indices >= 0) & (indices < self.capacity) & (positions < self.ends[rows])
        if not stored.all():
            missing = np.atleast_1d(indices)[~np.atleast_1d(stored)]
            raise ValueError(f"{where}: no step is stored at {list_first(missing)}.")
        return rows

    def place(self, length: int) -> tuple[int, int]:
        """Return where a block of `length` steps would begin, and how many rows are in its way."""
        begin = int(self.ends[-1]) if self.rows else 0
        rest = -begin % self.capacity
        if 0 < rest < length:
            begin += rest
        return begin, int(np.searchsorted(self.begins, begin + length - self.capacity))

    def append(self, begin: int, lengths: np.ndarray, starts: np.ndarray) -> None:
        """Enter rows of these `lengths`, with this many `starts` each, from position `begin` on."""
        self._make_room(len(lengths))
        new = slice(self._end, self._end + len(lengths))
        ends = begin + np.cumsum(lengths)
        self._table[0, new] = ends - lengths
        self._table[1, new] = ends
        before = self._table[2, self._end]
        self._table[2, new.start + 1 : new.stop + 1] = before + np.cumsum(starts)
        self._weights[0, new], self._weights[1, new] = 1, starts
        self._end = new.stop
        self.steps += int(lengths.sum())
        self._refresh()

    def drop(self, rows: int) -> None:
        """Forget the oldest `rows`."""
        self.steps -= int(self.ends[:rows].sum() - self.begins[:rows].sum())
        self._first += rows
        self._refresh()

    def _make_room(self, rows: int) -> None:
        if self._end + rows < self._table.shape[1]:  # one more than rows: where starts end
            return
        live = slice(self._first, self._end + 1)
        size = max(16, 2 * (self.rows + rows))
        table, weights = np.zeros((3, size), np.int64), np.ones((2, size))
        table[:, : self.rows + 1] = self._table[:, live]
        weights[:, : self.rows + 1] = self._weights[:, live]
        self._table, self._weights = table, weights
        self._first, self._end = 0, self.rows

    def _refresh(self) -> None:
        live = slice(self._first, self._end)
        self.begins, self.ends = self._table[0, live], self._table[1, live]
        self.weights, self.start_weights = self._weights[:, live]
        self.table = self._table[:, self._first : self._end + 1]  # what the samplers read
        self.starts_before = self.table[2]  # [rows + 1]


class Arena:
    """All arrays of a buffer, allocated together, and its generator."""

    def __init__(
        self, owner: str, capacity: int, fields: Mapping[str, Field], seed, *, by_row: bool, storage
    ) -> None:
        """Allocate all arrays. With `by_row` a draw chooses a row first, else one of all starts."""
        self.owner, self.capacity, self.fields, self.by_row = owner, capacity, fields, by_row
        beside = {"index": Field((2,), "int32")}
        self.rows = PackedRows(owner, capacity, fields, storage, beside=beside, unit="steps")
        self.pairs = self._allocate("pairs", (2,), np.int32)  # a ring of (flat index, horizon)
        self.queue = RowQueue(capacity)
        self.rows_weighted = False
        self.step_weights, self.aliases = NO_WEIGHTS, NO_ALIASES  # [capacity] and [capacity, 2]
        self.random = new_generator(seed)
        self._changes, self._summed_at = 0, -1  # changes so far, and when rows were summed
        self._row_sums = np.zeros(0)

    def _allocate(self, name: str, shape: tuple[int, ...], dtype) -> np.ndarray:
        """Return zeros [capacity, *shape], in memory even if the fields are in files."""
        width = math.prod(shape) * np.dtype(dtype).itemsize
        array = Memory().allocate(name, self.capacity, width)
        return array.view(dtype).reshape(self.capacity, *shape)

    @property
    def nbytes(self) -> int:
        weights = self.step_weights.nbytes + self.aliases.nbytes
        return self.rows.nbytes + self.queue.nbytes + weights

    @property
    def steps_weighted(self) -> bool:
        return self.step_weights.size > 0

    @property
    def weighted(self) -> bool:
        return self.rows_weighted or self.steps_weighted

    def write(self, rows: Rows) -> None:
        """Store checked `rows` side by side, in place of the oldest."""
        steps = int(rows.lengths.sum())
        begin, in_the_way = self.queue.place(steps)
        self.rows.announce(begin % self.capacity, steps)
        self.queue.drop(in_the_way)
        self.rows.write(begin % self.capacity, steps, rows.arrays)
        self.enter(begin, rows.lengths, rows.horizons, rows.starts)

    def forget(self) -> None:
        """Drop all rows."""
        self.queue = RowQueue(self.capacity)
        self._changes += 1

    def enter(self, begin: int, lengths, horizons, starts) -> None:
        """List the starts of rows whose data are in place, from position `begin` on."""
        queue, offset = self.queue, begin % self.capacity
        first = int(queue.starts_before[-1]) % self.capacity
        steps = np.flatnonzero(horizons)
        before_seam = min(len(steps), self.capacity - first)
        here, there = steps[:before_seam], steps[before_seam:]
        self.pairs[first : first + len(here), 0] = here + offset
        self.pairs[first : first + len(here), 1] = horizons[here]
        self.pairs[: len(there), 0] = there + offset
        self.pairs[: len(there), 1] = horizons[there]
        queue.append(begin, lengths, starts)
        if self.steps_weighted:
            self.step_weights[offset : offset + len(horizons)] = 1
            self._balance(len(lengths))
        self._changes += 1

    def check_weights(self, rows=None, steps=None) -> list[str]:
        """Return what is wrong with new weights of rows, or of steps, oldest row first."""
        queue = self.queue
        of_starts = queue.start_weights
        if steps is not None:
            of_starts = sum_over_rows((self.horizons() > 0) * steps, queue.lengths)
        return check_weights(queue.weights if rows is None else rows, of_starts, self.by_row)

    def weigh_rows(self, weights: np.ndarray | None) -> None:
        """Set the weight of each row; None makes all rows equal."""
        self.rows_weighted = weights is not None
        self.queue.weights[:] = 1 if weights is None else weights
        self._changes += 1

    def weigh_steps(self, weights: np.ndarray | None) -> None:
        """Set the weight of each step, oldest row first; None makes all steps equal."""
        self._changes += 1
        if weights is None:
            self.step_weights, self.aliases = NO_WEIGHTS, NO_ALIASES
            self.queue.start_weights[:] = np.diff(self.queue.starts_before)
            return
        self.allocate_step_weights()
        older, newer = self.queue.extents()
        seam = older.stop - older.start
        self.step_weights[older], self.step_weights[newer] = weights[:seam], weights[seam:]
        self._balance(self.queue.rows)

    def allocate_step_weights(self) -> None:
        """Allocate the weights of steps, unless that was done; raise if they do not fit."""
        if self.steps_weighted:
            return
        extent, fields = f"weights of {self.capacity:,} steps", {"weights": Field((3,), "float64")}
        advice = "Use a smaller capacity, or smaller dtypes."
        check_bytes_fit(self.owner, extent, self.capacity, fields, NUMPY, advice)
        self.step_weights = self._allocate("step_weights", (), np.float64)
        self.aliases = self._allocate("aliases", (2,), np.float64)

    def _balance(self, rows: int) -> None:
        """Make the alias tables of the newest `rows`, and sum up their starts' weights."""
        before = self.queue.starts_before[-1 - rows :]
        totals = self.queue.start_weights[-rows:]
        kernels().tree.balance(self.step_weights, self.pairs, before, self.aliases, totals)

    def row_sums(self) -> np.ndarray:
        """Return the cumulative chances of the rows, [rows], summed anew only after a change."""
        if self._summed_at != self._changes:
            weights, of_starts = self.queue.weights, self.queue.start_weights
            self._row_sums = np.cumsum(row_chances(weights, of_starts, self.by_row))
            self._summed_at = self._changes
        return self._row_sums

    def in_order(self, array: np.ndarray) -> np.ndarray:
        """Return a copy of the live part of an array [capacity, ...], oldest row first."""
        older, newer = self.queue.extents()
        return np.concatenate((array[older], array[newer]))

    def horizons(self) -> np.ndarray:
        """Return the horizon of each step, int32, oldest row first."""
        flat = np.zeros(self.capacity, np.int32)
        numbers = np.arange(*self.queue.starts_before[[0, -1]]) % self.capacity
        flat[self.pairs[numbers, 0]] = self.pairs[numbers, 1]
        return self.in_order(flat)
