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
        self.position = 0  # where the newest row ends
        self._first = self._end = 0  # live rows of the table; those before are gone
        self._table = np.zeros((3, 16), np.int64)
        self._weights = np.ones((2, 16))
        self._live: np.ndarray | None = None

    @property
    def rows(self) -> int:
        return self._end - self._first

    @property
    def table(self) -> np.ndarray:
        """Return what the samplers read, [3, rows + 1]: begins, ends, starts before each row."""
        if self._live is None:
            self._live = self._table[:, self._first : self._end + 1]
        return self._live

    @property
    def begins(self) -> np.ndarray:
        return self.table[0, :-1]

    @property
    def ends(self) -> np.ndarray:
        return self.table[1, :-1]

    @property
    def starts_before(self) -> np.ndarray:
        return self.table[2]

    @property
    def weights(self) -> np.ndarray:
        return self._weights[0, self._first : self._end]

    @property
    def start_weights(self) -> np.ndarray:
        """Return the sum of the weights of each row's starts."""
        return self._weights[1, self._first : self._end]

    @property
    def starts(self) -> int:
        return int(self._table[2, self._end] - self._table[2, self._first])

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

    def begin_of(self, length: int) -> int:
        """Return where a row of `length` steps would begin."""
        rest = -self.position % self.capacity
        return self.position + rest if 0 < rest < length else self.position

    def in_the_way(self, end: int) -> int:
        """Return how many rows would be overwritten by new ones that reach to position `end`."""
        limit = end - self.capacity
        return kernels().segments.rows_before(self._table, self._first, self._end, limit)

    def append(self, begin: int, lengths, starts, pairs, horizons) -> None:
        """Enter rows from position `begin` on; `compiled.segments.enter` says what is listed."""
        rows = len(lengths)
        if self._end + rows >= self._table.shape[1]:  # one more than rows: where starts end
            self._make_room(rows)
        enter, end = kernels().segments.enter, self._end
        steps = enter(self._table, self._weights, end, begin, lengths, starts, pairs, horizons)
        self._end += rows
        self.steps += steps
        self.position, self._live = begin + steps, None

    def drop(self, rows: int) -> None:
        """Forget the oldest `rows`."""
        if rows:
            self.steps -= kernels().segments.count_steps(self._table, self._first, rows)
            self._first += rows
            self._live = None

    def _make_room(self, rows: int) -> None:
        live = slice(self._first, self._end + 1)
        size = max(16, 2 * (self.rows + rows))
        table, weights = np.zeros((3, size), np.int64), np.ones((2, size))
        table[:, : self.rows + 1] = self._table[:, live]
        weights[:, : self.rows + 1] = self._weights[:, live]
        self._table, self._weights = table, weights
        self._first, self._end = 0, self.rows


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
        """Store one checked row in place of the oldest."""
        steps, queue = len(rows.horizons), self.queue
        begin = queue.begin_of(steps)
        self.rows.announce(begin % self.capacity, steps)
        queue.drop(queue.in_the_way(begin + steps))
        self.rows.write(begin % self.capacity, steps, rows.arrays)
        self.enter(begin, rows.lengths, rows.horizons, rows.starts)

    def write_all(self, rows: Rows) -> None:
        """Store checked rows as `write` would store them one by one."""
        lengths, capacity, queue = rows.lengths, self.capacity, self.queue
        begins = np.empty_like(lengths)
        end = kernels().segments.place(queue.position, lengths, capacity, begins)
        stay = int(np.searchsorted(begins, end - capacity))  # those before it are overwritten again
        after = max(stay, int(np.searchsorted(begins, end - end % capacity)))  # in the last lap
        steps = np.append(0, np.cumsum(lengths))
        self.rows.announce(int(begins[stay]) % capacity, end - int(begins[stay]))
        queue.drop(queue.in_the_way(end))
        for first, last in ((stay, after), (after, len(lengths))):
            if first < last:
                part, begin = slice(steps[first], steps[last]), int(begins[first])
                data = {name: array[part] for name, array in rows.arrays.items()}
                self.rows.write(begin % capacity, int(steps[last] - steps[first]), data)
                some = slice(first, last)
                self.enter(begin, lengths[some], rows.horizons[part], rows.starts[some])

    def forget(self) -> None:
        """Drop all rows."""
        self.queue = RowQueue(self.capacity)
        self._changes += 1

    def enter(self, begin: int, lengths, horizons, starts) -> None:
        """List the starts of rows whose data are in place, from position `begin` on."""
        self.queue.append(begin, lengths, starts, self.pairs, horizons)
        if self.steps_weighted:
            offset = begin % self.capacity
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
