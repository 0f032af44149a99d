"""Where rows of unequal length lie in a storage that is overwritten in a circle.

The oldest rows go until a new one fits. A row never wraps around the end of the storage: if the
rest there is too short, it stays unused for that lap. Positions count on from lap to lap, so that
a row at position p lies at p mod capacity, and all that is in the way of a row that ends at p
begins before p − capacity. Imports `refusals` only. Tests: `tests/replay/test_episodic_ring.py`.
"""

import numpy as np

from loopless.refusals import list_first


class RowQueue:
    """Begin, end and number of starts of each row, oldest first; its weight and its starts'."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.steps = 0
        self._first = self._end = 0  # of the rows in the table, whose front is given back late
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
        """Where in the storage each row begins."""
        return self.begins % self.capacity

    @property
    def lengths(self) -> np.ndarray:
        return self.ends - self.begins

    @property
    def nbytes(self) -> int:
        return self._table.nbytes + self._weights.nbytes

    def extents(self) -> tuple[slice, slice]:
        """The storage that the rows of the older lap and of the newer one take."""
        if not self.rows:
            return slice(0), slice(0)
        lap = int(self.begins[0]) // self.capacity * self.capacity
        older = int(np.searchsorted(self.begins, lap + self.capacity))
        newer = int(self.ends[-1]) - lap - self.capacity if older < self.rows else 0
        return slice(int(self.begins[0]) - lap, int(self.ends[older - 1]) - lap), slice(newer)

    def rows_of(self, where: str, indices: np.ndarray) -> np.ndarray:
        """Which row each place in the storage belongs to, 0 the oldest."""
        if indices.dtype.kind not in "iu":
            raise TypeError(f"{where}: indices are integers; received {indices.dtype}.")
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
        """Where a block of `length` steps would begin, and how many rows would have to go."""
        begin = int(self.ends[-1]) if self.rows else 0
        rest = -begin % self.capacity
        if 0 < rest < length:
            begin += rest
        return begin, int(np.searchsorted(self.begins, begin + length - self.capacity))

    def append(self, begin: int, lengths: np.ndarray, starts: np.ndarray) -> None:
        """Enter rows of these `lengths` from `begin` on, with so many `starts` each."""
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
        """Forget the oldest."""
        self.steps -= int(self.ends[:rows].sum() - self.begins[:rows].sum())
        self._first += rows
        self._refresh()

    def _make_room(self, rows: int) -> None:
        if self._end + rows < self._table.shape[1]:  # one column more than rows: the starts' end
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
        self.table = self._table[:, self._first : self._end + 1]  # the samplers' view of all
        self.starts_before = self.table[2]  # [rows + 1]
