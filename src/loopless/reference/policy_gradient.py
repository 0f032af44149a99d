"""Policy-gradient losses, one action at a time, and their derivatives in closed form.

Conventions: all arrays have one shape, with an entry for each action taken; entries with `valid`
false are never read. Results are Python floats, gradients new float64 arrays. The kernels are in
`kernels.policy_gradient`.
"""

import math
import sys
from typing import Any, NamedTuple

import numpy as np

from loopless.reference.policy_heads import heads_loss
from loopless.reference.scan import data, flags


class PPOParts(NamedTuple):
    policy_loss: float
    value_loss: float
    entropy: Any
    approximate_kl: Any
    clip_fraction: Any


class PolicyGradientParts(NamedTuple):
    policy_loss: float
    value_loss: float
    entropy: float


def ppo_loss(
    log_probs,
    old_log_probs,
    advantages,
    values,
    returns,
    entropies,
    *,
    clip=0.2,
    value_coefficient=0.5,
    entropy_coefficient=0.0,
    value_clip=None,
    old_values=None,
    valid=None,
    weights=None,
    masks=None,
    entropy_floor=0.0,
    floor_coefficient=0.0,
):
    """Return PPO's loss and its parts, means over the valid entries.

        ρ = exp(log π − log π_old)
        policy_loss = −mean min(ρ A, clip(ρ, 1−ε, 1+ε) A)
        value_loss = ½ mean e²          e the error of V, or of the clipped V if that is larger
        loss = policy_loss + value_coefficient · value_loss − entropy_coefficient · mean H

    Without a valid entry everything is 0. Schulman et al. 2017, eq. 7 and 9. Weights and several
    heads are in `policy_heads`.
    """
    if weights is not None or isinstance(log_probs, dict) or floor_coefficient:
        loss, parts = heads_loss(
            log_probs, old_log_probs, advantages, values, returns, entropies, clip=clip,
            value_coefficient=value_coefficient, entropy_coefficient=entropy_coefficient,
            value_clip=value_clip, old_values=old_values, valid=valid, weights=weights, masks=masks,
            entropy_floor=entropy_floor, floor_coefficient=floor_coefficient,
        )  # fmt: skip
        return loss, PPOParts(*parts)
    shape = np.shape(log_probs)
    fields = [data(x, shape) for x in (log_probs, old_log_probs, advantages, values, returns)]
    log_probs, old_log_probs, advantages, values, returns = fields
    entropies = data(entropies, shape)
    old_values = values if value_clip is None else data(old_values, shape)
    surrogates, squares, surprises, divergences, clipped = [], [], [], [], []
    for i in _rows(shape, valid):
        change = _change(log_probs[i], old_log_probs[i])
        surrogates.append(-_surrogate(change, advantages[i], clip)[0])
        squares.append(_error(values[i], returns[i], old_values[i], value_clip)[0] ** 2)
        surprises.append(entropies[i])
        divergences.append(change - (log_probs[i] - old_log_probs[i]))
        clipped.append(1.0 if abs(change) > _finite(clip) else 0.0)
    policy_loss, value_loss, entropy = _mean(surrogates), 0.5 * _mean(squares), _mean(surprises)
    loss = policy_loss + value_coefficient * value_loss - entropy_coefficient * entropy
    return loss, PPOParts(policy_loss, value_loss, entropy, _mean(divergences), _mean(clipped))


def policy_gradient_loss(
    log_probs,
    advantages,
    values,
    returns,
    entropies,
    *,
    value_coefficient=0.5,
    entropy_coefficient=0.0,
    valid=None,
):
    """Return A2C's loss and its parts, means over the valid entries.

        policy_loss = −mean A log π         value_loss = ½ mean (V − G)²
        loss = policy_loss + value_coefficient · value_loss − entropy_coefficient · mean H

    Without a valid entry everything is 0. Mnih et al. 2016.
    """
    shape = np.shape(log_probs)
    fields = [data(x, shape) for x in (log_probs, advantages, values, returns, entropies)]
    log_probs, advantages, values, returns, entropies = fields
    pushed, squares, surprises = [], [], []
    for i in _rows(shape, valid):
        pushed.append(-advantages[i] * log_probs[i])
        squares.append((values[i] - returns[i]) ** 2)
        surprises.append(entropies[i])
    policy_loss, value_loss, entropy = _mean(pushed), 0.5 * _mean(squares), _mean(surprises)
    loss = policy_loss + value_coefficient * value_loss - entropy_coefficient * entropy
    return loss, PolicyGradientParts(policy_loss, value_loss, entropy)


