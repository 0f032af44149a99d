"""Losses, statistics and slopes of positions, from the rewards of their actions and log π of them.

Everything is [w, ...] as in `avatarl_targets`, in the caller's library. Imports that and `arrays`.
Loop twin: `reference.avatarl`. Tests: `tests/kernels/test_avatarl_*.py`.
"""

from typing import Any, NamedTuple

from loopless.arrays.library import Library
from loopless.kernels.avatarl.rewards import TINY

STATS = ("gold_reward", "gold_rewarded", "kept", "actions", "kl", "entropy")
FLOOR = 1e-10  # in the logarithms of the published original


class Judged(NamedTuple):
    """What positions come to; ∂L/∂z_j = π_j (alpha + bonus h_j) − less_j, h as in `vocabulary`."""

    losses: Any  # [...]
    stats: dict[str, Any]  # of [...]
    alpha: Any  # [...]
    less: Any  # [w, ...]
    bonus: Any  # a number


def judged(
    library: Library, variant: str, given, log_pi, present, is_gold, entropy, mean, rate, beta
) -> Judged:
    """From the rewards that are given, and log π of the student.

    `entropy` and `mean` are those of the student's whole row, [...], as a survey tells them.
    """
    xp, wide = library.xp, given.dtype
    n = library.cast(present.sum(0), wide)
    divisor = xp.ones_like(n) if variant == "fixed" else n + TINY
    logs, factor, bonus = log_pi, None, beta if variant in ("fixed", "original") else 0.0
    if variant == "original":
        pi = xp.exp(log_pi)
        logs, factor = xp.log(pi + FLOOR), pi / (pi + FLOOR)
    total = given.sum(0)
    gained = xp.where(given > 0, given * logs, 0).sum(0)
    shares = given / xp.where(total > 0, total, 1)
    divergence = xp.where(shares > 0, shares * (xp.log(shares) - logs), 0).sum(0)
    # The derivative, (π_j W − R_j)/(n τ) + β π_j (h_j − Σ π h), by its two numbers a row.
    pushed = given if factor is None else given * factor
    alpha = pushed.sum(0) * rate / divisor - bonus * mean
    less = pushed * (rate / divisor)
    if variant == "subset":  # seen over the vocabulary, but learned over the actions alone
        gained, less = _subset(library, log_pi, present, given, total, divisor, rate)
        alpha = xp.zeros_like(total)
    on_gold = xp.where(is_gold, given, 0).sum(0)
    rewarded = library.cast(on_gold > 0, wide)
    kept = library.cast((given > 0).sum(0), wide)
    stats = on_gold, rewarded, kept, n, divergence, entropy
    losses = -gained / divisor - bonus * entropy
    return Judged(losses, dict(zip(STATS, stats, strict=True)), alpha, less, bonus)


def _subset(library: Library, log_pi, present, given, total, divisor, rate):
    """Σ R log q, and the derivative at each action: q = softmax on the actions alone."""
    xp = library.xp
    inside = xp.where(present, log_pi, -xp.inf)
    peak = xp.amax(inside, 0)
    log_q = log_pi - peak - xp.log(xp.exp(inside - peak).sum(0))
    gained = xp.where(given > 0, given * log_q, 0).sum(0)
    pushed = xp.where(present, total * xp.exp(log_q), 0)
    return gained, (given - pushed) * (rate / divisor)
