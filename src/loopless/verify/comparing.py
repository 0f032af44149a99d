"""When two answers are the same: up to the rounding that their dtype and their case allow.

    tolerance = 100 ε · growth · scale          growth = min(T, 1/(1 − γλ)), what a sum can gather

`scale` is the largest finite number of the case or its answer. Imports NumPy. Tests:
`tests/verify/test_comparing.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


def tolerance(case: Mapping, answer: Mapping, dtypes: Iterable[str], slack: float = 0.0) -> float:
    """How far an answer may be off, for a function that computes in the coarsest of `dtypes`."""
    floats = [np.finfo(name).eps for name in dtypes if name.startswith("float")]
    epsilon = max(floats, default=np.finfo(np.float64).eps)
    return max(100.0 * float(epsilon) * _growth(case), slack) * _scale(case, answer)


def _growth(case: Mapping) -> float:
    if "gamma" not in case or "rewards" not in case:
        return 1.0
    steps = float(np.shape(case["rewards"])[0])
    rest = 1.0 - float(case["gamma"]) * float(case.get("lambda_", 1.0))
    return max(1.0, min(steps, 1.0 / rest if rest > 0 else steps))


def _scale(case: Mapping, answer: Mapping) -> float:
    largest = 1.0
    for x in (*case.values(), *answer.values()):
        x = np.asarray(x)
        if x.dtype.kind == "f":
            finite = np.abs(x[np.isfinite(x)])
            largest = max(largest, float(finite.max(initial=0.0)))
    return largest


def same(got: Mapping[str, Any], want: Mapping[str, Any], allowed: float) -> bool:
    """Whether all that `got` has is what `want` says; NaN belongs where NaN is wanted."""
    return all(
        np.shape(x) == np.shape(want[name]) and not differs(x, want[name], allowed).any()
        for name, x in got.items()
    )


def differs(x: Any, y: Any, allowed: float) -> np.ndarray:
    """Where two arrays are not the same."""
    return ~np.isclose(x, y, rtol=allowed if allowed < 1e-3 else 0.0, atol=allowed, equal_nan=True)
