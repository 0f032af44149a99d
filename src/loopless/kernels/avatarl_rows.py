"""AvataRL row by row, compiled by Numba: what `avatarl_targets` and `avatarl` say of whole arrays.

On the CPU the array form spends its time in sixty small operations and in comparing sets; here a
row is done when it is left. Written a second time for that, and held to the first by the tests of
parity. Imports `arrays` and Numba; imported on the first call only, by `kernels.avatarl`. Loop
twin: `reference.avatarl`. Tests: `tests/kernels/test_avatarl_*.py`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false

import math

import numpy as np
from numba.extending import register_jitable

from loopless.arrays.numba_jit import jit
from loopless.arrays.numba_math import exp
from loopless.arrays.numba_scan import at
from loopless.kernels.avatarl_targets import TINY

FIXED, ORIGINAL, SUBSET, FULL = range(4)
VARIANTS = {"fixed": FIXED, "original": ORIGINAL, "subset": SUBSET, "full": FULL}
LOSS, GOLD_REWARD, GOLD_REWARDED, KEPT, ACTIONS, KL, ENTROPY = range(7)  # lines of a sheet


@jit()
def choose(gold, student_top, critic_top, actions, present):
    """Gold, the student's best and the critic's best, and where each stands for the first time."""
    k = student_top.shape[1]
    for i in range(gold.size):
        actions[i, 0], present[i, 0] = gold[i], True
        for j in range(k):
            actions[i, 1 + j] = student_top[i, j]
            present[i, 1 + j] = student_top[i, j] != gold[i]
        for j in range(k):
            token = critic_top[i, j]
            known = token == gold[i]
            for other in range(k):
                known |= token == student_top[i, other]
            actions[i, 1 + k + j], present[i, 1 + k + j] = token, not known


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


@jit()
def judge(
    variant, confident, present, counted, student, critic, numbers, rate, beta, share, floor,
    less, alphas, sheet,
):  # fmt: skip
    """Rewards, losses, statistics, and the derivative by its two numbers a row.

    `student` and `critic` are the picked logits [N, w], and peak, log total, entropy and mean of
    their rows; `share` is what a row counts in the mean. `less`, `alphas` and `sheet` are written.
    """
    z, z_peaks, z_totals, entropies, means = student
    c, c_peaks, c_totals, _, _ = critic
    reality_weight, critic_weight, smoothing, scale, clamp = numbers
    count, width = z.shape
    log_mentor, log_u = np.empty(width, z.dtype), np.empty(width, z.dtype)
    log_pi, rewards, pushed = np.empty_like(log_u), np.empty_like(log_u), np.empty_like(log_u)
    bonus = beta if variant in (FIXED, ORIGINAL) else 0.0
    on_gold = math.log(1.0 - smoothing)
    for i in range(count):
        if counted is not None and not counted[i]:
            less[i] = 0
            alphas[i] = 0
            sheet[:, i] = 0
            continue
        here, n = present[i], 0
        for j in range(width):
            n += here[j]
            log_mentor[j] = c[i, j] - c_peaks[i] - c_totals[i]
            log_pi[j] = (z[i, j] - z_peaks[i]) * rate - z_totals[i]
        w_r, w_m = at(reality_weight, i), at(critic_weight, i)
        if confident:
            w_m = _confidence(log_mentor, here, n)
            w_r = 1.0 - w_m
        of_gold = _times(w_r, 0.0 if variant == ORIGINAL and n == 1 else on_gold)
        of_others = -np.inf if smoothing == 0 else math.log(smoothing / max(n - 1, 1))
        of_others = _times(w_r, of_others)
        for j in range(width):
            log_u[j] = (of_gold if j == 0 else of_others) + _times(w_m, log_mentor[j])
            log_u[j] = log_u[j] if here[j] else -np.inf
        _rewards(variant, log_u, here, n, scale, clamp, rewards)
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
                    logs = math.log(pi + floor)
                    pushed[j] = reward * (pi / (pi + floor))
                gained += reward * logs
                divergence += reward / total * (math.log(reward / total) - logs)
                kept += 1
            weight += pushed[j]
        factor = share * rate / divisor
        if variant == SUBSET:
            gained = _on_actions(log_pi, here, rewards, total, pushed)
            alphas[i] = 0
        else:
            alphas[i] = weight * factor - share * bonus * means[i]
        for j in range(width):
            less[i, j] = pushed[j] * factor
        sheet[LOSS, i] = -gained / divisor - bonus * entropies[i]
        sheet[GOLD_REWARD, i], sheet[GOLD_REWARDED, i] = rewards[0], rewards[0] > 0
        sheet[KEPT, i], sheet[ACTIONS, i], sheet[KL, i] = kept, n, divergence
        sheet[ENTROPY, i] = entropies[i]


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
