"""The mathematics of AvataRL, written once for whole arrays and for compiled loops.

Each function at the top is elementwise. It takes `where` (and `exp` and `log` where it needs them)
as arguments, so that the same lines run on arrays of NumPy, PyTorch and JAX and, compiled by Numba,
on single numbers. Below them `rewards` and `evaluate` put the functions together for arrays
[w, ...]: w actions, gold first, before the positions. `compiled.py` puts the same functions
together for the CPU. Loop twin: `reference.avatarl`.

Numba makes float64 of a float32 and a bare 1.0, so the constants of the method come as `Constants`
in the dtype of the data.
"""

from typing import Any, NamedTuple

from loopless.arrays.library import Library

VARIANTS = ("fixed", "original", "subset", "full")
FIXED, ORIGINAL, SUBSET, FULL = range(len(VARIANTS))
STATS: tuple[str, ...] = (
    "gold_reward", "gold_rewarded", "kept", "actions", "kl", "entropy",
    "reward_mean", "reward_max", "reward_min", "gold_cross_entropy",
)  # fmt: skip
TINY = 1e-8  # in the divisions of the published code
FLOOR = 1e-10  # in the logarithms of the published original


class Constants(NamedTuple):
    """Numbers in the dtype of the data."""

    one: Any = 1.0
    tiny: Any = TINY
    floor: Any = FLOOR
    minus_infinity: Any = -float("inf")


class Numbers(NamedTuple):
    """The method's numbers; the weights are numbers or [...], None if confidence sets them."""

    reality_weight: Any
    critic_weight: Any
    label_smoothing: Any
    reward_scale: Any
    reward_clamp: Any


class Evaluation(NamedTuple):
    """The losses of positions; ∂L/∂z_j = π_j (alpha + bonus h_j) − less_j, h as in `Slope`."""

    losses: Any  # [...]
    stats: dict[str, Any]  # of [...]
    alpha: Any  # [...]
    less: Any  # [w, ...]
    bonus: Any  # a number


# Elementwise functions, of one action or one position.


def times(where, weight, x):
    """Return weight · x, and 0 where the weight is 0 even if x is −inf: 0⁰ is 1."""
    return where(weight == 0, 0, weight * x)


def confidence(where, log, n, mass, moment, constants):
    """Return 1 − H/log n of the mentor renormalized on the actions; 1 where there is one action.

    mass = Σ m and moment = Σ m log m, for the mentor's m up to a common factor.
    """
    entropy = log(mass) - moment / mass
    several = where(n > constants.one, n, constants.one + constants.one)
    return where(n > constants.one, constants.one - entropy / log(several), 1)


def log_reality(where, log, is_original, n, smoothing, constants):
    """Return log r of gold, and of each other action."""
    one = constants.one
    others = where(n > one, n - one, one)
    is_certain = is_original & (n == one)
    return where(is_certain, 0, log(one - smoothing)), log(smoothing / others)


def log_product(
    where, is_gold, present, gold_term, other_term, critic_weight, log_mentor, constants
):
    """Return log u = w_r log r + w_m log m, −inf where the action is not present."""
    product = where(is_gold, gold_term, other_term) + times(where, critic_weight, log_mentor)
    return where(present, product, constants.minus_infinity)


def fixed_weight(where, is_gold, u, n, total):
    """Return an action's weight in "fixed": u if at least the mean, else 0; gold gets the largest.

    The largest u is 1, so that gold is kept even where all products are 0.
    """
    return where(is_gold, 1, where(u * n >= total, u, 0))


def published_reward(where, u, n, total, scale, constants):
    """Return the published reward before the clamp.

    The published threshold is the mean of the products; the mean of p would be 1/n.
    """
    p = u / (total + constants.tiny)
    return where(p > total / (n + constants.tiny), scale * p, 0)


def clamp_factor(where, largest, clamp, constants):
    """Return the factor that brings the largest reward down to the clamp."""
    return where(largest > clamp, clamp / (largest + constants.tiny), 1)


def floored(log, pi, constants):
    """Return log(π + floor), and π/(π + floor), the factor of the derivative with a floor."""
    raised = pi + constants.floor
    return log(raised), pi / raised


def gain(where, reward, log_pi):
    """Return R log π, and 0 without a reward even if log π is −inf."""
    return where(reward > 0, reward * log_pi, 0)


def divergence(where, log, reward, total, log_pi):
    """Return one action's part in the divergence of the normalized rewards from π."""
    share = reward / total
    return where(reward > 0, share * (log(share) - log_pi), 0)


def subset_push(where, present, reward, total, q):
    """Return R − q ΣR: the derivative at an action where π is a softmax over the actions alone."""
    return reward - where(present, total * q, 0)


