"""AvataRL, one position and one token at a time, in plain Python, with closed-form gradients.

The truth for `kernels.avatarl`. Logits are [..., V], the rest [...]; results are new float64
arrays, and sets and rewards are dense, [..., V], so that they do not depend on any order of
actions. `cap` cuts the action set short as the first published versions did, gold being last.
"""

import math
from typing import Any, NamedTuple

import numpy as np

VARIANTS = ("original", "subset", "full", "fixed")
TINY, FLOOR = 1e-8, 1e-10  # the published code's guards of divisions and of logarithms


class Settings(NamedTuple):
    """The numbers of the method, as in the published configuration but for the variant."""

    top_k: int
    variant: str = "fixed"
    reality_weight: float = 0.7
    critic_weight: float | str = 0.3
    label_smoothing: float = 0.1
    reward_scale: float = 100.0
    reward_clamp: float = 1.5
    entropy_coefficient: float = 0.01
    cap: int | None = None


class Position(NamedTuple):
    """The action set, rewards, loss and statistics of one position."""

    actions: list[int]
    rewards: dict[int, float]  # of each action; in "fixed" the target itself
    loss: float
    gradient: list[float]  # of this position's loss by its student logits
    entropy: float  # of the student over the vocabulary, at the variant's temperature
    divergence: float  # KL of the normalized rewards from that
    log_gold: float  # log-probability of gold, by that


def avatarl_loss(student_logits, critic_logits, targets, *, mask=None, **settings):
    """Return the mean loss of the unmasked positions, and the means of its statistics."""
    positions = [p for _, p in _positions(student_logits, critic_logits, targets, mask, settings)]
    golds = [p.rewards.get(y, 0.0) for y, p in _golds(positions, targets, mask)]
    stats = {
        "gold_reward": _mean(golds),
        "gold_rewarded": _mean([1.0 if reward > 0 else 0.0 for reward in golds]),
        "kept": _mean([float(sum(r > 0 for r in p.rewards.values())) for p in positions]),
        "actions": _mean([float(len(p.actions)) for p in positions]),
        "kl": _mean([p.divergence for p in positions]),
        "entropy": _mean([p.entropy for p in positions]),
        "reward_mean": _mean([math.fsum(p.rewards.values()) / len(p.actions) for p in positions]),
        "reward_max": _mean([max(p.rewards.get(i, 0.0) for i in p.actions) for p in positions]),
        "reward_min": _mean([min(p.rewards.get(i, 0.0) for i in p.actions) for p in positions]),
        "gold_cross_entropy": _mean([-p.log_gold for p in positions]),
    }
    return _mean([p.loss for p in positions]), stats


def avatarl_gradients(student_logits, critic_logits, targets, *, mask=None, **settings):
    """Return the derivative of `avatarl_loss` by the student's logits [..., V]."""
    gradients = np.zeros(np.shape(student_logits))
    positions = list(_positions(student_logits, critic_logits, targets, mask, settings))
    for index, position in positions:
        for j in range(len(position.gradient)):
            gradients[(*index, j)] = position.gradient[j] / len(positions)
    return gradients


def avatarl_actions(student_logits, critic_logits, targets, *, mask=None, **settings):
    """Return whether each token is in the action set, [..., V]; no token is, where masked."""
    dense = np.zeros(np.shape(student_logits), dtype=bool)
    for index, p in _positions(student_logits, critic_logits, targets, mask, settings):
        for i in p.actions:
            dense[(*index, i)] = True
    return dense


def avatarl_rewards(student_logits, critic_logits, targets, *, mask=None, **settings):
    """Return each token's reward, [..., V], and 0 outside the action set."""
    dense = np.zeros(np.shape(student_logits))
    for index, p in _positions(student_logits, critic_logits, targets, mask, settings):
        for i, reward in p.rewards.items():
            dense[(*index, i)] = reward
    return dense


