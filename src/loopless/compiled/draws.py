"""The kernel by which somebody's own policy acts: its network, a draw, the log-probability.

The last row of the table says which distribution the outputs stand for. Random numbers come from
the counter generator of the buffers. `fused.actor` calls this.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false

import math

import numpy as np

from loopless.compiled.jit import jit
from loopless.compiled.program import SIZE, floats_at, load, run
from loopless.compiled.random import bits, unit

# The columns of the last row: its code, then
KIND, WIDTH, PARAMS, SCALES, VALUE, CHOICES, SIZES, BOUNDS, IS_STD = range(1, 10)
CATEGORICAL, NORMAL, SQUASHED = range(3)

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


@jit()
def act(program, x, rows, mask, greedy, random, out):
    """Write actions, log-probabilities and values for the observations x [rows · n_in] to `out`.

    out: all actions, then all log-probabilities, then all values.
    mask: [rows · choices], true where legal; or empty.
    Returns the first row whose log-probability is NaN, and then has drawn nothing; else -1.
    """
    memory = np.empty(program[0, SIZE], np.float32)
    work = memory.ctypes.data
    first, end = load(program, work), program.shape[0] - 1
    kind, width = program[end, KIND], program[end, WIDTH]
    many = program[end, CHOICES] if kind == CATEGORICAL else width
    each = np.uint64(many if kind == CATEGORICAL else many + many % 2)  # draws in a row
    key, counter = random[0], random[1]
    for row in range(rows):
        run(program, first, x, row, rows, work)
        params = floats_at(work + program[end, PARAMS], width)
        actions = out[row * many : (row + 1) * many]
        if kind == CATEGORICAL:
            sizes = floats_at(program[end, SIZES], many)
            log_prob = _choose(params, sizes, mask, row * width, greedy, key, counter, actions)
        else:
            log_prob = _draw(program, end, work, params, greedy, key, counter, actions)
        if log_prob != log_prob:
            return row
        counter += each
        out[rows * many + row] = log_prob
        if program[end, VALUE] >= 0:
            out[rows * (many + 1) + row] = floats_at(work + program[end, VALUE], 1)[0]
    if not greedy:
        random[1] = counter
    return -1


@jit()
def _choose(logits, sizes, mask, masked, greedy, key, counter, actions):
    """Write choices with P ∝ exp(logit), one for each of `sizes`; return their log-probability.

    What the mask forbids has probability 0; where it forbids everything, nothing is forbidden.
    """
    log_prob, at = 0.0, 0
    for i in range(sizes.size):
        end = at + np.int64(sizes[i])
        free = True
        if mask.size:
            for a in range(at, end):
                free &= not mask[masked + a]
        best, most = -1, -np.inf
        for a in range(at, end):
            if (free or mask[masked + a]) and (best < 0 or not logits[a] <= most):
                best, most = a, np.float64(logits[a])  # a NaN is taken, and refused by the caller
        total = 0.0
        for a in range(at, end):
            if free or mask[masked + a]:
                total += math.exp(logits[a] - most)
        if not greedy:
            left = total * unit(bits(key, counter + np.uint64(i)))
            for a in range(at, end):
                if free or mask[masked + a]:
                    left -= math.exp(logits[a] - most)
                    if left <= 0:  # never at a weight of 0: before it, `left` was above 0
                        best = a
                        break
        log_prob += logits[best] - most - math.log(total)
        actions[i] = best - at
        at = end
    return log_prob


@jit()
def _draw(program, end, work, means, greedy, key, counter, actions):
    """Write mean + std · normal, through tanh if squashed; return the log-density.

    Normal numbers come in pairs (Box and Muller 1958), each pair from two numbers of the generator.
    The density of a normal action is that of the float32 number which is returned.
    """
    scales = floats_at(work + program[end, SCALES], means.size)
    log_prob, sine = 0.0, 0.0
    for i in range(means.size):
        mean, scale = np.float64(means[i]), np.float64(scales[i])
        std = scale if program[end, IS_STD] else math.exp(scale)
        u = mean
        if not greedy:
            if i % 2 == 0:
                radius = math.sqrt(-2 * math.log(unit(bits(key, counter + np.uint64(i)))))
                angle = 2 * math.pi * unit(bits(key, counter + np.uint64(i + 1)))
                normal, sine = radius * math.cos(angle), radius * math.sin(angle)
            else:
                normal = sine
            u += std * normal
        if program[end, KIND] == NORMAL:
            actions[i] = u
            u = np.float64(actions[i])
        else:
            bounds = floats_at(program[end, BOUNDS], 2 * means.size)
            middle, half = np.float64(bounds[i]), np.float64(bounds[means.size + i])
            actions[i] = middle + half * math.tanh(u)
            # log(1 − tanh² u) = 2 (log 2 − u − softplus(−2u)), exact where tanh u rounds to ±1
            softplus = max(-2 * u, 0.0) + math.log1p(math.exp(-2 * abs(u)))
            log_prob -= 2 * (math.log(2.0) - u - softplus) + math.log(half)
        z = (u - mean) / std
        log_prob -= 0.5 * z * z + math.log(std) + _HALF_LOG_2PI
    return log_prob
