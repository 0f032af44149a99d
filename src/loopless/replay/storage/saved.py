"""Reading a saved state back: checked as a whole, so that a wrong one changes nothing.

A state is a flat dict without pickles: sizes and counters are ints, small arrays are NumPy's, and
the rows of field "a/b" stand under "data/a/b". Imports `casts`, `fields` and `refusals`. Tests:
`tests/replay/test_rollout_saved.py`.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from loopless.refusals import check_count, check_names, refuse
from loopless.replay.casts import convert_all
from loopless.replay.fields import Field

UNCHANGED = "The buffer is unchanged."


def read_numbers(
    where: str,
    state: Mapping[str, Any],
    own: Mapping[str, Any],
    fields: Iterable[str],
    *,
    same: Collection[str] = (),
    most: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Copies of all that `state` holds beside the rows of `fields`; one error for all wrong.

    `own` is what the buffer holds there now: an int from 0 up, equal if it is one of the `same`;
    or an array whose shape and dtype are kept, its numbers from 0 to `most`.
    """
    problems = check_names(state, [*(f"data/{name}" for name in fields), *own])
    read: dict[str, Any] = {}
    for name in [name for name in own if name in state]:
        given, mine = state[name], own[name]
        if isinstance(mine, np.ndarray):
            read[name] = array = np.array(given)
            if array.shape != mine.shape or array.dtype != mine.dtype:
                problems.append(f"{name} is no array {mine.shape} {mine.dtype}")
            elif most and name in most and not ((array >= 0) & (array <= most[name])).all():
                problems.append(f"{name} are not from 0 to {most[name]}")
        elif wrong := check_count(name, given, 0):
            problems += wrong
        elif name in same and given != mine:
            problems.append(f"the state has {given} {name}, the buffer {mine}")
        else:
            read[name] = int(given)
    refuse(where, problems, note=UNCHANGED)
    return read


def read_fields(
    where: str,
    state: Mapping[str, Any],
    fields: Mapping[str, Field],
    leading: tuple[int, ...],
    store,
) -> dict[str, Any]:
    """The rows of all `fields` [*leading, ...], of the very dtypes."""
    exact = {name: replace(field, casting="exact") for name, field in fields.items()}
    given = {name: state[f"data/{name}"] for name in fields}
    return convert_all(where, given, exact, leading, store, note=UNCHANGED)
