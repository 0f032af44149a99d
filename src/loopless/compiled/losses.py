"""Losses of Q-learning and of policy gradients, and normalization, compiled by Numba.

Arrays arrive flat and C-contiguous: action values stand for [samples, actions], the rest for
[samples]. The formulas are those of `kernels.q_learning` and `kernels.policy_gradient`, compiled
in, so that the maths is written once. Each kernel reads its arrays once, and sums in float64.
Imported on the first call only, by those modules and `kernels.normalize`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

import functools
import math

import numpy as np
from numba.extending import register_jitable

from loopless.compiled.jit import jit
from loopless.compiled.scan import at, select


@register_jitable
def _clip(x, low, high):
    x = low if x < low else x  # NaN passes both
    return high if x > high else x


@register_jitable
def _largest(values, first, count):
    """Return the largest number of a row, NaN if it holds one.

    Comparisons select and do not branch: no processor foresees which value is larger.
    """
    largest = values[first]
    for k in range(first + 1, first + count):
        x = values[k]
        largest = x if (x > largest) | (x != x) else largest
    return largest


@register_jitable
def _first_largest(values, first, count):
    """Return where the first of a row's largest numbers is; NaN counts as the largest."""
    place, largest = first, values[first]
    for k in range(first + 1, first + count):
        x = values[k]
        larger = (x > largest) | ((x != x) & (largest == largest))
        place = k if larger else place
        largest = x if larger else largest
    return place


@functools.cache
def q_targets(formula):
    """Return the kernel of `formula(where, rewards, terminated, gamma, value)`.

    The value is the entry of `next_q` at the next action: the one in `next_actions`, or the best
    by `online`, or the best by `next_q` itself. The kernel returns the first sample whose next
    action does not exist, or −1.
    """
    compiled_formula = register_jitable(formula)

    @jit()
    def kernel(rewards, terminated, next_q, gamma, online, next_actions, out):
        count = next_q.size // max(out.size, 1)
        for i in range(out.size):
            first = i * count
            if next_actions is not None:
                action = next_actions[i]
                if not 0 <= action < count:
                    if not terminated[i]:
                        return i
                    action = 0
                value = next_q[first + action]
            else:
                if online is not None:
                    value = next_q[_first_largest(online, first, count)]
                else:
                    value = _largest(next_q, first, count)
            out[i] = compiled_formula(select, rewards[i], terminated[i], at(gamma, i), value)
        return -1

    return kernel


@functools.cache
def q_losses(formula, slope):
    """Return the kernel of means of `formula(clip, error, delta)`, whose derivative is `slope`.

    One mean for each of `means.size` batches. `gradient` is None, or zeros for the derivative of
    each mean by the values of its batch. The kernel returns the first sample whose action does not
    exist or whose weight is not finite and at least 0, or −1.
    """
    compiled_formula, compiled_slope = register_jitable(formula), register_jitable(slope)

    @jit()
    def kernel(q, actions, targets, weights, delta, means, errors, gradient):
        count = q.size // max(actions.size, 1)
        samples = actions.size // max(means.size, 1)
        for batch in range(means.size):
            total = 0.0
            for i in range(batch * samples, (batch + 1) * samples):
                action = actions[i]
                if not 0 <= action < count:
                    return i
                place = i * count + action
                error = q[place] - targets[i]
                errors[i] = error
                if weights is None:
                    total += compiled_formula(_clip, error, delta)
                    if gradient is not None:
                        gradient[place] = compiled_slope(_clip, error, delta) / samples
                else:
                    weight = weights[i]
                    if not 0 <= weight < np.inf:
                        return i
                    if weight > 0:  # else the sample is out, even if it holds NaN
                        total += weight * compiled_formula(_clip, error, delta)
                        if gradient is not None:
                            slope_here = compiled_slope(_clip, error, delta)
                            gradient[place] = weight * slope_here / samples
            means[batch] = total / samples
        return -1

    return kernel


