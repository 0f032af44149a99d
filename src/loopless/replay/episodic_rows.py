"""Rows on their way into the episodic buffer: checked as a whole, then arrays and horizons.

One row or many laid end to end, from `add_episode` or from padded arrays. Imports `casts`,
`fields`, `refusals`, `segments` and `stores`. Tests: `tests/replay/test_episodic.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopless.replay.casts import convert_all
from loopless.replay.fields import Field
from loopless.replay.refusals import listing, misnamed, refuse
from loopless.replay.segments import horizons, odd_run
from loopless.replay.stores import NumPyStore

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
    problems = misnamed(given, fields)
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
    lengths = np.array([length])
    return mark_rows(where, arrays, lengths, marks, inside, convention)


def mark_rows(where: str, arrays, lengths, marks, valid, convention: str) -> Rows:
    """Horizons for checked `arrays` of rows of these `lengths`."""
    steps = int(lengths.sum())
    if steps == 0:
        refuse(where, ["there is no step"], UNCHANGED)
    last = np.zeros(steps, bool)
    ends = np.cumsum(lengths)
    last[ends - 1] = True
    if marks is None:
        marks = np.zeros(steps, bool)
    if convention == "double" and (odd := odd_run(marks, last)):
        row, step, length = odd
        which = f" of row {row}" if len(lengths) > 1 else ""
        problem = (
            f"terminals{which} has {length} marked in a row from step {step} on, and "
            f'"double" marks come in pairs, or are cut by the end of the row (use "single" if '
            f"each end is marked once)"
        )
        refuse(where, [problem], UNCHANGED)
    ahead = horizons(marks, last, convention, valid)
    starts = np.add.reduceat(ahead > 0, ends - lengths, dtype=np.int64)
    if not starts.all():
        none = np.flatnonzero(starts == 0)
        which = f"rows {listing(none)} have" if len(lengths) > 1 else "the episode has"
        refuse(
            where,
            [f"{which} no step with a successor in the same segment (two steps are the least)"],
            UNCHANGED,
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
