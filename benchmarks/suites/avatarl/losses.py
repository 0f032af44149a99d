"""What the loss is measured on: logits of student and critic, gold tokens, and the right answer.

Gold is drawn from the critic, and the student is a noisy copy of it. Imports NumPy and `plain`.
Tests: `tests/suites/avatarl/test_bench_avatarl_losses.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from loopless.bench.contest import Contender, Verdict
from suites.avatarl.plain import METHOD, Answer, answer

VARIANTS = ("fixed", "original", "subset", "full")
TOLERANCE = 1e-5  # of the loss by its size, and of a position's gradient, whose parts are below 1
CLOSE = 1e-4  # from a threshold: there float32 may rightly answer otherwise


@dataclass(frozen=True)
class Found:
    """A loss and its gradient [N, V], or None, as NumPy; of which variant they are."""

    variant: str
    loss: Any
    gradient: Any


@dataclass(frozen=True)
class Losses:
    """N positions of V tokens, k of them proposed by either side."""

    vocabulary: int
    top_k: int
    count: int

    @property
    def label(self) -> str:
        return f"V = {self.vocabulary}, k = {self.top_k}, N = {self.count}"

    @property
    def size(self) -> int:
        return self.vocabulary * self.count

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Student logits and critic logits [N, V], float32, and gold tokens [N]."""
        return _drawn(self)

    def answer(self, variant: str) -> Answer:
        return _answer(self, variant)

    def check(self, contender: Contender, call: Any, output: Any) -> Verdict:
        """Loss and gradient against dense float64."""
        found, expected = call.read(output), self.answer(call.read(output).variant)
        loss = expected.losses.mean()
        error = abs(float(found.loss) - loss) / abs(loss)
        error = max(error, self.count * _apart(found.gradient, expected.gradients / self.count))
        wrong = not error <= contender.tolerance
        return Verdict(f"off by up to {error:.2g}" if wrong else "", error)


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    if one.shape != other.shape:
        return float("inf")
    return float(np.max(np.abs(one - other)))


@lru_cache(maxsize=2)
def _drawn(case: Losses) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows in which every answer is clear; there are few others, and spare rows for them."""
    generator = np.random.default_rng(0)
    count = case.count + case.count // 8 + 8
    critic = 2 * generator.standard_normal((count, case.vocabulary), dtype=np.float32)
    student = 0.7 * critic + generator.standard_normal(critic.shape, dtype=np.float32)
    noise = generator.gumbel(size=critic.shape).astype(np.float32)
    gold = (critic + noise).argmax(-1)
    clear = np.ones(count, bool)
    for variant in ("fixed", "full"):
        clear &= answer(student, critic, gold, case.top_k, variant, METHOD).margins > CLOSE
    chosen = np.flatnonzero(clear)[: case.count]
    if len(chosen) < case.count:
        raise RuntimeError(f"only {len(chosen)} of {count} rows are clear of every threshold")
    return student[chosen], critic[chosen], gold[chosen]


@lru_cache(maxsize=4)
def _answer(case: Losses, variant: str) -> Answer:
    return answer(*case.arrays, case.top_k, variant, METHOD)
