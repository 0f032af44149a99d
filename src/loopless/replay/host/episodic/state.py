"""The state of the episodic buffer as a dict, and back: checked as a whole, then taken over.

Rows are saved oldest first, without the unused space between them. What a state is made of is in
`storage.file`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from loopless.refusals import refuse
from loopless.replay.casts import NUMPY
from loopless.replay.host.episodic.arena import Arena, RowQueue
from loopless.replay.host.episodic.episodes import check_weights, sum_over_rows
from loopless.replay.storage.file import UNCHANGED, read_fields, read_numbers


def numbers_of(arena: Arena) -> dict[str, Any]:
    """Return all that is saved beside the data; weights that are not used are empty."""
    queue = arena.queue
    return {
        "capacity": arena.capacity,
        "first": int(queue.offsets[0]) if queue.rows else 0,
        "lengths": queue.lengths,
        "horizons": arena.horizons(),
        "row_weights": queue.weights[: queue.rows * arena.rows_weighted].copy(),
        "step_weights": arena.in_order(arena.step_weights)
        if arena.steps_weighted
        else arena.step_weights.copy(),
        "random": arena.random.copy(),
    }


def restore(arena: Arena, where: str, state: Mapping[str, Any], same: Mapping[str, int]) -> None:
    """Take over a saved state that has the numbers `same`; on an error nothing changes."""
    numbers = _read_numbers(arena, where, state, same, arena.fields)
    steps = (int(numbers["lengths"].sum()),)
    arrays = read_fields(where, state, arena.fields, steps, NUMPY)
    arena.rows.announce(0, arena.capacity)
    _take_over(arena, numbers, arrays)


def reopen(arena: Arena, where: str, state: Mapping[str, Any], same: Mapping[str, int]) -> None:
    """Take over what `numbers_of` returned for an arena whose data are in place."""
    _take_over(arena, _read_numbers(arena, where, state, same, ()), None)


def _take_over(arena: Arena, numbers: Mapping[str, Any], arrays: Any) -> None:
    """Enter the rows, and write `arrays` first; None means that the data are in place."""
    lengths, first = numbers["lengths"], numbers["first"]
    if len(numbers["step_weights"]):
        arena.allocate_step_weights()
    else:
        arena.weigh_steps(None)
    arena.queue = RowQueue(arena.capacity)
    rows_before = int(np.searchsorted(first + np.cumsum(lengths), arena.capacity, side="right"))
    steps_before = int(lengths[:rows_before].sum())
    for begin, rows, part in (
        (first, slice(rows_before), slice(steps_before)),
        (arena.capacity, slice(rows_before, None), slice(steps_before, None)),
    ):
        if len(lengths[rows]):
            ahead = numbers["horizons"][part]
            if arrays is not None:
                data = {name: array[part] for name, array in arrays.items()}
                arena.rows.write(begin % arena.capacity, len(ahead), data)
            arena.enter(begin, lengths[rows], ahead, sum_over_rows(ahead > 0, lengths[rows]))
    arena.weigh_rows(numbers["row_weights"] if len(numbers["row_weights"]) else None)
    if arena.steps_weighted:
        arena.weigh_steps(numbers["step_weights"])
    arena.random = numbers["random"]


def _read_numbers(
    arena: Arena, where: str, state, same: Mapping[str, int], fields: Iterable[str]
) -> dict[str, Any]:
    """Return the numbers of a state that also has these `fields`, if they make sense."""
    lengths = np.asarray(state.get("lengths", ()))
    if lengths.ndim != 1 or lengths.dtype != np.int64:
        lengths = np.zeros(0, np.int64)
    steps = max(0, int(lengths.sum()))
    current = numbers_of(arena) | {
        "lengths": lengths,
        "horizons": np.zeros(steps, np.int32),
        "row_weights": np.zeros(len(lengths) if np.size(state.get("row_weights", ())) else 0),
        "step_weights": np.zeros(steps if np.size(state.get("step_weights", ())) else 0),
        **same,
    }
    most = {"lengths": arena.capacity, "horizons": arena.capacity}
    numbers = read_numbers(where, state, current, fields, same=("capacity", *same), most=most)
    if not _rows_fit(arena.capacity, numbers["first"], lengths, numbers["horizons"]):
        refuse(where, ["the rows of the state do not fit together"], note=UNCHANGED)
    refuse(where, _weight_problems(arena, numbers), note=UNCHANGED)
    return numbers


def _rows_fit(capacity: int, first: int, lengths: np.ndarray, ahead: np.ndarray) -> bool:
    """Return whether rows lie in the storage without overlap, and horizons end in their rows."""
    if len(lengths) == 0:
        return first == 0
    if not 0 <= first < capacity:
        return False
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
        and sum_over_rows(ahead > 0, lengths).all()
    )


def _weight_problems(arena: Arena, numbers: Mapping[str, Any]) -> list[str]:
    lengths, ahead = numbers["lengths"], numbers["horizons"]
    of_rows, of_steps = numbers["row_weights"], numbers["step_weights"]
    weights = np.append(of_rows, of_steps)
    if not ((weights >= 0) & (weights < np.inf)).all():
        return ["weights must be finite and at least 0"]
    if not weights.size:
        return []
    of_starts = sum_over_rows((ahead > 0) * (of_steps if of_steps.size else 1.0), lengths)
    row_weights = of_rows if of_rows.size else np.ones(len(lengths))
    return check_weights(row_weights, of_starts, arena.by_row)
