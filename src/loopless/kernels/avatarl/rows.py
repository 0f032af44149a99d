"""AvataRL row by row on the CPU, compiled by Numba: for long rows, or few.

A row is read from memory once, and its gradient written while it is in the cache. Its few actions
are told apart by their tokens. Says the same as `avatarl_targets` and `avatarl_positions`, and is
held to the same tests. Imports `arrays` and Numba; imported on the first call only, by
`avatarl_whole`. Loop twin: `reference.avatarl`. Tests: `tests/kernels/test_avatarl_*.py`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false

import math

import numpy as np
from numba.extending import register_jitable

from loopless.compiled.jit import jit
from loopless.compiled.logits import PART, slopes, survey
from loopless.compiled.math import exp, log
from loopless.kernels.avatarl.positions import FLOOR
from loopless.kernels.avatarl.rewards import TINY

FIXED, ORIGINAL, SUBSET, FULL = range(4)
VARIANTS = {"fixed": FIXED, "original": ORIGINAL, "subset": SUBSET, "full": FULL}
LOSS, GOLD_REWARD, GOLD_REWARDED, KEPT, ACTIONS, KL, ENTROPY = range(7)  # of a sheet
PEAK, LOG_TOTAL, OF_ENTROPY, MEAN = range(4)  # of a survey
NUMBERS = 7  # that are told of each position
REALITY, CRITIC, SMOOTHING, SCALE, CLAMP, BONUS, SHARE = range(NUMBERS)


@register_jitable
def _choose(gold, student_top, critic_top, actions, present):
    """Gold, the student's best and the critic's best, and where each stands for the first time."""
    k, n = student_top.size, 1
    actions[0], present[0] = gold, True
    for j in range(k):
        token = student_top[j]
        actions[1 + j], present[1 + j] = token, token != gold
        n += token != gold
    for j in range(k):
        token = critic_top[j]
        known = token == gold
        for other in range(k):
            known |= token == student_top[other]
        actions[1 + k + j], present[1 + k + j] = token, not known
        n += not known
    return n


@register_jitable
def _times(weight, x):
    return weight * x if weight != 0 else 0.0 * weight  # 0⁰ is 1


@register_jitable
def _confidence(log_mentor, present, n):
    """1 − H/log n of the mentor renormalised on the actions; 1 where there is one action."""
    if n == 1:
        return 1.0
    top = -np.inf
    for j in range(log_mentor.size):
        if present[j] and log_mentor[j] > top:
            top = log_mentor[j]
    total, moment = 0.0, 0.0
    for j in range(log_mentor.size):
        if present[j] and log_mentor[j] > -np.inf:
            shifted = log_mentor[j] - top
            m = math.exp(shifted)
            total += m
            moment += m * shifted
    return 1.0 - (math.log(total) - moment / total) / math.log(n)


@register_jitable
def _rewards(variant, log_u, present, n, scale, clamp, out):
    """Each action's reward, and in the fixed form its share of the target."""
    top = -np.inf
    for j in range(log_u.size):
        top = log_u[j] if log_u[j] > top else top
    out[0] = top if variant == FIXED and top > -np.inf else 0.0
    shift, total = out[0], 0.0  # by way of the array, so that it has its dtype
    for j in range(log_u.size):
        out[j] = exp(log_u[j] - shift)
        total += out[j]
    if variant == FIXED:
        kept = 0.0
        for j in range(log_u.size):
            out[j] = out[j] if out[j] * n >= total else 0.0
            out[j] = 1.0 if j == 0 else out[j]
            kept += out[j]
        for j in range(log_u.size):
            out[j] /= kept
        return
    largest, least = 0.0, total / (n + TINY)
    for j in range(log_u.size):
        p = out[j] / (total + TINY)
        out[j] = scale * p if present[j] and p > least else 0.0
        largest = max(largest, out[j])
    if largest > clamp:
        for j in range(log_u.size):
            out[j] *= clamp / (largest + TINY)