def soft_cross_entropy(logits, tokens, weights, *, mask=None):
    """Return the mean over positions of −Σ_i w_i log π(a_i), and its gradient by the logits."""
    logits, losses, gradients = np.asarray(logits, float), [], np.zeros(np.shape(logits))
    places = list(_places(np.shape(tokens)[:-1], mask))
    for index in places:
        log_pi = _log_softmax(logits[index].tolist())
        pairs = [
            (int(a), float(w)) for a, w in zip(tokens[index], weights[index], strict=True) if w != 0
        ]
        losses.append(-math.fsum(w * log_pi[a] for a, w in pairs))
        total = math.fsum(w for _, w in pairs)
        for j in range(len(log_pi)):
            own = math.fsum(w for a, w in pairs if a == j)
            gradients[(*index, j)] = (total * math.exp(log_pi[j]) - own) / len(places)
    return _mean(losses), gradients


def distillation(student_logits, critic_logits, *, temperature=1.0, mask=None):
    """Return the mean of τ² KL(softmax(c/τ) ‖ softmax(z/τ)), and its gradient by z, the student."""
    student, critic = np.asarray(student_logits, float), np.asarray(critic_logits, float)
    losses, gradients = [], np.zeros(student.shape)
    places = list(_places(student.shape[:-1], mask))
    for index in places:
        log_pi = _log_softmax([x / temperature for x in student[index].tolist()])
        log_m = _log_softmax([x / temperature for x in critic[index].tolist()])
        terms = [
            math.exp(m) * (m - pi) for m, pi in zip(log_m, log_pi, strict=True) if m > -math.inf
        ]
        losses.append(temperature**2 * sum(terms))
        for j in range(len(log_pi)):
            difference = math.exp(log_pi[j]) - math.exp(log_m[j])
            gradients[(*index, j)] = temperature * difference / len(places)
    return _mean(losses), gradients


def position(z: list[float], c: list[float], y: int, settings: Settings) -> Position:
    """Return one position's result: student logits z, critic logits c, gold token y."""
    if settings.variant not in VARIANTS:
        raise ValueError(f"unknown variant {settings.variant!r}; choose one of {VARIANTS}.")
    actions = []
    for i in [*_best(z, settings.top_k), *_best(c, settings.top_k), y]:
        if i not in actions:
            actions.append(i)
    actions = actions[: settings.cap]
    log_m = _log_softmax(c)
    mentor = {i: math.exp(log_m[i]) for i in actions}
    reality = _reality(actions, y, settings)
    w_r, w_m = _weights(mentor, settings)
    u = {i: _power(reality[i], w_r) * _power(mentor[i], w_m) for i in actions}
    rewards = _target(u, y) if settings.variant == "fixed" else _rewards(u, settings)
    return _loss(z, y, actions, rewards, settings)


def _best(x, k):
    """Return the tokens of the k largest, the first of equals first."""
    return sorted(range(len(x)), key=lambda i: (-x[i], i))[:k]


def _reality(actions, y, settings):
    n, smoothing = len(actions), settings.label_smoothing
    reality = {}
    for i in actions:
        if i != y:
            reality[i] = smoothing / (n - 1)
        elif n == 1 and settings.variant == "original":
            reality[i] = 1.0
        else:
            reality[i] = 1.0 - smoothing
    return reality


def _weights(mentor, settings):
    if settings.critic_weight != "confidence":
        return settings.reality_weight, settings.critic_weight
    if len(mentor) == 1:
        return 0.0, 1.0
    total = math.fsum(mentor.values())
    entropy = -math.fsum(m / total * math.log(m / total) for m in mentor.values() if m > 0)
    confidence = 1.0 - entropy / math.log(len(mentor))
    return 1.0 - confidence, confidence


def _power(x, exponent):
    return 1.0 if exponent == 0 else x**exponent


def _rewards(u, settings):
    """Return the rewards as published: products are normalized, but the threshold is not."""
    total, n = math.fsum(u.values()), len(u)
    scaled = {}
    for i in u:
        p = u[i] / (total + TINY)
        scaled[i] = settings.reward_scale * p if p > total / (n + TINY) else 0.0
    largest = max(scaled.values())
    if largest > settings.reward_clamp:
        return {i: x * settings.reward_clamp / (largest + TINY) for i, x in scaled.items()}
    return scaled


