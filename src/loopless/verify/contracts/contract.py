"""Define a contract, what a name after `--as` means: arguments, right answers, known mistakes.

The contracts themselves are the tables in `contracts.returns` and `contracts.losses`. This file
also says when two answers are the same: up to the rounding that dtype and case allow,

    tolerance = 100 ε · growth · magnitude          growth = min(T, 1/(1 − γλ))

where the magnitude of an entry is the sum of the absolute values of all its terms, and at least 1.
A contract that cannot compute that uses the largest finite number of the case or its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loopless.verify.cases.properties import Property
from loopless.verify.forms import Form
from loopless.verify.mutants import MUTANTS

Answer = Callable[[Mapping], dict[str, Any]]
Tolerances = Mapping[str, Any]


@dataclass(frozen=True)
class Contract:
    """One thing that a function can claim to be."""

    name: str
    forms: tuple[Form, ...]
    answer: Answer  # the loop twin on a case: each output by name
    ours: Answer  # our kernel on a case, with arrays of any library
    outputs: Mapping[str, str]  # name → kind, which says what its axes are
    properties: tuple[Property, ...]
    mistakes: Mapping[str, tuple[str, Answer]]  # name → sentence for its author, and its answer
    speed: Callable[[int], dict]  # a large case to time, from a seed
    needs: tuple[tuple[str, ...], ...] = ()  # the function must take one form of each group
    variants: tuple[dict, ...] = ({},)  # settings that a function may have built in
    settings: Callable[[Set[str]], dict] = lambda forms: {}  # implied by the forms it takes
    magnitude: Answer | None = None  # sums of absolute values, for the tolerance of each entry
    slack: float = 0.0  # a relative difference that is always accepted
    rows: bool = False  # samples without time: [B], not [T, B]
    by: tuple[str, ...] = ()  # arguments by which the first output has a gradient
    slopes: Answer | None = None  # the loop's gradients, as "by_" and the argument's name
    # Arguments whose gradient must be 0 → the mistake of a function where it is not.
    constants: Mapping[str, str] = field(default_factory=dict)

    def tolerances(self, case: Mapping, answer: Mapping, dtypes: Iterable[str]) -> dict[str, Any]:
        """Return how far each output may be off for a function that computes in these dtypes."""
        epsilons = [np.finfo(name).eps for name in dtypes if name.startswith("float")]
        epsilon = max(epsilons, default=np.finfo(np.float64).eps)
        share = max(100.0 * float(epsilon) * _growth(case), self.slack)
        largest = _largest(case, answer)
        if self.magnitude is None:
            return dict.fromkeys(answer, share * largest)
        return {
            name: share * np.where(np.isfinite(x), np.maximum(np.abs(x), 1.0), largest)
            for name, x in self.magnitude(case).items()
        }


def mistakes(label: str, answer: Callable[[Callable], Answer]) -> dict[str, tuple[str, Answer]]:
    """Return the mutants of one estimator, each with its sentence and as an answer to a case."""
    return {m.name: (m.sentence, answer(m.function)) for m in MUTANTS if m.estimator == label}


def same(answers: Mapping, right_answers: Mapping, tolerances: Tolerances) -> bool:
    """Return whether `answers` are all right; NaN is right where NaN is the right answer."""
    return all(
        np.shape(x) == np.shape(right_answers[name])
        and not differs(x, right_answers[name], tolerances[name]).any()
        for name, x in answers.items()
    )


def differs(x: Any, y: Any, tolerance: Any) -> np.ndarray:
    """Return where two arrays are not the same."""
    with np.errstate(invalid="ignore"):
        near = (np.abs(np.subtract(x, y)) <= tolerance) | (np.asarray(x) == np.asarray(y))
    return ~(near | (np.isnan(x) & np.isnan(y)))


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
