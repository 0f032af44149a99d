"""An episodic store as a saved state, and back: checked as a whole, then taken over.

Rows are saved oldest first, without what lies unused between them. Imports `episodic_store`,
`episodic_weights`, `refusals`, `row_queue`, `saved`, `segments` and `stores`. Tests:
`tests/replay/test_episodic_saved.py`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from loopless.refusals import refuse
from loopless.replay.host.episodic.queue import RowQueue
from loopless.replay.host.episodic.segments import sums_over_rows
from loopless.replay.host.episodic.store import EpisodicStore
from loopless.replay.host.episodic.weights import weight_problems
from loopless.replay.host.rollout.stores import NumPyStore
from loopless.replay.storage.saved import UNCHANGED, read_fields, read_numbers


def state_of(store: EpisodicStore) -> dict[str, Any]:
    """All rows, and the numbers beside them; weights that are not used are empty."""
    rows = {f"data/{name}": store.in_order(view) for name, view in store.rows.views.items()}
    return rows | numbers_of(store)


def numbers_of(store: EpisodicStore) -> dict[str, Any]:
    """All that is saved beside the rows."""
    queue, steps = store.queue, store.steps
    return {
        "capacity": store.capacity,
        "first": int(queue.offsets[0]) if queue.rows else 0,
        "lengths": queue.lengths,
        "horizons": store.horizons(),
        "row_weights": queue.weights[: queue.rows * store.rows_weighted].copy(),
        "step_weights": store.in_order(steps.weights) if steps.used else steps.weights.copy(),
        "random": store.random.copy(),
    }


def restore(
    store: EpisodicStore, where: str, state: Mapping[str, Any], same: Mapping[str, int]
) -> None:
    """Take over a saved state, `same` being what else must be equal; or change nothing."""
    read = _read(store, where, state, same, store.fields)
    steps = (int(read["lengths"].sum()),)
    arrays = read_fields(where, state, store.fields, steps, NumPyStore())
    store.rows.announce(0, store.capacity)
    _take_over(store, read, arrays)


def reopen(
    store: EpisodicStore, where: str, state: Mapping[str, Any], same: Mapping[str, int]
) -> None:
    """Take over what `numbers_of` a store of these rows gave."""
    _take_over(store, _read(store, where, state, same, ()), None)


def _take_over(store: EpisodicStore, read: Mapping[str, Any], arrays: Any) -> None:
    """List rows, and write them unless there are no `arrays`: then they are where they belong."""
    lengths, first = read["lengths"], read["first"]
    if len(read["step_weights"]):
        store.hold_step_weights()
    else:
        store.weigh_steps(None)
    store.queue = RowQueue(store.capacity)
    rows_before = int(np.searchsorted(first + np.cumsum(lengths), store.capacity, side="right"))
    steps_before = int(lengths[:rows_before].sum())
    for begin, rows, part in (
        (first, slice(rows_before), slice(steps_before)),
        (store.capacity, slice(rows_before, None), slice(steps_before, None)),
    ):
        if len(lengths[rows]):
            ahead = read["horizons"][part]
            if arrays is not None:
                data = {name: array[part] for name, array in arrays.items()}
                store.rows.write(begin % store.capacity, len(ahead), data)
            store.enter(begin, lengths[rows], ahead, sums_over_rows(ahead > 0, lengths[rows]))
    store.weigh_rows(read["row_weights"] if len(read["row_weights"]) else None)
    if store.steps.used:
        store.weigh_steps(read["step_weights"])
    store.random = read["random"]


def _read(
    store: EpisodicStore, where: str, state, same: Mapping[str, int], fields: Iterable[str]
) -> dict[str, Any]:
    """The numbers of a state that has these `fields`, too, if they make sense."""
    lengths = np.asarray(state.get("lengths", ()))
    if lengths.ndim != 1 or lengths.dtype != np.int64:
        lengths = np.zeros(0, np.int64)
    steps = max(0, int(lengths.sum()))
    own = numbers_of(store) | {
        "lengths": lengths,
        "horizons": np.zeros(steps, np.int32),
        "row_weights": np.zeros(len(lengths) if np.size(state.get("row_weights", ())) else 0),
        "step_weights": np.zeros(steps if np.size(state.get("step_weights", ())) else 0),
        **same,
    }
    most = {"lengths": store.capacity, "horizons": store.capacity}
    read = read_numbers(where, state, own, fields, same=("capacity", *same), most=most)
    if not _rows_fit(store.capacity, read["first"], lengths, read["horizons"]):
        refuse(where, ["the rows of the state do not fit together"], note=UNCHANGED)
    refuse(where, _weight_problems(store, read), note=UNCHANGED)
    return read


def _rows_fit(capacity: int, first: int, lengths: np.ndarray, ahead: np.ndarray) -> bool:
    """Whether rows lie in the storage without overlap, and horizons end within their rows."""
    if len(lengths) == 0:
        return first == 0
    ends = first + np.cumsum(lengths)
    later = lengths[ends > capacity].sum()
    last = np.cumsum(lengths) - 1
    inner = np.ones(len(ahead), bool)
    inner[last] = False
    follows = np.append(ahead[1:], np.int32(0)) + 1
    return bool(
        (lengths > 1).all()
        and ends[0] <= capacity
        and (later == 0 or later <= first)
        and not ahead[last].any()
        and ((ahead == 0) | (ahead == follows))[inner].all()
        and sums_over_rows(ahead > 0, lengths).all()
    )


def _weight_problems(store: EpisodicStore, read: Mapping[str, Any]) -> list[str]:
    lengths, ahead = read["lengths"], read["horizons"]
    of_rows, of_steps = read["row_weights"], read["step_weights"]
    given = np.append(of_rows, of_steps)
    if not ((given >= 0) & (given < np.inf)).all():
        return ["weights are finite numbers from 0 up"]
    if not of_rows.size and not of_steps.size:
        return []
    of_starts = sums_over_rows((ahead > 0) * (of_steps if of_steps.size else 1.0), lengths)
    weights = of_rows if of_rows.size else np.ones(len(lengths))
    return weight_problems(weights, of_starts, store.by_row)