@functools.cache
def policy_gradient_losses(is_cut, bounded_error, is_unclipped):
    """Return the kernel of both losses of `kernels.policy_gradient`.

    An empty array stands for one that is not given, so that one program serves all combinations:
    without `old_log_probs` the policy loss is the plain one, without `old_values` the value loss is
    not clipped, and without `valid` all samples count. `scalars` has room for loss, policy loss,
    value loss, entropy, approximate KL and clip fraction; `gradients` is empty, or room for the
    derivatives of the loss by log-probabilities, values and entropies [3, samples].
    """
    is_cut, bounded_error, is_unclipped = map(
        register_jitable, (is_cut, bounded_error, is_unclipped)
    )

    @jit()
    def kernel(
        log_probs,
        old_log_probs,
        advantages,
        values,
        returns,
        entropies,
        old_values,
        valid,
        clip,
        value_coefficient,
        entropy_coefficient,
        value_clip,
        scalars,
        gradients,
    ):
        epsilon, most = log_probs.dtype.type(clip), log_probs.dtype.type(value_clip)
        masked, clips_values = valid.size > 0, old_values.size > 0
        has_ratio, differentiates = old_log_probs.size > 0, gradients.size > 0
        count = log_probs.size
        if masked:
            count = 0
            for i in range(valid.size):
                count += valid[i]
        share = 1.0 / max(count, 1)
        policy = squares = entropy = divergence = 0.0
        clipped = 0
        for i in range(log_probs.size):
            if masked and not valid[i]:
                if differentiates:
                    gradients[0, i] = gradients[1, i] = gradients[2, i] = 0.0
                continue
            push = -advantages[i]
            if has_ratio:
                log_ratio = log_probs[i] - old_log_probs[i]
                change = math.expm1(log_ratio)  # ρ − 1
                cut = is_cut(select, change, push, epsilon)
                surrogate = push * (1.0 + select(cut, _clip(change, -epsilon, epsilon), change))
                slope = select(cut, 0.0, surrogate)
                policy += surrogate
                divergence += change - log_ratio
                clipped += abs(change) > epsilon
            else:
                slope = float(push)
                policy += push * log_probs[i]
            error = larger = values[i] - returns[i]
            value_slope = float(error)
            if clips_values:
                away = values[i] - old_values[i]
                other = bounded_error(_clip, away, old_values[i] - returns[i], most)
                unclipped = is_unclipped(error, other, away, most)
                larger = select(unclipped, error, other)
                value_slope = select(unclipped, float(error), 0.0)
            squares += larger * larger
            entropy += entropies[i]
            if differentiates:
                gradients[0, i] = slope * share
                gradients[1, i] = value_coefficient * value_slope * share
                gradients[2, i] = -entropy_coefficient * share
        policy, squares, entropy = policy * share, 0.5 * squares * share, entropy * share
        scalars[0] = policy + value_coefficient * squares - entropy_coefficient * entropy
        scalars[1], scalars[2], scalars[3] = policy, squares, entropy
        scalars[4], scalars[5] = divergence * share, clipped * share

    return kernel


@jit(reassociate=True)
def normalize(x, valid, min_std, out):
    """Write (x − mean)/max(std, min_std) to `out` over valid entries, 0 elsewhere.

    Sums are of differences from the first valid entry, in float64: equal entries give exactly 0,
    and a large common offset costs no digits.
    """
    shift = 0.0
    for i in range(x.size):
        if valid is None or valid[i]:
            shift = float(x[i])
            break
    count = 0
    total = 0.0
    squares = 0.0
    for i in range(x.size):
        if valid is None or valid[i]:
            difference = float(x[i]) - shift
            count += 1
            total += difference
            squares += difference * difference
    mean = total / max(count, 1)
    variance = max(squares / max(count, 1) - mean * mean, 0.0)
    scale = 1.0 / max(np.sqrt(variance), min_std)
    for i in range(x.size):
        counts = valid is None or valid[i]
        out[i] = ((float(x[i]) - shift) - mean) * scale if counts else 0.0
