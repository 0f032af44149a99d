"""The memory of the episodic buffer: rows laid flat, and the index of where draws may start.

Nothing is padded. A ring beside the data lists the starts with their horizons, row after row, in
the order in which rows come and go, so that dropping a row is moving a number. Imports
`episodic_rows`, `episodic_weights`, `memory`, `row_queue`, `rows` and `segments`. Tests:
`tests/replay/test_episodic_ring.py`.
"""

import math
from collections.abc import Mapping
from operator import index
from typing import Any

import numpy as np

from loopless.replay.fields import Field
from loopless.replay.host.episodic.queue import RowQueue
from loopless.replay.host.episodic.rows import Rows
from loopless.replay.host.episodic.segments import sums_over_rows
from loopless.replay.host.episodic.weights import StepWeights, chances, weight_problems
from loopless.replay.host.rollout.stores import NumPyStore
from loopless.replay.host.rows import PackedRows
from loopless.replay.storage.memory import Memory
from loopless.replay.storage.size import bytes_that_fit


class EpisodicStore:
    """All arrays of a buffer, allocated together, and its generator."""

    def __init__(
        self,
        owner: str,
        capacity: int,
        fields: Mapping[str, Field],
        seed,
        *,
        by_row: bool,
        storage: Any = None,
    ) -> None:
        """`by_row` is whether rows are drawn first, or starts among all; see `episodic_weights`."""
        self.owner, self.capacity, self.fields, self.by_row = owner, capacity, fields, by_row
        beside = {"index": Field((2,), "int32")}
        self.rows = PackedRows(
            owner, capacity, fields, NumPyStore(), storage=storage, beside=beside, unit="steps"
        )
        self.pairs = self._allocate("pairs", (2,), np.int32)  # a ring of (flat index, horizon)
        self.queue = RowQueue(capacity)
        self.rows_weighted, self.steps = False, StepWeights()
        key = np.random.SeedSequence(index(seed)).generate_state(1, np.uint64)[0]
        self.random = np.array([key, 0], np.uint64)  # generator: its key, draws made so far
        self._changes, self._summed_at = 0, -1  # of rows or weights
        self._row_sums = np.zeros(0)

    def _allocate(self, name: str, shape: tuple[int, ...], dtype) -> np.ndarray:
        """Zeros [capacity, *shape]. Beside the fields, all that grows with capacity comes hence.

        It lies in memory, wherever the fields do, and is part of the state that a flush saves.
        """
        width = math.prod(shape) * np.dtype(dtype).itemsize
        array = Memory().allocate(name, self.capacity, width)
        return array.view(dtype).reshape(self.capacity, *shape)

    def _refuse_what_does_not_fit(self, extent: str, fields: Mapping[str, Field]) -> None:
        advice = "Use a smaller capacity, or smaller dtypes."
        bytes_that_fit(self.owner, extent, self.capacity, fields, NumPyStore(), advice)

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + self.queue.nbytes + self.steps.nbytes

    @property
    def weighted(self) -> bool:
        return self.rows_weighted or self.steps.used

    def write(self, rows: Rows) -> None:
        """Store checked `rows` side by side; the oldest rows make room."""
        steps = int(rows.lengths.sum())
        begin, in_the_way = self.queue.place(steps)
        self.rows.announce(begin % self.capacity, steps)
        self.queue.drop(in_the_way)
        self.rows.write(begin % self.capacity, steps, rows.arrays)
        self.enter(begin, rows.lengths, rows.horizons, rows.starts)

    def forget(self) -> None:
        """Hold nothing."""
        self.queue = RowQueue(self.capacity)
        self._changes += 1

    def enter(self, begin: int, lengths, horizons, starts) -> None:
        """List the starts of rows whose data are in place, from position `begin` on."""
        queue, offset = self.queue, begin % self.capacity
        first = int(queue.starts_before[-1]) % self.capacity
        found = np.flatnonzero(horizons)
        before_seam = min(len(found), self.capacity - first)
        here, there = found[:before_seam], found[before_seam:]
        self.pairs[first : first + len(here), 0] = here + offset
        self.pairs[first : first + len(here), 1] = horizons[here]
        self.pairs[: len(there), 0] = there + offset
        self.pairs[: len(there), 1] = horizons[there]
        queue.append(begin, lengths, starts)
        if self.steps.used:
            self.steps.weights[offset : offset + len(horizons)] = 1
            self._balance(len(lengths))
        self._changes += 1

    def weight_problems(self, rows=None, steps=None) -> list[str]:
        """What is wrong with new weights of rows, or of steps in order, beside those that stay."""
        queue = self.queue
        of_starts = queue.start_weights
        if steps is not None:
            of_starts = sums_over_rows((self.horizons() > 0) * steps, queue.lengths)
        return weight_problems(queue.weights if rows is None else rows, of_starts, self.by_row)

    def weigh_rows(self, weights: np.ndarray | None) -> None:
        """Weigh each row from now on; None: all alike."""
        self.rows_weighted = weights is not None
        self.queue.weights[:] = 1 if weights is None else weights
        self._changes += 1

    def weigh_steps(self, weights: np.ndarray | None) -> None:
        """Weigh each step from now on, oldest row first; None: all alike."""
        self._changes += 1
        if weights is None:
            self.steps = StepWeights()
            self.queue.start_weights[:] = np.diff(self.queue.starts_before)
            return
        self.hold_step_weights()
        older, newer = self.queue.extents()
        seam = older.stop - older.start
        self.steps.weights[older], self.steps.weights[newer] = weights[:seam], weights[seam:]
        self._balance(self.queue.rows)

    def hold_step_weights(self) -> None:
        """Have room for the weight of each step."""
        if not self.steps.used:
            table = {"weights": Field((3,), "float64")}
            self._refuse_what_does_not_fit(f"weights of {self.capacity:,} steps", table)
            self.steps = StepWeights(
                self._allocate("step_weights", (), np.float64),
                self._allocate("aliases", (2,), np.float64),
            )

    def _balance(self, rows: int) -> None:
        """Make the tables of the newest rows, whose steps are weighed."""
        queue = self.queue
        before, totals = queue.starts_before[-1 - rows :], queue.start_weights[-rows:]
        self.steps.balance(self.pairs, before, totals)

    def row_sums(self) -> np.ndarray:
        """Cumulative chances of the rows, [rows]: O(rows), once for each change."""
        if self._summed_at != self._changes:
            weights, of_starts = self.queue.weights, self.queue.start_weights
            self._row_sums = np.cumsum(chances(weights, of_starts, self.by_row))
            self._summed_at = self._changes
        return self._row_sums

    def in_order(self, array: np.ndarray) -> np.ndarray:
        """A copy of the live part of an array [capacity, ...], oldest row first."""
        older, newer = self.queue.extents()
        return np.concatenate((array[older], array[newer]))

    def horizons(self) -> np.ndarray:
        """The horizon of each step, int32, oldest row first."""
        flat = np.zeros(self.capacity, np.int32)
        numbers = np.arange(*self.queue.starts_before[[0, -1]]) % self.capacity
        flat[self.pairs[numbers, 0]] = self.pairs[numbers, 1]
        return self.in_order(flat)
