"""A call for a batch of episodic draws: its arguments checked, its arrays laid out, one kernel.

Imports `episodic_store`, `fields`, `refusals`, and on the first draw `numba_episodic`. Tests:
`tests/replay/test_episodic.py`.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from loopless.replay.episodic_store import EpisodicStore
from loopless.replay.fields import flatten, unflatten
from loopless.replay.refusals import misnamed, no_count, refuse

FARTHEST = 2**31


class EpisodicDraws:
    """Batches from a `store`, by rows evenly or by starts evenly, unless rows are weighted."""

    def __init__(self, store: EpisodicStore, by_row: bool) -> None:
        self.store, self.by_row = store, by_row
        self._layouts: dict[str | None, tuple] = {}
        self._cumulative, self._changes = np.zeros(2), -1  # of the rows as they were
        self._nested = any("/" in name for name in store.fields)

    def draw(
        self, where: str, later: str | None, batch_size, discount, max_horizon, batches, episodes,
        out: Mapping[str, Any] | None,
    ) -> dict[str, Any]:  # fmt: skip
        """One call: `later` is the name that successors get, None if there are to be none."""
        compiled = _compiled()
        group, log_discount = _read_arguments(
            where, batch_size, discount, max_horizon, batches, episodes
        )
        store = self.store
        if not store.queue.rows:
            raise RuntimeError(f"{where}: the buffer is empty. Add an episode first.")
        leading = (batch_size,) if batches is None else (batches, batch_size)
        items = batch_size * (batches or 1)
        names, at_start, sources, shapes = self._layouts.get(later) or self._lay_out(later)
        if out is None:
            arrays: list[Any] = [np.empty(leading + shape, dtype) for shape, dtype, _ in shapes]
            indices, gaps = np.empty(leading, np.int64), np.empty(leading, np.int64)
        else:
            *arrays, indices, gaps = _given_arrays(where, out, leading, names, shapes, later)
        flat_indices, flat_gaps = indices, gaps
        if batches is not None:
            flat_indices, flat_gaps = indices.reshape(items), gaps.reshape(items)
        outs = [
            array.reshape(items, size).view(np.uint8)
            for array, (_, _, size) in zip(arrays, shapes, strict=True)
        ]
        if store.weighted:
            choice = compiled.WEIGHTED_ROWS
            self._accumulate()
        elif self.by_row:
            choice = compiled.EVEN_ROWS
        else:
            choice = compiled.ALL_STARTS if group == 1 else compiled.ROW_OF_A_START
        kind = compiled.GEOMETRIC
        if discount == 0 or discount == 1:
            kind = compiled.UNIFORM if discount else compiled.NEXT_STEP
        compiled.sample(
            store.generator, choice, group, store.queue.starts_before, self._cumulative,
            store.pairs, kind, log_discount, int(max_horizon or FARTHEST),
            flat_indices, flat_gaps, at_start, sources, tuple(outs),
        )  # fmt: skip
        batch = dict(zip(names, arrays, strict=True))
        batch["indices"] = indices
        if later:
            batch["gap"] = gaps
        return unflatten(batch) if self._nested else batch

    def _lay_out(self, later: str | None) -> tuple:
        """Names, how many are read at starts, storage as bytes, and (shape, dtype, size) of each.

        Kept for the next call: storage never moves.
        """
        fields = self.store.fields
        ahead = [name for name in fields if later and name.split("/")[0] == "obs"]
        read = [*fields, *ahead]
        sources = tuple(_as_bytes(self.store.data[name]) for name in read)
        shapes = [
            (fields[name].shape, np.dtype(fields[name].dtype), math.prod(fields[name].shape))
            for name in read
        ]
        names = [*fields, *(f"{later}{name.removeprefix('obs')}" for name in ahead)]
        self._layouts[later] = layout = names, len(fields), sources, shapes
        return layout

    def _accumulate(self) -> None:
        """Bring the cumulative weights up to date with the rows: O(rows), once for each change."""
        queue = self.store.queue
        if self._changes != self.store.changes:
            starts = 1 if self.by_row else np.diff(queue.starts_before)
            self._cumulative = np.append(0.0, np.cumsum(queue.weights * starts))
            self._changes = self.store.changes


@functools.cache
def _compiled() -> Any:
    """The samplers, imported on the first draw."""
    from loopless.replay import numba_episodic

    return numba_episodic


def _as_bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(len(array), math.prod(array.shape[1:])).view(np.uint8)


def _read_arguments(where, batch_size, discount, max_horizon, batches, episodes):
    """How many items share a row, and log γ; one error for all that is wrong."""
    problems = no_count("batch_size", batch_size, 1)
    if batches is not None:
        problems += no_count("batches", batches, 1)
    if max_horizon is not None:
        problems += no_count("max_horizon", max_horizon, 1)
    try:
        sound = 0 <= discount <= 1
    except (TypeError, ValueError):
        sound = False
    if not sound:
        problems.append(f"discount lies in [0, 1]; received {discount!r}")
    group = 1
    if episodes is not None:
        wrong = no_count("episodes", episodes, 1)
        if not wrong and not problems:
            group = int(batch_size // episodes)
            if batch_size % episodes:
                wrong = [f"batch_size={batch_size} is no multiple of episodes={episodes}"]
        problems += wrong
    refuse(where, problems)
    return group, math.log(discount) if discount else -math.inf


def _given_arrays(where: str, out, leading, names, shapes, later) -> list[np.ndarray]:
    """The caller's arrays in the order of `names`, then indices and gaps."""
    int64 = np.dtype(np.int64)
    wanted = {
        name: (leading + shape, dtype)
        for name, (shape, dtype, _) in zip(names, shapes, strict=True)
    }
    wanted["indices"] = leading, int64
    if later:
        wanted["gap"] = leading, int64
    given = flatten(where, out)
    problems = misnamed(given, wanted)
    for name, (shape, dtype) in wanted.items():
        array = given.get(name)
        if name not in given or (
            isinstance(array, np.ndarray)
            and (array.shape, array.dtype) == (shape, dtype)
            and array.flags.carray
        ):
            continue
        problems.append(f"out[{name!r}] is no writeable contiguous array {shape} {dtype}")
    refuse(where, problems)
    return [given[name] for name in names] + [
        given["indices"],
        given["gap"] if later else np.empty(leading, np.int64),
    ]