def ppo_loss_gradients(
    log_probs,
    old_log_probs,
    advantages,
    values,
    returns,
    entropies,
    *,
    clip=0.2,
    value_coefficient=0.5,
    entropy_coefficient=0.0,
    value_clip=None,
    old_values=None,
    valid=None,
):
    """Return the derivatives of `ppo_loss` by log-probabilities, values and entropies.

        ∂log π = −ρ A / n                               0 where the clipped surrogate is smaller
        ∂V     = value_coefficient (V − G) / n          0 where the clipped error is larger
        ∂H     = −entropy_coefficient / n

    n is the number of valid entries; the others have 0. All other inputs are constants.
    """
    shape = np.shape(log_probs)
    fields = [data(x, shape) for x in (log_probs, old_log_probs, advantages, values, returns)]
    log_probs, old_log_probs, advantages, values, returns = fields
    old_values = values if value_clip is None else data(old_values, shape)
    by_log_probs, by_values, by_entropies = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    rows = _rows(shape, valid)
    for i in rows:
        change = _change(log_probs[i], old_log_probs[i])
        by_log_probs[i] = -_surrogate(change, advantages[i], clip)[1] / len(rows)
        slope = _error(values[i], returns[i], old_values[i], value_clip)[1]
        by_values[i] = value_coefficient * slope / len(rows)
        by_entropies[i] = -entropy_coefficient / len(rows)
    return by_log_probs, by_values, by_entropies


def policy_gradient_loss_gradients(
    log_probs,
    advantages,
    values,
    returns,
    entropies,
    *,
    value_coefficient=0.5,
    entropy_coefficient=0.0,
    valid=None,
):
    """Return the derivatives of `policy_gradient_loss`: as of `ppo_loss`, but ∂log π = −A / n."""
    shape = np.shape(log_probs)
    advantages, values, returns = (data(x, shape) for x in (advantages, values, returns))
    by_log_probs, by_values, by_entropies = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    rows = _rows(shape, valid)
    for i in rows:
        by_log_probs[i] = -advantages[i] / len(rows)
        by_values[i] = value_coefficient * (values[i] - returns[i]) / len(rows)
        by_entropies[i] = -entropy_coefficient / len(rows)
    return by_log_probs, by_values, by_entropies


def _rows(shape, valid):
    if valid is None:
        return list(np.ndindex(shape))
    valid = flags(valid, shape)
    return [i for i in np.ndindex(shape) if valid[i]]


def _change(log_prob, old_log_prob):
    """Return ρ − 1 with all digits where ρ is near 1; infinite where ρ is too large a number."""
    try:
        return math.expm1(log_prob - old_log_prob)
    except OverflowError:
        return math.inf


def _surrogate(change, advantage, clip):
    """Return min(ρ A, clip(ρ) A) and its derivative by log ρ."""
    clip = _finite(clip)
    if advantage < 0:
        if change < -clip:
            return advantage * (1 - clip), 0.0
    elif change > clip:
        return advantage * (1 + clip), 0.0
    return advantage * (1 + change), advantage * (1 + change)


def _error(value, target, old, value_clip):
    """Return the error whose square counts, and the derivative of half that square."""
    error, away = value - target, value - old
    if value_clip is None or abs(away) <= _finite(value_clip):
        return error, error
    if math.isnan(away):
        return math.nan, 0.0  # an old value of NaN must show
    bound = old + _finite(value_clip) if away > 0 else old - _finite(value_clip)
    clipped = bound - target
    if abs(clipped) <= abs(error):
        return error, error
    return clipped, 0.0


def _finite(clip):
    """Return a finite clip, so that an infinite ratio times an advantage of 0 is 0."""
    return min(clip, sys.float_info.max)


def _mean(terms):
    """Return the mean, exact where it is finite; NaN and infinity as they add up; 0 of nothing."""
    if not terms:
        return 0.0
    total = math.fsum(terms) if all(math.isfinite(x) for x in terms) else sum(terms)
    return total / len(terms)
