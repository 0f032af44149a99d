"""What may go into the episodic buffer: rows and weights, checked, and where segments end.

A row is a sequence of observations, as `add_episode` takes it. It may hold several segments, each
an episode or a part of one. No pair of a state and a later one may cross from one segment to the
next. Rows are laid end to end, so that one row and a thousand take the same two compiled calls.
Loop twin: `reference.episodic`. Device twin: `device.episodes.horizons`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopless.refusals import check_names, list_first, refuse
from loopless.replay.casts import NUMPY, convert_all
from loopless.replay.fields import Field
from loopless.replay.sampling import kernels
from loopless.replay.storage.file import UNCHANGED

CONVENTIONS = ("double", "single", "none")  # numbered as in `compiled.segments`
NO_FLAGS = np.zeros(0, np.bool_)
_BOOL, _INT32, _INT64 = NO_FLAGS.dtype, np.dtype(np.int32), np.dtype(np.int64)
NOT_ADDED = "Nothing was added."
LEAST_SUM, MOST_SUM = 1e-200, 1e200  # of weights, so that draws by them lose no precision


@dataclass
class Rows:
    """Checked rows, laid end to end."""

    arrays: Mapping[str, Any]
    lengths: np.ndarray
    horizons: np.ndarray
    starts: np.ndarray  # how many each row has


class PlainRows:
    """Reads rows that are arrays of the declared dtypes, which a look at types and shapes tells.

    Short episodes spend their time in checks, and nearly all of them are of this kind. `read`
    returns None for everything else, also for what is wrong: `read_row` casts, and says why not.
    """

    def __init__(self, fields: Mapping[str, Field], convention: str, capacity: int) -> None:
        self._fields = {name: (np.dtype(f.dtype), f.shape) for name, f in fields.items()}
        self._marked, self._capacity = convention != "none", capacity
        self._kind = CONVENTIONS.index(convention)

    def read(self, values: Mapping[str, Any], terminals) -> Rows | None:
        """Return one row from the arguments of `add_episode`, or None."""
        if len(values) != len(self._fields):
            return None
        length = -1
        for name, (dtype, shape) in self._fields.items():
            array: Any = values.get(name)
            if array.__class__ is not np.ndarray or array.dtype is not dtype:
                return None
            if length < 0:
                length = len(array) if array.ndim else 0
            if array.shape != (length, *shape):
                return None
        if terminals is None:
            if self._marked:
                return None
            terminals = NO_FLAGS
        else:
            if terminals.__class__ is not np.ndarray or terminals.dtype is not _BOOL:
                return None
            if terminals.shape != (length,) or not terminals.flags.carray:
                return None
        if not 0 < length <= self._capacity:
            return None
        lengths, starts, ahead = np.array([length]), np.empty(1, _INT64), np.empty(length, _INT32)
        mark = kernels().segments.mark
        problem = mark(terminals, NO_FLAGS, lengths, self._kind, ahead, starts)
        return None if problem[0] else Rows(values, lengths, ahead, starts)


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


def read_rows(
    where: str,
    values: Mapping[str, Any],
    lengths,
    terminals,
    valid,
    fields: Mapping[str, Field],
    convention: str,
    capacity: int,
) -> Rows:
    """Return rows laid end to end, from the arguments of `add_episodes`; raise if wrong."""
    problems = check_names(values, fields)
    known = {name: values[name] for name in fields if name in values}
    total, counts = _count_steps(known), np.asarray(lengths)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or not counts.size:
        problems.append("lengths must be integers [episodes], one or more")
        counts = np.array([total])
    elif counts.min() < 0 or counts.sum() != total:
        problems.append(
            f"lengths must be at least 0 and sum to the number of steps, {total:,}; received "
            f"{list_first(counts)}, which sum to {counts.sum():,}"
        )
    if counts.max() > capacity:
        problems.append(f"an episode has {counts.max():,} steps, more than capacity={capacity:,}")
    marks = _read_marks(terminals, (total,), convention, problems)
    inside = _read_flags("valid", valid, (total,), problems)
    arrays = convert_all(where, known, fields, (total,), NUMPY, problems=problems, note=NOT_ADDED)
    return _mark_rows(where, arrays, counts.astype(np.int64), marks, inside, convention)


def read_padded(
    where: str, values: Mapping[str, Any], terminals, lengths, valid, convention: str
) -> Rows:
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
    real = _read_flags("valid", valid, leading, problems)
    if lengths is None and real is not None:
        last = steps - np.argmax(real[:, ::-1], 1) if steps else np.zeros(episodes, np.int64)
        lengths = np.where(real.any(1), last, 0)
    lengths = np.full(episodes, steps) if lengths is None else np.asarray(lengths)
    if lengths.shape != (episodes,) or lengths.dtype.kind not in "iu":
        problems.append(f"lengths must be integers of shape ({episodes},)")
    elif ((lengths < 0) | (lengths > steps)).any():
        problems.append(f"lengths must be from 0 to {steps}")
    refuse(where, problems)
    inside = np.arange(steps) < lengths[:, None]
    arrays = {name: array[inside] for name, array in arrays.items()}
    marks = None if marks is None else marks[inside]
    real = None if real is None else real[inside]
    lengths = lengths[lengths > 0].astype(np.int64)
    return _mark_rows(where, arrays, lengths, marks, real, convention)


def _mark_rows(where: str, arrays, lengths, marks, valid, convention: str) -> Rows:
    """Return checked `arrays` with the horizons and starts of rows of these `lengths`."""
    if lengths.sum() == 0:
        refuse(where, ["the rows have no step"], note=NOT_ADDED)
    ahead, starts, (problem, row, step, run) = mark_rows(marks, lengths, convention, valid)
    several, segments = len(lengths) > 1, kernels().segments
    if problem == segments.ODD_RUN:
        which = f" of row {row}" if several else ""
        problem = (
            f"terminals{which} has a run of {run} marks from step {step} on, but "
            f'"double" marks come in pairs, unless the end of the row cuts them (use "single" if '
            f"each end is marked once)"
        )
        refuse(where, [problem], note=NOT_ADDED)
    if problem == segments.NO_START:
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


def mark_rows(marks, lengths: np.ndarray, convention: str, valid=None) -> tuple[Any, ...]:
    """Return the horizons of steps, int32, the starts of rows, and what is wrong first.

    `marks` and `valid` are boolean [steps] or None. `compiled.segments.mark` says what horizons
    are, and in which form a mistake comes.
    """
    ahead, starts = np.empty(int(lengths.sum()), _INT32), np.empty(lengths.size, _INT64)
    marks = NO_FLAGS if marks is None else marks
    valid = NO_FLAGS if valid is None else valid
    kind = CONVENTIONS.index(convention)
    return ahead, starts, kernels().segments.mark(marks, valid, lengths, kind, ahead, starts)


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
