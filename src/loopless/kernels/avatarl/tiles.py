"""AvataRL over a short vocabulary on the CPU, compiled by Numba: a tile of positions at a time.

Rows are turned into columns, a position in each lane, and every token is an action of which some
are present: nothing is looked up, nothing branches, and a tile stays in the second-level cache from
the logits to their gradient. Loops are short, for the compiler gives up where more than a few pairs
of arrays may overlap, and it is told the type of each number, for 1 would make a float64 of all.

Says the same as `avatarl_targets` and `avatarl_positions`, and is held to the same tests. Imports
`arrays` and Numba; imported on the first call only, by `avatarl_whole`. Loop twin:
`reference.avatarl`. Tests: `tests/kernels/test_avatarl_*.py`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false

import numpy as np

from loopless.compiled.jit import jit
from loopless.compiled.math import exp, log, lowest
from loopless.compiled.tiles import LANES, WIDTH, among, exponentials, largest, load
from loopless.kernels.avatarl.positions import FLOOR
from loopless.kernels.avatarl.rewards import TINY
from loopless.kernels.avatarl.rows import (  # fmt: skip
    BONUS,
    CLAMP,
    CRITIC,
    FIXED,
    NUMBERS,
    ORIGINAL,
    REALITY,
    SCALE,
    SHARE,
    SMOOTHING,
    SUBSET,
)

# Rows of the state, a number of each lane, after those that a call is told.
RATE, ONE, N, PEAK, LEFT, TOTAL, OTHER_TOTAL, MOMENT, ENTROPY, MEAN, ENTRY, MASS = range(7, 19)
ON_GOLD, ON_OTHERS, TOP, SUM, KEPT, UNIT, GAINED, OWN, PUSHED, HELD, OF_GOLD = range(19, 30)
ALPHA, LESS, BETA, ASTRAY, ROWS = range(30, 35)


@jit()
def _present(state, gold, here):
    """Sums become 1 where they are above 0, or the token is gold; how many there are."""
    real = here.dtype.type
    zero, one = real(0), real(1)
    n = state[N]
    n[:] = 0
    for v in range(here.shape[0]):
        flags = here[v]
        for i in range(LANES):
            flag = one if (flags[i] > zero) | (gold[i] == v) else zero
            flags[i] = flag
            n[i] += flag


@jit()
def _policy(state, logs, policy):
    """d and e^d become log π and π."""
    one = policy.dtype.type(1)
    total, entropy, log_total = state[TOTAL], state[ENTROPY], state[ENTRY]
    for i in range(LANES):
        log_total[i] = log(total[i])
        entropy[i] = log_total[i] - state[MOMENT, i] / total[i]
        state[MEAN, i] = -entropy[i]
        total[i] = one / total[i]
    for v in range(logs.shape[0]):
        row, pi = logs[v], policy[v]
        for i in range(LANES):
            row[i] -= log_total[i]
            pi[i] *= total[i]


@jit()
def _floored(state, logs, policy):
    """log π becomes log(π + floor), and the entropy what comes of it."""
    floor = policy.dtype.type(FLOOR)
    entropy, mean = state[ENTROPY], state[MEAN]
    entropy[:] = 0
    mean[:] = 0
    for v in range(logs.shape[0]):
        row, pi = logs[v], policy[v]
        for i in range(LANES):
            row[i] = log(pi[i] + floor)
        for i in range(LANES):
            entropy[i] -= pi[i] * row[i]
        for i in range(LANES):
            mean[i] += pi[i] * pi[i] / (pi[i] + floor)
    for i in range(LANES):
        mean[i] -= entropy[i]


@jit()
def _confidence(state, mentor, powers, here):
    """1 − H/log n of the mentor renormalised on the actions; 1 where there is one action."""
    least, one = lowest(mentor[0, 0]), mentor.dtype.type(1)
    mass, moment = state[MASS], state[SUM]
    mass[:] = 0
    moment[:] = 0
    for v in range(mentor.shape[0]):
        row, e, flags = mentor[v], powers[v], here[v]
        for i in range(LANES):
            m = e[i] * flags[i]
            mass[i] += m
            moment[i] += m * (least if row[i] < least else row[i])
    for i in range(LANES):
        n = state[N, i]
        entropy = log(mass[i]) - moment[i] / mass[i]
        weight = one - entropy / log(n) if n > one else one
        state[CRITIC, i], state[REALITY, i] = weight, one - weight


@jit()
def _products(state, mentor, gold, here, certain):
    """The mentor's d becomes log(r^w_r · m^w_m), −inf where not present; 0⁰ is 1."""
    real = mentor.dtype.type
    zero, one, nothing = real(0), real(1), real(-np.inf)
    on_gold, on_others, top = state[ON_GOLD], state[ON_OTHERS], state[TOP]
    weight, log_total = state[CRITIC], state[OTHER_TOTAL]
    top[:] = nothing
    for i in range(LANES):
        w, n, smoothing = state[REALITY, i], state[N, i], state[SMOOTHING, i]
        sure = zero if certain and n == one else log(one - smoothing)
        rest = log(smoothing / (n - one if n > one else one))
        on_gold[i] = w * sure if w != zero else zero
        on_others[i] = w * rest if w != zero else zero
        log_total[i] = log(log_total[i])
    for v in range(mentor.shape[0]):
        row, flags = mentor[v], here[v]
        for i in range(LANES):
            product = weight[i] * (row[i] - log_total[i])
            row[i] = product if weight[i] != zero else zero
        for i in range(LANES):
            product = row[i] + (on_gold[i] if gold[i] == v else on_others[i])
            row[i] = product if flags[i] > zero else nothing
        for i in range(LANES):
            top[i] = row[i] if row[i] > top[i] else top[i]


