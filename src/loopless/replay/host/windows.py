"""What n-step windows need: which fields, of which dtypes, and which are the last row's.

The walk along a window is `numba_ring.walk`. Imports `fields`. Twin: `reference/replay.py`.
Tests: `tests/replay/test_ring.py`.
"""

from collections.abc import Mapping

import numpy as np

from loopless.replay.fields import Field

LAST = {"next_obs", "terminated", "truncated"}  # of an n-step window's last row


def window_problems(fields: Mapping[str, Field], n_step: int, gamma) -> list[str]:
    """Why windows of `n_step` rows cannot be made of `fields`."""
    if n_step == 1:
        return []
    problems = []
    real = isinstance(gamma, int | float | np.number) and not isinstance(gamma, bool)
    if not (real and 0 <= float(gamma) <= 1):
        problems.append(f"n_step={n_step} needs gamma from 0 to 1; received {gamma!r}")
    for name, dtypes in (
        ("reward", ("float32", "float64")),
        ("terminated", ("bool",)),
        ("truncated", ("bool",)),
    ):
        field = fields.get(name)
        if field is None or field.shape or field.dtype not in dtypes:
            problems.append(f"n_step={n_step} needs the field {name}, () {' or '.join(dtypes)}")
    if not any(name.split("/")[0] == "next_obs" for name in fields):
        problems.append(f"n_step={n_step} needs the field next_obs")
    return problems