@register_jitable
def _judge(
    variant, confident, n, present, log_pi, log_mentor, of_student, numbers, rate, scratch, less,
    line,
):  # fmt: skip
    """Writes a position's loss and statistics, and `less` of each action; returns its α."""
    width = log_pi.size
    log_u, rewards, pushed = scratch[0], scratch[1], scratch[2]
    w_r, w_m, smoothing = float(numbers[REALITY]), float(numbers[CRITIC]), float(numbers[SMOOTHING])
    scale, clamp = float(numbers[SCALE]), float(numbers[CLAMP])
    bonus, share = float(numbers[BONUS]), float(numbers[SHARE])
    bonus = bonus if variant in (FIXED, ORIGINAL) else 0.0
    if confident:
        w_m = _confidence(log_mentor, present, n)
        w_r = 1.0 - w_m
    of_gold = 0.0 if variant == ORIGINAL and n == 1 else math.log(1.0 - smoothing)
    of_others = -np.inf if smoothing == 0 else math.log(smoothing / max(n - 1, 1))
    of_gold, of_others = _times(w_r, of_gold), _times(w_r, of_others)
    for j in range(width):
        log_u[j] = (of_gold if j == 0 else of_others) + _times(w_m, log_mentor[j])
        log_u[j] = log_u[j] if present[j] else -np.inf
    _rewards(variant, log_u, present, n, scale, clamp, rewards)
    divisor = 1.0 if variant == FIXED else n + TINY
    total, gained, divergence, kept, weight = 0.0, 0.0, 0.0, 0, 0.0
    for j in range(width):
        total += rewards[j]
    for j in range(width):
        reward = rewards[j]
        pushed[j] = reward
        if reward > 0:
            logs = log_pi[j]
            if variant == ORIGINAL:
                pi = math.exp(log_pi[j])
                logs = math.log(pi + FLOOR)
                pushed[j] = reward * (pi / (pi + FLOOR))
            gained += reward * logs
            divergence += reward / total * (math.log(reward / total) - logs)
            kept += 1
        weight += pushed[j]
    factor = share * rate / divisor
    alpha = weight * factor - share * bonus * of_student[MEAN, 0]
    if variant == SUBSET:
        gained = _on_actions(log_pi, present, rewards, total, pushed)
        alpha = 0.0
    for j in range(width):
        less[j] = pushed[j] * factor
    entropy = of_student[OF_ENTROPY, 0]
    line[LOSS] = -gained / divisor - bonus * entropy
    line[GOLD_REWARD], line[GOLD_REWARDED] = rewards[0], rewards[0] > 0
    line[KEPT], line[ACTIONS], line[KL], line[ENTROPY] = kept, n, divergence, entropy
    return alpha


@register_jitable
def _on_actions(log_pi, present, rewards, total, pushed):
    """Σ R log q, q being the softmax on the actions alone; `pushed` becomes R − q Σ R."""
    top = -np.inf
    for j in range(log_pi.size):
        if present[j] and log_pi[j] > top:
            top = log_pi[j]
    mass = 0.0
    for j in range(log_pi.size):
        if present[j]:
            mass += math.exp(log_pi[j] - top)
    gained, log_mass = 0.0, math.log(mass)
    for j in range(log_pi.size):
        log_q = log_pi[j] - top - log_mass
        if rewards[j] > 0:
            gained += rewards[j] * log_q
        pushed[j] = rewards[j] - (total * math.exp(log_q) if present[j] else 0.0)
    return gained


@jit(reassociate=True)
def _floored(row, peak, log_total, policy, steep):
    """Writes π and h = log(π + floor) + π/(π + floor) of a row; Σ π log(π + floor) and Σ π h."""
    zero, floor = row.dtype.type(0), row.dtype.type(FLOOR)
    moment, mean = 0.0, 0.0
    for first in range(0, row.size, PART):
        x, p, h = row[first : first + PART], policy[first : first + PART], steep[first:]
        own, whole = zero, zero
        for j in range(x.size):
            pi = exp(x[j] - peak - log_total)
            raised = pi + floor
            logarithm = log(raised)
            slope = logarithm + pi / raised
            p[j], h[j] = pi, slope
            own += pi * logarithm
            whole += pi * slope
        moment += own
        mean += whole
    return moment, mean


