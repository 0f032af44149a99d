"""The cases for the loss, and the right answer: loss and gradient in dense float64 NumPy.

Gold is drawn from the critic, and the student is a noisy copy of it. The answer is computed in
blocks of positions without attention to speed; tests compare it with the loop twin.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from loopless.bench.contest import Contender, Verdict

BLOCK = 1 << 22  # numbers in a block of positions
CROSS_ENTROPY = "cross-entropy"  # a further loss, beside the variants of AvataRL's
TINY, FLOOR = 1e-8, 1e-10  # added by the published code in divisions and in logarithms


@dataclass(frozen=True)
class Method:
    """The coefficients of the method, as published."""

    reality_weight: float = 0.7
    critic_weight: float = 0.3
    label_smoothing: float = 0.1
    reward_scale: float = 100.0
    reward_clamp: float = 1.5
    entropy_coefficient: float = 0.01


METHOD = Method()


@dataclass(frozen=True)
class Answer:
    """Losses [N], their gradients [N, V] by the student's logits, and margins [N].

    A margin is the least relative distance of a product from its threshold: where it is small,
    rounding may change the answer.
    """

    losses: np.ndarray
    gradients: np.ndarray
    margins: np.ndarray


def answer(student, critic, gold, k: int, variant: str, method: Method = METHOD) -> Answer:
    """Return the right answer for a variant of `avatarl_loss`, or for CROSS_ENTROPY."""
    length = max(1, BLOCK // student.shape[-1])
    parts = [
        _block(student[rows], critic[rows], gold[rows], k, variant, method)
        for rows in (slice(i, i + length) for i in range(0, len(gold), length))
    ]
    return Answer(*map(np.concatenate, zip(*parts, strict=True)))


def _block(z, c, gold, k, variant, method: Method):
    z, c = np.asarray(z, np.float64), np.asarray(c, np.float64)
    rows, beta = np.arange(len(gold)), method.entropy_coefficient
    is_gold = np.zeros(z.shape, bool)
    is_gold[rows, gold] = True
    if variant == CROSS_ENTROPY:
        log_pi = _log_softmax(z)
        return -log_pi[is_gold], np.exp(log_pi) - is_gold, np.full(len(gold), np.inf)
    chosen = _best(z, k) | _best(c, k) | is_gold
    n = chosen.sum(-1, keepdims=True)
    smoothing = method.label_smoothing
    reality = np.where(is_gold, 1 - smoothing, smoothing / np.maximum(n - 1, 1))[chosen]
    mentor = np.exp(_log_softmax(c)[chosen])
    u = np.zeros_like(z)
    u[chosen] = reality**method.reality_weight * mentor**method.critic_weight
    rewards, margins = (_target if variant == "fixed" else _rewards)(u, chosen, is_gold, n, method)
    divisor = 1 if variant == "fixed" else n + TINY
    tau = 1 + beta if variant in ("subset", "full") else 1
    log_pi = _log_softmax(np.where(chosen, z, -np.inf) / tau if variant == "subset" else z / tau)
    pi = np.exp(log_pi)
    floor = FLOOR if variant == "original" else 0
    with np.errstate(divide="ignore"):
        logs = np.log(pi + floor)
    a = np.divide(pi, pi + floor, out=np.ones_like(pi), where=pi + floor > 0)
    logs = np.where(np.isfinite(logs), logs, 0)  # their probability is 0, so they do not count
    pushed = rewards * a
    losses = -(rewards * logs).sum(-1, keepdims=True) / divisor
    gradients = (pi * pushed.sum(-1, keepdims=True) - pushed) / (divisor * tau)
    if variant in ("fixed", "original"):
        h = logs + a
        losses += beta * (pi * logs).sum(-1, keepdims=True)
        gradients += beta * pi * (h - (pi * h).sum(-1, keepdims=True))
    return losses[:, 0], gradients, margins


def _rewards(u, chosen, is_gold, n, method: Method):
    total = u.sum(-1, keepdims=True)
    p, threshold = u / (total + TINY), total / (n + TINY)
    scaled = np.where(chosen & (p > threshold), method.reward_scale * p, 0)
    largest = scaled.max(-1, keepdims=True)
    clamped = scaled * method.reward_clamp / (largest + TINY)
    return np.where(largest > method.reward_clamp, clamped, scaled), _margins(p, threshold, chosen)


def _target(u, chosen, is_gold, n, method: Method):
    p = u / u.sum(-1, keepdims=True)
    target = np.where(p * n >= 1, p, 0)
    target = np.where(is_gold, target.max(-1, keepdims=True), target)
    return target / target.sum(-1, keepdims=True), _margins(p, 1 / n, chosen)


def _margins(p, threshold, chosen):
    return np.where(chosen, np.abs(p / threshold - 1), np.inf).min(-1)


def _best(x, k):
    """Return whether each token is among the k largest of its row, in which no two are equal."""
    k = min(k, x.shape[-1])
    return x >= np.partition(x, -k, -1)[:, -k, None]


def _log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


VARIANTS = ("fixed", "original", "subset", "full")
TOLERANCE = 1e-5  # relative for the loss, absolute for a position's gradient
CLOSE = 1e-4  # to a threshold: a float32 answer may differ there and still be right


@dataclass(frozen=True)
class Answered:
    """A contender's loss and gradient [N, V] as NumPy, and the variant that they are of."""

    variant: str
    loss: Any
    gradient: Any


@dataclass(frozen=True)
class Losses:
    """N positions with V logits each; student and critic propose k tokens each."""

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
        """Return student logits and critic logits [N, V], float32, and gold tokens [N]."""
        return _drawn(self)

    @lru_cache(maxsize=4)  # noqa: B019  (cases live as long as the suite)
    def answer(self, variant: str) -> Answer:
        return answer(*self.arrays, self.top_k, variant)

    def check(self, contender: Contender, call: Any, output: Any) -> Verdict:
        """Compare loss and gradient with the answer in float64."""
        answered = call.read(output)
        expected = self.answer(answered.variant)
        loss, right = expected.losses.mean(), expected.gradients / self.count
        error = float("inf")
        if answered.gradient.shape == right.shape:
            error = self.count * float(np.max(np.abs(answered.gradient - right)))
        error = max(abs(float(answered.loss) - loss) / abs(loss), error)
        return Verdict("" if error <= contender.tolerance else f"off by up to {error:.2g}", error)


@lru_cache(maxsize=2)
def _drawn(case: Losses) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return positions that are clear of every threshold; spares replace the few that are not."""
    generator = np.random.default_rng(0)
    count = case.count + case.count // 8 + 8
    critic = 2 * generator.standard_normal((count, case.vocabulary), dtype=np.float32)
    student = 0.7 * critic + generator.standard_normal(critic.shape, dtype=np.float32)
    noise = generator.gumbel(size=critic.shape).astype(np.float32)
    gold = (critic + noise).argmax(-1)
    clear = np.ones(count, bool)
    for variant in ("fixed", "full"):
        clear &= answer(student, critic, gold, case.top_k, variant).margins > CLOSE
    chosen = np.flatnonzero(clear)[: case.count]
    if len(chosen) < case.count:
        raise RuntimeError(f"only {len(chosen)} of {count} rows are clear of every threshold")
    return student[chosen], critic[chosen], gold[chosen]
