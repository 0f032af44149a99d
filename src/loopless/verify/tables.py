"""The smallest failing case as a table: one row for each step or sample, right beside wrong.

Imports NumPy. Tests: `tests/verify/test_verify_command.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from loopless.verify import comparing
from loopless.verify.verdicts import Failing

BY_ROW = ("rows", "rows+1", "flags", "vector", "vector_flags", "actions", "matrix", "table")
# What the truth depends on, even where the function is not told.
ALWAYS = ("next_values", "terminated", "truncated")
MOST = 40


def table(
    name: str, caller: Any, case: Mapping, got: Mapping, want: Mapping, allowed: Mapping
) -> Failing:
    """`case` by columns: what the function was given, what it said, what is right."""
    columns, numbers = _given(caller, case)
    shapes = [np.shape(x) for x in got.values() if np.ndim(x)]
    shape = shapes[0] if shapes else (max((len(x) for x in columns.values()), default=0),)
    off = np.zeros(shape, bool)
    for output, x in got.items():
        if np.shape(x) == shape:
            columns |= {f"your {output}": x, f"right {output}": want[output]}
            off |= comparing.differs(x, want[output], allowed[output])
        else:
            numbers |= {f"your {output}": _cell(x), f"right {output}": _cell(want[output])}
    head, places = _places(shape)
    rows = [
        [*labels, *(_at(np.asarray(x), place) for x in columns.values())]
        for labels, place in places[:MOST]
    ]
    wrong = [bool(off[place]) for _, place in places[:MOST]]
    return Failing(name, numbers, [*head, *columns], rows, wrong)


def _given(caller: Any, case: Mapping) -> tuple[dict[str, Any], dict[str, str]]:
    """What goes by rows, and what does not, under the names that the function has for it."""
    forms = {form.name: form for form in caller.contract.forms}
    given = dict(caller.plan.mapping)
    if "rewards" in given.values():
        given |= {x: x for x in ALWAYS if x in forms and x in case and x not in given.values()}
    columns, numbers = {}, {}
    for parameter, form in given.items():
        x = forms[form].make(case)
        if forms[form].kind in BY_ROW:
            columns[parameter] = x
        else:
            numbers[parameter] = _cell(x)
    return columns, numbers


def _places(shape: tuple[int, ...]) -> tuple[list[str], list[tuple[list[str], tuple[int, ...]]]]:
    """Headings of the first columns, and for each row its labels and its place in the arrays."""
    if len(shape) != 2:
        return ["row"], [([str(b)], (b,)) for b in range(shape[0])]
    steps, envs = shape
    places = [(t, b) for b in range(envs) for t in range(steps)]
    if envs == 1:
        return ["t"], [([str(t)], (t, b)) for t, b in places]
    return ["env", "t"], [([str(b), str(t)], (t, b)) for t, b in places]


def _at(x: np.ndarray, place: tuple[int, ...]) -> str:
    inside = all(i < n for i, n in zip(place, x.shape, strict=False))
    return _cell(x[place[: x.ndim]]) if inside else ""


def _cell(x: Any) -> str:
    if np.ndim(x):
        return "[" + ", ".join(_cell(one) for one in np.ravel(x)) + "]"
    if isinstance(x, bool | np.bool_):
        return "yes" if x else "·"
    if isinstance(x, int | np.integer):
        return str(int(x))
    return f"{float(x):.6g}"