@jit()
def _floored_slopes(policy, steep, alpha, beta, tokens, less, out):
    """out_j = π_j (α + β h_j) − the `less` of each token."""
    for j in range(out.size):
        out[j] = policy[j] * (alpha + beta * steep[j])
    for j in range(tokens.size):
        out[tokens[j]] -= less[j]


@jit()
def rows(variant, confident, k, size, student, critic, gold, counted, numbers, sheet, gradient):
    """What `avatarl_whole.whole` says, row by row."""
    (memory, starts), (other_memory, other_starts) = student, critic
    dtype, width = memory.dtype, 2 * k + 1
    top, other_top = np.empty((1, k), np.int64), np.empty((1, k), np.int64)
    tokens, present = np.empty((1, width), np.int64), np.empty(width, np.bool_)
    of_student, of_critic = np.empty((4, 1), dtype), np.empty((4, 1), dtype)
    log_pi, log_mentor = np.empty(width, dtype), np.empty(width, dtype)
    scratch, less = np.empty((3, width), dtype), np.empty((1, width), dtype)
    alphas, betas = np.empty(1, dtype), np.empty(1, dtype)
    floored, bonused = variant == ORIGINAL, variant in (FIXED, ORIGINAL)
    policy, steep = np.empty(size * floored, dtype), np.empty(size * floored, dtype)
    one, none = dtype.type(1), dtype.type(0)
    wrong, other_wrong = -1, -1
    for i in range(starts.size):
        if not counted[i]:
            sheet[i] = 0
            gradient[i] = 0
            continue
        start, other_start, told = starts[i : i + 1], other_starts[i : i + 1], numbers[i]
        rate = one if bonused else dtype.type(1.0 / (1.0 + told[BONUS]))
        bad = _survey(memory, start, size, rate, top, of_student)
        other_bad = _survey(other_memory, other_start, size, one, other_top, of_critic)
        wrong = i if bad and wrong < 0 else wrong
        other_wrong = i if other_bad and other_wrong < 0 else other_wrong
        if bad or other_bad or gold[i] < 0 or gold[i] >= size:
            sheet[i] = np.nan
            gradient[i] = np.nan
            continue
        peak, log_total = of_student[PEAK, 0], of_student[LOG_TOTAL, 0]
        if floored:
            row = memory[start[0] : start[0] + size]
            moment, mean = _floored(row, peak, log_total, policy, steep)
            of_student[OF_ENTROPY, 0], of_student[MEAN, 0] = -moment, mean
        n = _choose(gold[i], top[0], other_top[0], tokens[0], present)
        for j in range(width):
            z, c = memory[start[0] + tokens[0, j]], other_memory[other_start[0] + tokens[0, j]]
            log_pi[j] = (z - peak) * rate - log_total
            log_mentor[j] = c - of_critic[PEAK, 0] - of_critic[LOG_TOTAL, 0]
        alphas[0] = _judge(
            variant, confident, n, present, log_pi, log_mentor, of_student, told, rate, scratch,
            less[0], sheet[i],
        )  # fmt: skip
        betas[0] = told[BONUS] * told[SHARE] if bonused else none
        if gradient.size and floored:
            _floored_slopes(policy, steep, alphas[0], betas[0], tokens[0], less[0], gradient[i])
        elif gradient.size:
            slopes(
                memory, start, size, rate, none, None, of_student[PEAK], of_student[LOG_TOTAL],
                alphas, betas, tokens, less, gradient[i : i + 1],
            )  # fmt: skip
    return wrong, other_wrong


@register_jitable
def _survey(memory, start, size, rate, top, found):
    """Whether the row is no distribution; else all there is to know of it."""
    return survey(
        memory, start, size, rate, memory.dtype.type(0), None, top,
        found[PEAK], found[LOG_TOTAL], found[OF_ENTROPY], found[MEAN],
    ) == 0  # fmt: skip
