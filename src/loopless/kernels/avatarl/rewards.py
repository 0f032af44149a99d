"""What AvataRL makes of two experts: the action sets, and what each action in them is worth.

Everything here is [w, ...] in the caller's library: w = 2k + 1 actions, gold first, or a whole
vocabulary, some of it present. Actions stand before positions, so that sums over them go
elementwise over the positions. Products of experts are sums of logarithms. Imports `arrays` only.
Loop twin: `reference.avatarl`. Tests: `tests/kernels/test_avatarl_*.py`.
"""

from typing import Any, NamedTuple

from loopless.arrays.library import Library

VARIANTS = ("fixed", "original", "subset", "full")
TINY = 1e-8  # in the divisions of the published code


class Numbers(NamedTuple):
    """The method's numbers; the weights are numbers or [...], None if confidence sets them."""

    reality_weight: Any
    critic_weight: Any
    label_smoothing: Any
    reward_scale: Any
    reward_clamp: Any


def actions(library: Library, gold, student_top, critic_top) -> tuple[Any, Any]:
    """Gold, the student's and the critic's best, and where each stands for the first time.

    The tops are [..., k] as surveyed, the results [w, ...]. Neither top-k holds a token twice, so
    that only the two are compared, and gold with both.
    """
    xp = library.xp
    gold = gold[None]
    student_top, critic_top = xp.moveaxis(student_top, -1, 0), xp.moveaxis(critic_top, -1, 0)
    found = xp.concatenate([gold, student_top, critic_top], 0)
    of_student = student_top != gold
    again = (critic_top[:, None] == student_top[None]).any(1)
    of_critic = (critic_top != gold) & ~again
    return found, xp.concatenate([gold == gold, of_student, of_critic], 0)


def rewards(library: Library, variant: str, log_mentor, present, is_gold, numbers: Numbers) -> Any:
    """Each action's reward, and in "fixed" its share of the target; 0 where not present.

    `is_gold` spreads over [w, ...] and is true at one present action of each position.
    """
    xp = library.xp
    wide = log_mentor.dtype
    n = library.cast(present.sum(0), wide)
    log_u = _products(library, variant, log_mentor, present, is_gold, n, numbers)
    if variant == "fixed":
        # The largest is 1 and kept, and gold is raised to it: also where all products are 0.
        u = xp.exp(log_u - _finite(xp, xp.amax(log_u, 0)))
        kept = xp.where(is_gold, 1, xp.where(u * n >= u.sum(0), u, 0))
        return kept / kept.sum(0)
    u = xp.exp(log_u)
    total = u.sum(0)
    p = u / (total + TINY)
    # The published threshold: the mean of the products, where the mean of p would be 1/n.
    scaled = xp.where(present & (p > total / (n + TINY)), numbers.reward_scale * p, 0)
    largest = xp.amax(scaled, 0)
    clamped = scaled * (numbers.reward_clamp / (largest + TINY))
    return xp.where(largest > numbers.reward_clamp, clamped, scaled)


def _products(library: Library, variant, log_mentor, present, is_gold, n, numbers: Numbers):
    """log(r^w_r · m^w_m) of reality r and mentor m, −inf where not present; 0⁰ is 1."""
    xp = library.xp
    smoothing = numbers.label_smoothing
    on_gold = xp.zeros_like(n) + xp.log(1 - smoothing)
    if variant == "original":
        on_gold = xp.where(n == 1, 0, on_gold)
    on_others = xp.log(smoothing / library_max(library, n - 1, 1))
    log_reality = xp.where(is_gold, on_gold, on_others)
    reality_weight, critic_weight = numbers.reality_weight, numbers.critic_weight
    if critic_weight is None:
        critic_weight = confidence(library, log_mentor, present, n)
        reality_weight = 1 - critic_weight
    log_u = _weighted(xp, reality_weight, log_reality) + _weighted(xp, critic_weight, log_mentor)
    return xp.where(present, log_u, -xp.inf)


def confidence(library: Library, log_mentor, present, n):
    """1 − H/log n of the mentor renormalised on the actions; 1 where there is one action."""
    xp = library.xp
    log_m = xp.where(present, log_mentor, -xp.inf)
    log_m = log_m - _finite(xp, xp.amax(log_m, 0))
    m = xp.exp(log_m)
    total = m.sum(0)
    entropy = xp.log(total) - xp.where(m > 0, m * log_m, 0).sum(0) / total
    return xp.where(n == 1, 1, 1 - entropy / xp.log(library_max(library, n, 2)))


def _weighted(xp, weight, x):
    return xp.where(weight == 0, 0, weight * x)


def library_max(library: Library, x, least: float):
    """max(x, least)."""
    return library.xp.where(x < least, least, x)


def _finite(xp, x):
    return xp.where(x == -xp.inf, 0, x)