@jit()
def _targets(state, products, gold, weights):
    """The fixed form: weights of what is kept, by their sum; products become their logarithms."""
    real = weights.dtype.type
    zero, one, nothing = real(0), real(1), real(-np.inf)
    n, top, total, kept = state[N], state[TOP], state[SUM], state[KEPT]
    total[:] = 0
    kept[:] = 0
    for i in range(LANES):
        top[i] = top[i] if top[i] > nothing else zero
    for v in range(products.shape[0]):
        row, w = products[v], weights[v]
        for i in range(LANES):
            row[i] -= top[i]
        for i in range(LANES):
            u = exp(row[i])
            w[i] = u
            total[i] += u
    for v in range(products.shape[0]):
        row, w = products[v], weights[v]
        for i in range(LANES):
            u = w[i] if w[i] * n[i] >= total[i] else zero
            w[i] = one if gold[i] == v else u  # raised to the largest, which is 1
        for i in range(LANES):
            row[i] = zero if gold[i] == v else row[i]
        for i in range(LANES):
            kept[i] += w[i]
    for i in range(LANES):
        state[UNIT, i] = one / kept[i]


@jit()
def _rewards(state, products, weights):
    """The published form: weights above its threshold, by one number of each position."""
    real = weights.dtype.type
    zero, tiny = real(0), real(TINY)
    n, top, total, kept = state[N], state[TOP], state[SUM], state[KEPT]
    total[:] = 0
    kept[:] = 0
    top[:] = 0
    for v in range(products.shape[0]):
        row, w = products[v], weights[v]
        for i in range(LANES):
            u = exp(row[i])
            w[i] = u
            total[i] += u
    for v in range(products.shape[0]):
        w = weights[v]
        for i in range(LANES):
            u = w[i]
            w[i] = u if u / (total[i] + tiny) > total[i] / (n[i] + tiny) else zero
        for i in range(LANES):
            kept[i] += w[i]
            top[i] = w[i] if w[i] > top[i] else top[i]
    for i in range(LANES):
        unit, clamp = state[SCALE, i] / (total[i] + tiny), state[CLAMP, i]
        largest = top[i] * unit
        state[UNIT, i] = unit * (clamp / (largest + tiny)) if largest > clamp else unit