def _target(u, y):
    """Return the target: products of at least the mean, and gold always, never below another."""
    total, n = math.fsum(u.values()), len(u)
    if total == 0:
        return {i: 1.0 if i == y else 0.0 for i in u}
    kept = {i: x / total for i, x in u.items() if x * n >= total}
    kept[y] = max(kept.values())
    sum_kept = math.fsum(kept.values())
    return {i: kept[i] / sum_kept if i in kept else 0.0 for i in u}


def _loss(z, y, actions, rewards, settings):
    beta, n, size = settings.entropy_coefficient, len(actions), range(len(z))
    total = math.fsum(rewards.values())
    divisor = 1.0 if settings.variant == "fixed" else n + TINY
    tau = 1.0 + beta if settings.variant in ("subset", "full") else 1.0
    inside = set(actions) if settings.variant == "subset" else set(size)
    log_pi = _log_softmax([z[j] / tau if j in inside else -math.inf for j in size])
    pi = [math.exp(x) for x in log_pi]
    if settings.variant == "original":
        logs = [math.log(p + FLOOR) for p in pi]
        factor = [p / (p + FLOOR) for p in pi]
    else:
        logs, factor = log_pi, [1.0] * len(z)
    seen = logs
    if settings.variant == "subset":  # its statistics are over the whole vocabulary
        seen = _log_softmax([x / tau for x in z])
    shares = [math.exp(x) for x in seen] if settings.variant == "subset" else pi
    entropy = -math.fsum(shares[j] * seen[j] for j in size if shares[j] > 0)
    bonus = beta if settings.variant in ("original", "fixed") else 0.0
    loss = -sum(r * logs[i] for i, r in rewards.items() if r > 0) / divisor - bonus * entropy
    # One formula for all: ∂L/∂z_j = (π_j Σ R_i a_i − R_j a_j)/(n τ) + β π_j (h_j − Σ_l π_l h_l)
    pushed = math.fsum(r * factor[i] for i, r in rewards.items())
    h = [logs[j] + factor[j] if pi[j] > 0 else 0.0 for j in size]
    mean_h = math.fsum(pi[j] * h[j] for j in size)
    gradient = [
        (pi[j] * pushed - rewards.get(j, 0.0) * factor[j]) / (divisor * tau)
        + bonus * pi[j] * (h[j] - mean_h)
        for j in size
    ]
    divergence = 0.0
    if total > 0:
        target = {i: r / total for i, r in rewards.items() if r > 0}
        divergence = sum(t * (math.log(t) - seen[i]) for i, t in target.items())
    log_gold = (seen if settings.variant == "subset" else log_pi)[y]
    return Position(actions, rewards, loss, gradient, entropy, divergence, log_gold)


def _log_softmax(x):
    largest = max(x)
    log_sum = largest + math.log(math.fsum(math.exp(value - largest) for value in x))
    return [value - log_sum for value in x]


def _positions(student_logits, critic_logits, targets, mask, settings):
    student, critic = np.asarray(student_logits, float), np.asarray(critic_logits, float)
    targets, rest = np.asarray(targets), dict(settings)
    shape = targets.shape
    if student.shape != critic.shape or student.shape[:-1] != shape:
        raise ValueError(
            f"expected logits of one shape, {shape} and tokens; got {student.shape} and "
            f"{critic.shape}."
        )
    weights = {
        name: np.broadcast_to(rest.pop(name), shape)
        for name in ("reality_weight", "critic_weight")
        if name in rest
    }
    for index in _places(shape, mask):
        y = int(targets[index])
        if not 0 <= y < student.shape[-1]:
            raise ValueError(f"a token is from 0 to {student.shape[-1] - 1}; got {y}.")
        here: dict[str, Any] = {name: x[index].item() for name, x in weights.items()}
        chosen = Settings(**rest, **here)
        yield index, position(student[index].tolist(), critic[index].tolist(), y, chosen)


def _golds(positions, targets, mask):
    targets = np.asarray(targets)
    places = _places(targets.shape, mask)
    return [(int(targets[index]), p) for index, p in zip(places, positions, strict=True)]


def _places(shape, mask):
    for index in np.ndindex(shape):
        if mask is None or np.asarray(mask)[index]:
            yield index


def _mean(x):
    """Return the mean, 0 of nothing."""
    if not x:
        return 0.0
    return (math.fsum(x) if all(math.isfinite(value) for value in x) else sum(x)) / len(x)
