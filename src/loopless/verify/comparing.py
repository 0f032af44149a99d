"""When two answers are the same: up to the rounding that their dtype and their case allow.

    tolerance = 100 ε · growth · magnitude          growth = min(T, 1/(1 − γλ))

The magnitude of an entry is the sum of the sizes of all that it is a sum of, where the contract
can say (its twin on a case in which nothing cancels), and at least 1; else it is the largest finite
number of the case or its answer. Imports NumPy. Tests: `tests/verify/test_sources.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from loopless.verify.contracts.contract import Contract

Allowed = Mapping[str, Any]


def tolerance(
    contract: Contract, case: Mapping, answer: Mapping, dtypes: Iterable[str]
) -> dict[str, Any]:
    """How far each output may be off, for a function that computes in the coarsest of `dtypes`."""
    floats = [np.finfo(name).eps for name in dtypes if name.startswith("float")]
    epsilon = max(floats, default=np.finfo(np.float64).eps)
    share = max(100.0 * float(epsilon) * _growth(case), contract.slack)
    largest = _largest(case, answer)
    if contract.magnitude is None:
        return dict.fromkeys(answer, share * largest)
    sizes = contract.magnitude(case)
    return {
        name: share * np.where(np.isfinite(x), np.maximum(np.abs(x), 1.0), largest)
        for name, x in sizes.items()
    }


def _growth(case: Mapping) -> float:
    if "gamma" not in case or "rewards" not in case:
        return 1.0
    steps = float(np.shape(case["rewards"])[0])
    rest = 1.0 - float(case["gamma"]) * float(case.get("lambda_", 1.0))
    return max(1.0, min(steps, 1.0 / rest if rest > 0 else steps))


def _largest(case: Mapping, answer: Mapping) -> float:
    largest = 1.0
    for x in (*case.values(), *answer.values()):
        x = np.asarray(x)
        if x.dtype.kind == "f":
            finite = np.abs(x[np.isfinite(x)])
            largest = max(largest, float(finite.max(initial=0.0)))
    return largest


def same(got: Mapping[str, Any], want: Mapping[str, Any], allowed: Allowed) -> bool:
    """Whether all that `got` has is what `want` says; NaN belongs where NaN is wanted."""
    return all(
        np.shape(x) == np.shape(want[name]) and not differs(x, want[name], allowed[name]).any()
        for name, x in got.items()
    )


def differs(x: Any, y: Any, allowed: Any) -> np.ndarray:
    """Where two arrays are not the same."""
    with np.errstate(invalid="ignore"):
        near = (np.abs(np.subtract(x, y)) <= allowed) | (np.asarray(x) == np.asarray(y))
    return ~(near | (np.isnan(x) & np.isnan(y)))