@jit()
def _gains(state, weights, products, logs, gold):
    """Σ w log π, Σ w log w, how many there are, and gold's."""
    real = weights.dtype.type
    zero, one = real(0), real(1)
    gained, own, held, of_gold = state[GAINED], state[OWN], state[HELD], state[OF_GOLD]
    state[GAINED] = 0
    state[OWN] = 0
    state[HELD] = 0
    state[OF_GOLD] = 0
    for v in range(weights.shape[0]):
        w, log_w, log_pi = weights[v], products[v], logs[v]
        for i in range(LANES):
            gained[i] += w[i] * log_pi[i] if w[i] > zero else zero
            own[i] += w[i] * log_w[i] if w[i] > zero else zero
        for i in range(LANES):
            held[i] += one if w[i] > zero else zero
            of_gold[i] += w[i] if gold[i] == v else zero
    pushed, kept = state[PUSHED], state[KEPT]
    for i in range(LANES):
        pushed[i] = kept[i]


@jit()
def _pushed(state, weights, policy):
    """Σ w π/(π + floor), which is what the floor leaves of the derivative."""
    floor = policy.dtype.type(FLOOR)
    pushed = state[PUSHED]
    pushed[:] = 0
    for v in range(weights.shape[0]):
        w, pi = weights[v], policy[v]
        for i in range(LANES):
            pushed[i] += w[i] * (pi[i] / (pi[i] + floor))


@jit()
def _mass(state, policy, here):
    """Σ π over the actions."""
    mass = state[MASS]
    mass[:] = 0
    for v in range(policy.shape[0]):
        pi, flags = policy[v], here[v]
        for i in range(LANES):
            mass[i] += pi[i] * flags[i]


@jit()
def _judged(state, variant, first, counted, sheet):
    """What positions come to, and the numbers of their slopes."""
    real = state.dtype.type
    zero, one, tiny = real(0), real(1), real(TINY)
    for i in range(LANES):
        astray, kept, bonus = state[ASTRAY, i], state[KEPT, i], state[BONUS, i]
        share, entropy, gained = state[SHARE, i], state[ENTROPY, i], state[GAINED, i]
        whole = kept if kept > zero else one
        divergence = (state[OWN, i] - gained) / whole - log(whole)
        unit = state[UNIT, i] + astray
        divisor = one if variant == FIXED else state[N, i] + tiny
        less = unit * state[RATE, i] * share / divisor
        state[LESS, i], state[BETA, i] = less, bonus * share
        if variant == SUBSET:
            gained -= kept * log(state[MASS, i])
            state[ALPHA, i] = kept * less / state[MASS, i]
        else:
            state[ALPHA, i] = state[PUSHED, i] * less - bonus * share * state[MEAN, i]
        if first + i < sheet.shape[0]:
            out, on_gold = sheet[first + i], state[OF_GOLD, i] * unit
            out[0] = -gained * unit / divisor - bonus * entropy + astray
            out[1], out[2] = on_gold, on_gold > zero
            out[3], out[4] = state[HELD, i], state[N, i]
            out[5], out[6] = divergence + astray, entropy + astray
            if not counted[first + i]:
                out[:] = 0


@jit()
def _slopes(state, weights, logs, policy, out):
    """π (α + β log π) − what the weights push."""
    least, alpha, beta, less = lowest(logs[0, 0]), state[ALPHA], state[BETA], state[LESS]
    for v in range(weights.shape[0]):
        w, log_pi, pi, g = weights[v], logs[v], policy[v], out[v]
        for i in range(LANES):
            h = least if log_pi[i] < least else log_pi[i]
            g[i] = pi[i] * (alpha[i] + beta[i] * h) - w[i] * less[i]


@jit()
def _floored_slopes(state, weights, logs, policy, out):
    """π (α + β h) − what the weights push, h = log(π + floor) + π/(π + floor)."""
    floor = policy.dtype.type(FLOOR)
    alpha, beta, less = state[ALPHA], state[BETA], state[LESS]
    for v in range(weights.shape[0]):
        w, log_pi, pi, g = weights[v], logs[v], policy[v], out[v]
        for i in range(LANES):
            part = pi[i] / (pi[i] + floor)
            steep = alpha[i] + beta[i] * (log_pi[i] + part)
            g[i] = pi[i] * steep - w[i] * less[i] * part


