"""Policy-gradient losses on NumPy arrays, compiled by Numba: one pass, each row read once.

Arrays arrive flat and C-contiguous, one entry a row. The formulae are the kernels' own
(`kernels.policy_gradient`), compiled in: the maths stands once. Imported on the first call only.
Tests: `tests/kernels/test_policy_gradient_*.py`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

import functools
import math

from numba.extending import register_jitable

from loopless.compiled.jit import jit
from loopless.compiled.scan import select


@register_jitable
def _limit(x, low, high):
    x = low if x < low else x  # NaN passes both
    return high if x > high else x


@functools.cache
def losses(cut, bounded, is_plain):
    """The kernel of both losses; what they are, `kernels.policy_gradient` says.

    An empty array stands for one that is not given, so that one program serves all combinations:
    without `old_log_probs` the policy's part is the plain one, without `old_values` the values'
    part, and without `valid` all rows count. `scalars` has room for loss, policy loss, value loss,
    entropy, approximate KL and clip fraction; `gradients` is empty, or room for the derivatives of
    the loss by log-probabilities, values and entropies [3, rows]. Sums are in float64.
    """
    cut, bounded, is_plain = map(register_jitable, (cut, bounded, is_plain))

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
                held = cut(select, change, push, epsilon)
                surrogate = push * (1.0 + select(held, _limit(change, -epsilon, epsilon), change))
                slope = select(held, 0.0, surrogate)
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
                other = bounded(_limit, away, old_values[i] - returns[i], most)
                plain = is_plain(error, other, away, most)
                larger = select(plain, error, other)
                value_slope = select(plain, float(error), 0.0)
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