def loss(gained, divisor, bonus, entropy):
    """Return one position's loss: minus the gain by rewards, minus the bonus for entropy."""
    return -gained / divisor - bonus * entropy


# The functions above, put together for arrays.


def actions(library: Library, gold, student_top, critic_top) -> tuple[Any, Any]:
    """Return gold, the student's and the critic's best, and where each stands for the first time.

    The tops are [..., k], the results [w, ...]. Neither top-k holds a token twice, so that only the
    two are compared, and gold with both.
    """
    xp = library.xp
    gold = gold[None]
    student_top, critic_top = xp.moveaxis(student_top, -1, 0), xp.moveaxis(critic_top, -1, 0)
    tokens = xp.concatenate([gold, student_top, critic_top], 0)
    new_of_student = student_top != gold
    again = (critic_top[:, None] == student_top[None]).any(1)
    new_of_critic = (critic_top != gold) & ~again
    return tokens, xp.concatenate([gold == gold, new_of_student, new_of_critic], 0)


def rewards(library: Library, variant: str, log_mentor, present, is_gold, numbers: Numbers) -> Any:
    """Return each action's reward, in "fixed" its share of the target; 0 where not present.

    `is_gold` spreads over [w, ...] and is true at one present action of each position.
    """
    xp, constants = library.xp, Constants()
    where, exp, log = xp.where, xp.exp, xp.log
    n = library.cast(present.sum(0), log_mentor.dtype)
    reality_weight, critic_weight, smoothing, scale, clamp = numbers
    if critic_weight is None:
        log_m = where(present, log_mentor, -xp.inf)
        log_m = log_m - _finite(xp, xp.amax(log_m, 0))
        m = exp(log_m)
        moment = gain(where, m, log_m).sum(0)
        critic_weight = confidence(where, log, n, m.sum(0), moment, constants)
        reality_weight = 1 - critic_weight
    of_gold, of_others = log_reality(where, log, variant == "original", n, smoothing, constants)
    terms = times(where, reality_weight, of_gold), times(where, reality_weight, of_others)
    log_u = log_product(where, is_gold, present, *terms, critic_weight, log_mentor, constants)
    if variant == "fixed":
        u = exp(log_u - _finite(xp, xp.amax(log_u, 0)))
        weights = fixed_weight(where, is_gold, u, n, u.sum(0))
        return weights / weights.sum(0)
    u = exp(log_u)
    scaled = published_reward(where, u, n, u.sum(0), scale, constants)
    return scaled * clamp_factor(where, xp.amax(scaled, 0), clamp, constants)


def evaluate(
    library: Library, variant: str, rewards, log_pi, present, is_gold, entropy, mean, rate, beta
) -> Evaluation:
    """Return losses, statistics and slopes of positions, from the rewards of their actions.

    `entropy` and `mean` are those of the student's whole row, [...], from its survey.
    """
    xp, constants = library.xp, Constants()
    where, exp, log, dtype = xp.where, xp.exp, xp.log, rewards.dtype
    n, total = library.cast(present.sum(0), dtype), rewards.sum(0)
    divisor = xp.ones_like(n) if variant == "fixed" else n + constants.tiny
    bonus = beta if variant in ("fixed", "original") else 0.0
    logs, pushed = log_pi, rewards
    if variant == "original":
        logs, factor = floored(log, exp(log_pi), constants)
        pushed = rewards * factor
    kl = divergence(where, log, rewards, where(total > 0, total, 1), logs).sum(0)
    # The derivative is (π_j W − R_j)/(n τ) + β π_j (h_j − Σ π h): two numbers for each position.
    alpha = pushed.sum(0) * rate / divisor - bonus * mean
    if (
        variant == "subset"
    ):  # the statistics are of π, but the loss is of a softmax over the actions
        inside = where(present, log_pi, -xp.inf)
        shifted = inside - xp.amax(inside, 0)
        logs = shifted - log(exp(shifted).sum(0))
        pushed = subset_push(where, present, rewards, total, exp(logs))
        alpha = xp.zeros_like(total)
    gained = gain(where, rewards, logs).sum(0)
    gold_reward = where(is_gold, rewards, 0).sum(0)
    stats = (
        gold_reward,
        library.cast(gold_reward > 0, dtype),
        library.cast((rewards > 0).sum(0), dtype),
        n,
        kl,
        entropy,
        total / n,
        xp.amax(rewards, 0),
        # a reward is at least 0, and what is not present counts for nothing
        xp.amin(where(present, rewards, xp.inf), 0),
        -where(is_gold, log_pi, 0).sum(0),
    )
    losses = loss(gained, divisor, bonus, entropy)
    named: dict[str, Any] = dict(zip(STATS, stats, strict=True))
    return Evaluation(losses, named, alpha, pushed * (rate / divisor), bonus)


def _finite(xp, x):
    return xp.where(x == -xp.inf, 0, x)