@jit()
def _subset_slopes(state, weights, here, policy, out):
    """The same over the actions alone."""
    alpha, less = state[ALPHA], state[LESS]
    for v in range(weights.shape[0]):
        w, flags, pi, g = weights[v], here[v], policy[v], out[v]
        for i in range(LANES):
            g[i] = flags[i] * pi[i] * alpha[i] - w[i] * less[i]


@jit()
def tiles(variant, confident, k, size, student, critic, gold, counted, numbers, sheet, gradient):
    """What `avatarl_whole.whole` says, tile by tile."""
    (memory, starts), (other_memory, other_starts) = student, critic
    count, dtype = starts.size, memory.dtype
    wrong, other_wrong = -1, -1
    real = dtype.type
    zero, one = real(0), real(1)
    logs, policy = np.empty((size, WIDTH), dtype), np.empty((size, WIDTH), dtype)
    mentor, weights = np.empty((size, WIDTH), dtype), np.empty((size, WIDTH), dtype)
    here, best = np.empty((size, WIDTH), dtype), np.empty((k, WIDTH), dtype)
    state, tokens = np.empty((ROWS, WIDTH), dtype), np.empty(LANES, np.int32)
    state[ONE] = one
    tempered = variant not in (FIXED, ORIGINAL)
    for first in range(0, count, LANES):
        load(memory, starts, first, logs)
        load(other_memory, other_starts, first, mentor)
        for i in range(LANES):
            row = min(first + i, count - 1)
            for j in range(NUMBERS):
                state[j, i] = numbers[row, j]
            tokens[i], bonus = gold[row], state[BONUS, i]
            state[ASTRAY, i] = zero if 0 <= gold[row] < size else real(np.nan)
            state[RATE, i] = one / (one + bonus) if tempered else one
            state[BONUS, i] = zero if tempered else bonus
        here[:] = 0
        largest(logs, best, state[ENTRY])
        for i in range(LANES):  # a row at once would compile its error of shapes too, for 2 s
            state[PEAK, i] = best[0, i]
        among(logs, best[k - 1], state[LEFT], here, k)
        largest(mentor, best, state[ENTRY])
        among(mentor, best[k - 1], state[LEFT], here, k)
        _present(state, tokens, here)
        exponentials(logs, policy, state[PEAK], state[RATE], state[TOTAL], state[MOMENT])
        exponentials(mentor, weights, best[0], state[ONE], state[OTHER_TOTAL], state[ENTRY])
        for i in range(LANES):  # NaN where a row is no distribution
            state[ASTRAY, i] += (state[TOTAL, i] + state[OTHER_TOTAL, i]) * zero
            if first + i < count and counted[first + i]:
                if wrong < 0 and not state[TOTAL, i] > zero:
                    wrong = first + i
                if other_wrong < 0 and not state[OTHER_TOTAL, i] > zero:
                    other_wrong = first + i
        _policy(state, logs, policy)
        if variant == ORIGINAL:
            _floored(state, logs, policy)
        if confident:
            _confidence(state, mentor, weights, here)
        _products(state, mentor, tokens, here, variant == ORIGINAL)
        if variant == FIXED:
            _targets(state, mentor, tokens, weights)
        else:
            _rewards(state, mentor, weights)
        _gains(state, weights, mentor, logs, tokens)
        if variant == ORIGINAL:
            _pushed(state, weights, policy)
        elif variant == SUBSET:
            _mass(state, policy, here)
        _judged(state, variant, first, counted, sheet)
        if gradient.size == 0:
            continue
        if variant == ORIGINAL:
            _floored_slopes(state, weights, logs, policy, mentor)
        elif variant == SUBSET:
            _subset_slopes(state, weights, here, policy, mentor)
        else:
            _slopes(state, weights, logs, policy, mentor)
        for i in range(min(LANES, count - first)):
            out = gradient[first + i]
            if counted[first + i]:
                for v in range(size):
                    out[v] = mentor[v, i]
            else:
                out[:] = 0
    return wrong, other_wrong
