"""What an action picks from a row of values, on NumPy arrays, compiled by Numba.

Arrays arrive flat and C-contiguous: values stand for [samples, actions], the rest for [samples].
The formulae are the kernels' own (`kernels.q_learning`), compiled in: the maths stands once. A
kernel returns the first sample whose action or weight cannot be, or −1: it reads them anyway.
Comparisons pick and do not branch: what the larger value is, no processor foresees. Imported on
the first call only. Tests: `tests/kernels/test_q_learning_*.py`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

import functools

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
    """The largest number of a row, NaN if it holds one."""
    largest = values[first]
    for k in range(first + 1, first + count):
        x = values[k]
        largest = x if (x > largest) | (x != x) else largest
    return largest


@register_jitable
def _first_largest(values, first, count):
    """Where the first of a row's largest numbers is; NaN counts as the largest."""
    place, largest = first, values[first]
    for k in range(first + 1, first + count):
        x = values[k]
        larger = (x > largest) | ((x != x) & (largest == largest))
        place = k if larger else place
        largest = x if larger else largest
    return place


@functools.cache
def targets(formula):
    """The kernel of `formula(where, rewards, terminated, gamma, value)`.

    The value is the one in `next_q` of the given next action, or of that which `judge` holds for
    the best, or the largest.
    """
    compiled_formula = register_jitable(formula)

    @jit()
    def kernel(rewards, terminated, next_q, gamma, judge, next_actions, out):
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
                if judge is not None:
                    value = next_q[_first_largest(judge, first, count)]
                else:
                    value = _largest(next_q, first, count)
            out[i] = compiled_formula(select, rewards[i], terminated[i], at(gamma, i), value)
        return -1

    return kernel


@functools.cache
def losses(formula, slope):
    """The kernel of means of `formula(clip, error, delta)`, whose derivative is `slope`.

    One mean for each of `means.size` runs of samples. `gradient` is None, or zeros for the
    derivative of each run's mean by its values. Sums are in float64.
    """
    compiled_formula, compiled_slope = register_jitable(formula), register_jitable(slope)

    @jit()
    def kernel(q, actions, targets, weights, delta, means, errors, gradient):
        count = q.size // max(actions.size, 1)
        samples = actions.size // max(means.size, 1)
        for run in range(means.size):
            total = 0.0
            for i in range(run * samples, (run + 1) * samples):
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
            means[run] = total / samples
        return -1

    return kernel
