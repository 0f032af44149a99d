"""Rows on their way into the episodic buffer: checked as a whole, then arrays and horizons.

One row or many laid end to end, from `add_episode` or from padded arrays. Imports `casts`,
`fields`, `refusals`, `segments` and `stores`. Tests: `tests/replay/test_episodic_declared.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopless.refusals import check_names, list_first, refuse
from loopless.replay.casts import convert_all
from loopless.replay.fields import Field
from loopless.replay.host.episodic.segments import horizons, odd_run, places_in_runs, sums_over_rows
from loopless.replay.host.rollout.stores import NumPyStore

UNCHANGED = "Nothing was added."


@dataclass
class Rows:
    """Checked rows, laid end to end."""

    arrays: Mapping[str, Any]
    lengths: np.ndarray
    horizons: np.ndarray
    starts: np.ndarray  # how many each row has


def read_row(
    where: str,
    given: Mapping[str, Any],
    terminals,
    valid,
    fields: Mapping[str, Field],
    convention: str,
    capacity: int,
) -> Rows:
    """One row, as `add_episode` is given it; one error for all that is wrong."""
    problems = check_names(given, fields)
    known = {name: given[name] for name in fields if name in given}
    length = _length(known)
    if length > capacity:
        problems.append(f"the episode has {length:,} steps, the buffer room for {capacity:,}")
    marks = read_flags("terminals", terminals, (length,), problems)
    if terminals is None and convention != "none":
        problems.append(f'terminals is missing, which "{convention}" needs')
    inside = read_flags("valid", valid, (length,), problems)
    arrays = convert_all(
        where, known, fields, (length,), NumPyStore(), problems=problems, note=UNCHANGED
    )
    return _mark_rows(where, arrays, np.array([length]), marks, inside, convention)


def read_padded(where: str, given: Mapping[str, Any], terminals, lengths, convention: str) -> Rows:
    """The rows of arrays [episodes, steps, ...], as `from_padded` is given them."""
    arrays = {name: np.asarray(array) for name, array in given.items()}
    like: Any = next(iter(arrays.values()), np.zeros(0))
    episodes, steps = leading = like.shape[:2] if like.ndim >= 2 else (0, 0)
    problems = [
        f"{name} has shape {array.shape}, and arrays are [episodes, steps, ...], obs {like.shape}"
        for name, array in arrays.items()
        if array.shape[:2] != leading
    ]
    refuse(where, problems)
    marks = read_flags("terminals", terminals, leading, problems)
    if terminals is None and convention != "none":
        problems.append(f'terminals is missing, which "{convention}" needs')
    lengths = np.full(episodes, steps) if lengths is None else np.asarray(lengths)
    if lengths.shape != (episodes,) or lengths.dtype.kind not in "iu":
        problems.append(f"lengths is no array ({episodes},) of integers")
    elif ((lengths < 0) | (lengths > steps)).any():
        problems.append(f"lengths are from 0 to {steps}")
    refuse(where, problems)
    inside = np.arange(steps) < lengths[:, None]
    arrays = {name: array[inside] for name, array in arrays.items()}
    marks = None if marks is None else marks[inside]
    lengths = lengths[lengths > 0].astype(np.int64)
    return _mark_rows(where, arrays, lengths, marks, None, convention)


def _mark_rows(where: str, arrays, lengths, marks, valid, convention: str) -> Rows:
    """Horizons for checked `arrays` of rows of these `lengths`."""
    steps = int(lengths.sum())
    if steps == 0:
        refuse(where, ["there is no step"], note=UNCHANGED)
    last = np.zeros(steps, bool)
    last[np.cumsum(lengths) - 1] = True
    if marks is None:
        marks = np.zeros(steps, bool)
    places = places_in_runs(marks, last) if convention == "double" else None
    if places is not None and (odd := odd_run(marks, last, places)):
        row, step, length = odd
        which = f" of row {row}" if len(lengths) > 1 else ""
        problem = (
            f"terminals{which} has {length} marked in a row from step {step} on, and "
            f'"double" marks come in pairs, or are cut by the end of the row (use "single" if '
            f"each end is marked once)"
        )
        refuse(where, [problem], note=UNCHANGED)
    ahead = horizons(marks, last, convention, valid, places)
    starts = sums_over_rows(ahead > 0, lengths)
    if not starts.all():
        none = np.flatnonzero(starts == 0)
        which = f"rows {list_first(none)} have" if len(lengths) > 1 else "the episode has"
        refuse(
            where,
            [f"{which} no step with a successor in the same segment (two steps are the least)"],
            note=UNCHANGED,
        )
    return Rows(arrays, lengths, ahead, starts)


def read_flags(name: str, given, shape: tuple[int, ...], problems: list) -> np.ndarray | None:
    """Flags by truthiness as booleans of `shape`; a last axis of 1 is dropped."""
    if given is None:
        return None
    try:
        array = np.asarray(given)
    except ValueError:
        problems.append(f"{name} is no array: its rows differ in length")
        return None
    if array.dtype.kind not in "biuf":
        problems.append(f"{name} has dtype {array.dtype}; marks are booleans or numbers")
    elif array.shape not in (shape, (*shape, 1)):
        problems.append(f"{name} has shape {array.shape}, expected {shape}")
    else:
        return (array != 0).reshape(shape)
    return None


def _length(given: Mapping[str, Any]) -> int:
    """How many steps the first array has: the others are measured by it."""
    for value in given.values():
        try:
            return len(value)
        except TypeError:
            return 0
    return 0
