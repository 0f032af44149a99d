"""What may go into the episodic buffer: rows and weights, checked, and where segments end.

A row is a sequence of observations, as `add_episode` takes it. It may hold several segments, each
an episode or a part of one. No pair of a state and a later one may cross from one segment to the
next. Rows are laid end to end, so that one row and a thousand take the same few array operations,
all O(steps). Loop twin: `reference.episodic`. Device twin: `device.episodes.horizons`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopless.refusals import check_names, list_first, refuse
from loopless.replay.casts import NUMPY, convert_all
from loopless.replay.fields import Field
from loopless.replay.storage.file import UNCHANGED

CONVENTIONS = ("double", "single", "none")
NOT_ADDED = "Nothing was added."
LEAST_SUM, MOST_SUM = 1e-200, 1e200  # of weights, so that draws by them lose no precision


@dataclass
class Rows:
    """Checked rows, laid end to end."""

    arrays: Mapping[str, Any]
    lengths: np.ndarray
    horizons: np.ndarray
    starts: np.ndarray  # how many each row has


def read_row(
    where: str,
    values: Mapping[str, Any],
    terminals,
    valid,
    fields: Mapping[str, Field],
    convention: str,
    capacity: int,
) -> Rows:
    """Return one row from the arguments of `add_episode`; raise if something is wrong."""
    problems = check_names(values, fields)
    known = {name: values[name] for name in fields if name in values}
    length = _count_steps(known)
    if length > capacity:
        problems.append(f"the episode has {length:,} steps, more than capacity={capacity:,}")
    marks = _read_marks(terminals, (length,), convention, problems)
    inside = _read_flags("valid", valid, (length,), problems)
    arrays = convert_all(where, known, fields, (length,), NUMPY, problems=problems, note=NOT_ADDED)
    return _mark_rows(where, arrays, np.array([length]), marks, inside, convention)


def read_padded(where: str, values: Mapping[str, Any], terminals, lengths, convention: str) -> Rows:
    """Return the rows of arrays [episodes, steps, ...], the arguments of `from_padded`."""
    arrays = {name: np.asarray(array) for name, array in values.items()}
    like: Any = next(iter(arrays.values()), np.zeros(0))
    episodes, steps = leading = like.shape[:2] if like.ndim >= 2 else (0, 0)
    problems = [
        f"{name} has shape {array.shape}, but arrays are [episodes, steps, ...], obs {like.shape}"
        for name, array in arrays.items()
        if array.shape[:2] != leading
    ]
    refuse(where, problems)
    marks = _read_marks(terminals, leading, convention, problems)
    lengths = np.full(episodes, steps) if lengths is None else np.asarray(lengths)
    if lengths.shape != (episodes,) or lengths.dtype.kind not in "iu":
        problems.append(f"lengths must be integers of shape ({episodes},)")
    elif ((lengths < 0) | (lengths > steps)).any():
        problems.append(f"lengths must be from 0 to {steps}")
    refuse(where, problems)
    inside = np.arange(steps) < lengths[:, None]
    arrays = {name: array[inside] for name, array in arrays.items()}
    marks = None if marks is None else marks[inside]
    lengths = lengths[lengths > 0].astype(np.int64)
    return _mark_rows(where, arrays, lengths, marks, None, convention)


def _mark_rows(where: str, arrays, lengths, marks, valid, convention: str) -> Rows:
    """Return checked `arrays` with the horizons and starts of rows of these `lengths`."""
    steps, several = int(lengths.sum()), len(lengths) > 1
    if steps == 0:
        refuse(where, ["the rows have no step"], note=NOT_ADDED)
    last = np.zeros(steps, bool)
    last[np.cumsum(lengths) - 1] = True
    if marks is None:
        marks = np.zeros(steps, bool)
    places = places_in_runs(marks, last) if convention == "double" else None
    if places is not None and (odd := odd_run(marks, last, places)):
        row, step, length = odd
        which = f" of row {row}" if several else ""
        problem = (
            f"terminals{which} has a run of {length} marks from step {step} on, but "
            f'"double" marks come in pairs, unless the end of the row cuts them (use "single" if '
            f"each end is marked once)"
        )
        refuse(where, [problem], note=NOT_ADDED)
    ahead = horizons(marks, last, convention, valid, places)
    starts = sum_over_rows(ahead > 0, lengths)
    if not starts.all():
        empty = np.flatnonzero(starts == 0)
        which = f"rows {list_first(empty)} have" if several else "the episode has"
        problem = f"{which} no step with a later one in the same segment (a row needs two steps)"
        refuse(where, [problem], note=NOT_ADDED)
    return Rows(arrays, lengths, ahead, starts)


def _read_marks(
    terminals, shape: tuple[int, ...], convention: str, problems: list
) -> np.ndarray | None:
    if terminals is None and convention != "none":
        problems.append(f'terminals is missing, which "{convention}" needs')
    return _read_flags("terminals", terminals, shape, problems)


def _read_flags(name: str, values, shape: tuple[int, ...], problems: list) -> np.ndarray | None:
    """Return `values` != 0 in `shape`, without a last axis of 1; None if missing or wrong."""
    if values is None:
        return None
    try:
        array = np.asarray(values)
    except ValueError:
        problems.append(f"{name} is not an array: its parts differ in length")
        return None
    if array.dtype.kind not in "biuf":
        problems.append(f"{name} has dtype {array.dtype}; marks must be booleans or numbers")
    elif array.shape not in (shape, (*shape, 1)):
        problems.append(f"{name} has shape {array.shape}, expected {shape}")
    else:
        return (array != 0).reshape(shape)
    return None


def _count_steps(values: Mapping[str, Any]) -> int:
    """Return how many steps the first array has: the others are compared with it."""
    for value in values.values():
        try:
            return len(value)
        except TypeError:
            return 0
    return 0


def horizons(marks, last, convention: str, valid=None, places=None) -> np.ndarray:
    """Return how many steps each step is before its segment's end, int32 [steps]; 0 is no start.

        n_t = end(t) − t,  end(t) the first segment end ≥ t

    `marks` and `last`, the last steps of rows, are boolean [steps]. Segment ends are

        double   the 2nd, 4th, … of each run of marks: an episode's acting state and its final
                 observation are both marked
        single   every mark
        none     no mark

    and the last step of each row. Where `valid` is false the step is out of bounds: it is neither
    start nor successor, and the step before it ends a segment. Its mark, if any, counts. `places`
    are the `places_in_runs`, if they are known.
    """
    ends = last.copy()
    if convention == "single":
        ends |= marks
    elif convention == "double":
        places = places_in_runs(marks, last) if places is None else places
        ends |= marks & (places % 2 == 0)
    if valid is not None:
        ends |= ~valid
        ends[:-1] |= ~valid[1:]
    steps = np.arange(ends.size, dtype=np.int32)
    ahead = np.where(ends, steps, np.int32(ends.size))
    return np.minimum.accumulate(ahead[::-1])[::-1] - steps


def places_in_runs(marks, last) -> np.ndarray:
    """Return 1 at the first mark of a run within a row, 2 at the second, …; 0 without a mark."""
    steps = np.arange(marks.size)
    before = np.where(marks, -1, steps)  # the step just before the run that a step is in
    first_of_later_rows = np.flatnonzero(last[:-1]) + 1
    cut = first_of_later_rows[marks[first_of_later_rows]]
    before[cut] = cut - 1
    return steps - np.maximum.accumulate(before)


def odd_run(marks, last, places=None) -> tuple[int, int, int] | None:
    """Return (row, step within the row, length) of the first run with an odd number of marks.

    Runs that the end of a row cuts off may be odd. None if there is no such run. `places` are the
    `places_in_runs`, if they are known.
    """
    places = places_in_runs(marks, last) if places is None else places
    closed = marks & ~last
    closed[:-1] &= ~marks[1:]
    odd = np.flatnonzero(closed & (places % 2 == 1))
    if odd.size == 0:
        return None
    length = int(places[odd[0]])
    step = int(odd[0]) - length + 1
    earlier = np.flatnonzero(last[:step])
    begin = int(earlier[-1]) + 1 if earlier.size else 0
    return earlier.size, step - begin, length


def sum_over_rows(of_steps, lengths) -> np.ndarray:
    """Return sums over the steps of each row: int64 of flags, float64 of numbers."""
    begins = np.cumsum(lengths) - lengths
    if of_steps.dtype == bool:
        return np.add.reduceat(of_steps, begins, dtype=np.int64)
    with np.errstate(over="ignore"):
        return np.add.reduceat(of_steps, begins, dtype=np.float64)


def read_weights(where: str, weights, count: int) -> np.ndarray:
    """Return `weights` as float64 [count]; an error unless all are finite and at least 0."""
    try:
        array = np.asarray(weights)
    except ValueError:  # ragged
        array = np.empty(0, object)
    if array.shape != (count,) or array.dtype.kind not in "iuf":
        received = f"received {array.shape} {array.dtype}"
        refuse(where, [f"weights must be numbers [{count:,}]; {received}"], note=UNCHANGED)
    array = array.astype(np.float64)
    bad = np.flatnonzero(~((array >= 0) & (array < np.inf)))
    if bad.size:
        first = f"number {bad[0]} is {array[bad[0]]}"
        refuse(where, [f"weights must be finite and at least 0; {first}"], note=UNCHANGED)
    return array


def row_chances(row_weights: np.ndarray, of_starts: np.ndarray, by_row: bool) -> np.ndarray:
    """Return how likely each row is, up to a factor; `of_starts` is the sum of its starts' weights.

        law="episode" (`by_row`)   P(row) ∝ w_row, of the rows with a start of weight > 0
        law="transition"           P(row) ∝ w_row · Σ w_start

    Within a row, P(start) ∝ w_start.
    """
    return row_weights * ((of_starts > 0) if by_row else of_starts)


def check_weights(row_weights: np.ndarray, of_starts: np.ndarray, by_row: bool) -> list[str]:
    """Return what is wrong with weights that are, one by one, finite and at least 0."""
    with np.errstate(over="ignore"):
        total = row_chances(row_weights, of_starts, by_row).sum()
    if total == 0:
        return ["weights must not all be 0: some start must have one, in a row that has one"]
    sums = np.append(of_starts[of_starts > 0], total)
    if not ((sums > LEAST_SUM) & (sums < MOST_SUM)).all():
        worst = sums.max() if sums.max() >= MOST_SUM else sums.min()
        return [f"weights sum to {worst}, not to between {LEAST_SUM} and {MOST_SUM} (scale them)"]
    return []
