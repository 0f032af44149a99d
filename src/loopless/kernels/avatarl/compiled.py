"""AvataRL from logits to their gradient in one compiled call, for the CPU.

Positions are taken in blocks. Of each block the student's and the critic's rows of logits are
surveyed (`compiled.logits`), the few actions of each position are put side by side as [w, lanes],
one lane for each position, the functions of `recipe.py` are run over them, and the gradient is
written while the rows are still in the cache. A block of a short vocabulary has many lanes, so that
the compiler makes vector instructions of every loop; a block of 50,000 tokens has one.

Imported on the first call only, by `loss.py` and `xla.py`. Loop twin: `reference.avatarl`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false

import numpy as np
from numba.extending import register_jitable

from loopless.compiled.jit import jit
from loopless.compiled.logits import PART, slopes, survey
from loopless.compiled.math import exp, log
from loopless.compiled.scan import select
from loopless.kernels.avatarl import recipe
from loopless.kernels.avatarl.recipe import FIXED, FLOOR, ORIGINAL, SUBSET, TINY, Constants

LANES = 128  # positions in a block at most
CACHED = 1 << 15  # logits in a block at most, so that its rows stay in the second-level cache

# Columns of `numbers` and of `sheet`
NUMBERS = 7
REALITY, CRITIC, SMOOTHING, SCALE, CLAMP, BONUS, SHARE = range(NUMBERS)
LOSS, GOLD_REWARD, GOLD_REWARDED, KEPT, ACTIONS, KL, ENTROPY = range(7)
# Rows of `known`, what a survey finds of each position, and of `state`, what is computed from it
PEAK, LOG_TOTAL, SURVEYED_ENTROPY, MEAN = range(4)
N, GOLD_TERM, OTHER_TERM, TOP, TOTAL, FACTOR, GAINED, DIVERGENCE, PUSHED, ALPHA, BETA = range(11)

times = register_jitable(recipe.times)
confidence = register_jitable(recipe.confidence)
log_reality = register_jitable(recipe.log_reality)
log_product = register_jitable(recipe.log_product)
fixed_weight = register_jitable(recipe.fixed_weight)
published_reward = register_jitable(recipe.published_reward)
clamp_factor = register_jitable(recipe.clamp_factor)
floored = register_jitable(recipe.floored)
gain = register_jitable(recipe.gain)
divergence = register_jitable(recipe.divergence)
subset_push = register_jitable(recipe.subset_push)
position_loss = register_jitable(recipe.loss)


@jit()
def evaluate(variant, confident, k, size, student, critic, gold, counted, numbers, sheet, gradient):
    """Write each position's loss and statistics, and the gradient of its share in the mean.

    student, critic: flat memory, and where in it each row of `size` logits starts.
    numbers: [N, 7], the weights of reality and critic (unless `confident`), label smoothing,
        reward scale, reward clamp, β, and the position's share in the mean.
    sheet: [N, 7], the loss and then the statistics in the order of `recipe.STATS`.
    gradient: [N, size], or [N, 0] if it is not wanted.

    Rows that are not counted come out 0; rows that are no distribution (NaN, +inf, or nothing above
    −inf), or whose gold is no token, come out NaN. Returns the first counted rows of student and of
    critic that are no distribution, or −1.
    """
    (memory, starts), (critic_memory, critic_starts) = student, critic
    count, dtype, width = starts.size, memory.dtype, 2 * k + 1
    block = max(1, min(LANES, CACHED // size, count))
    is_floored, has_bonus = variant == ORIGINAL, variant in (FIXED, ORIGINAL)
    one, zero = dtype.type(1), dtype.type(0)
    top, critic_top = np.empty((k, block), np.int32), np.empty((k, block), np.int32)
    tokens = np.empty((width, block), np.int32)
    known, critic_known = np.empty((4, block), dtype), np.empty((4, block), dtype)
    present = np.empty((width, block), np.bool_)
    log_pi, log_mentor = np.empty((width, block), dtype), np.empty((width, block), dtype)
    rewards, pushed = np.empty((width, block), dtype), np.empty((width, block), dtype)
    told, state = np.empty((NUMBERS, block), dtype), np.empty((11, block), dtype)
    policy = np.empty((block * is_floored, size), dtype)
    steep = np.empty((block * is_floored, size), dtype)
    wrong, critic_wrong = -1, -1
    for first in range(0, count, block):
        lanes = min(block, count - first)
        rows = slice(first, first + lanes)
        rate = one if has_bonus else one / (one + numbers[first, BONUS])
        bad = survey(
            memory, starts[rows], size, rate, zero, counted[rows], top,
            known[PEAK], known[LOG_TOTAL], known[SURVEYED_ENTROPY], known[MEAN],
        )  # fmt: skip
        critic_bad = survey(
            critic_memory, critic_starts[rows], size, one, zero, counted[rows], critic_top,
            critic_known[PEAK], critic_known[LOG_TOTAL], critic_known[SURVEYED_ENTROPY],
            critic_known[MEAN],
        )  # fmt: skip
        wrong = first + bad if bad >= 0 and wrong < 0 else wrong
        critic_wrong = first + critic_bad if critic_bad >= 0 and critic_wrong < 0 else critic_wrong
        for i in range(lanes):
            at = first + i
            for j in range(NUMBERS):
                told[j, i] = numbers[at, j]
            if not has_bonus:
                told[BONUS, i] = zero
            is_token = 0 <= gold[at] < size
            tokens[0, i] = gold[at] if is_token else 0
            if is_floored and counted[at]:
                row = memory[starts[at] : starts[at] + size]
                moment, mean = _floor(row, known[PEAK, i], known[LOG_TOTAL, i], policy[i], steep[i])
                known[SURVEYED_ENTROPY, i], known[MEAN, i] = -moment, mean
            if not is_token or np.isnan(critic_known[LOG_TOTAL, i]):
                known[LOG_TOTAL, i] = np.nan
        _choose(lanes, top, critic_top, tokens, present, state[N])
        _gather(memory, starts[rows], tokens, rate, known, log_pi)
        _gather(critic_memory, critic_starts[rows], tokens, one, critic_known, log_mentor)
        _rewards(variant, confident, lanes, log_mentor, present, told, state, rewards, pushed)
        _evaluate(
            variant, lanes, rate, log_pi, present, rewards, told, known, state, pushed, log_mentor
        )
        _report(variant, lanes, rewards, told, known, state, counted[rows], sheet[rows])
        if gradient.size == 0:
            continue
        for j in range(width):
            for i in range(lanes):
                pushed[j, i] *= state[FACTOR, i]
        if is_floored:
            for i in range(lanes):
                _floored_slopes(
                    policy[i],
                    steep[i],
                    state[ALPHA, i],
                    state[BETA, i],
                    tokens[:, i],
                    pushed[:, i],
                    counted[first + i],
                    gradient[first + i],
                )
        else:
            slopes(
                memory, starts[rows], size, rate, zero, counted[rows], known[PEAK],
                known[LOG_TOTAL], state[ALPHA], state[BETA], tokens, pushed, gradient[rows],
            )  # fmt: skip
    return wrong, critic_wrong


@jit()
def _choose(lanes, student_top, critic_top, tokens, present, n):
    """Write the actions after gold to `tokens`, where each stands first, and how many there are."""
    k, gold = student_top.shape[0], tokens[0]
    for i in range(lanes):
        present[0, i], n[i] = True, 1
    for j in range(k):
        best, critic_best = tokens[1 + j], tokens[1 + k + j]
        for i in range(lanes):
            best[i], critic_best[i] = student_top[j, i], critic_top[j, i]
        is_new, critic_is_new = present[1 + j], present[1 + k + j]
        for i in range(lanes):
            is_new[i] = best[i] != gold[i]
            critic_is_new[i] = critic_best[i] != gold[i]
        for other in range(k):
            student_best = student_top[other]
            for i in range(lanes):
                critic_is_new[i] &= critic_best[i] != student_best[i]
        for i in range(lanes):
            n[i] += is_new[i] + critic_is_new[i]


@jit()
def _gather(memory, starts, tokens, rate, known, out):
    """Write the logarithm of the softmax at the tokens."""
    peaks, log_totals = known[PEAK], known[LOG_TOTAL]
    for j in range(tokens.shape[0]):
        token, logs = tokens[j], out[j]
        for i in range(starts.size):
            logs[i] = (memory[starts[i] + token[i]] - peaks[i]) * rate - log_totals[i]


@register_jitable
def _constants(like):
    real = like.dtype.type
    return Constants(real(1), real(TINY), real(FLOOR), real(-np.inf))


@jit()
def _sum(x, lanes, out):
    """Write the sum over the actions."""
    for i in range(lanes):
        out[i] = x[0, i]
    for j in range(1, x.shape[0]):
        row = x[j]
        for i in range(lanes):
            out[i] += row[i]


@jit()
def _largest(x, lanes, out):
    """Write the largest over the actions."""
    for i in range(lanes):
        out[i] = x[0, i]
    for j in range(1, x.shape[0]):
        row = x[j]
        for i in range(lanes):
            out[i] = row[i] if row[i] > out[i] else out[i]


@jit()
def _exponentials(x, lanes, shift, out):
    """Write e to the power x − shift, or to the power x where the shift is −inf."""
    zero, least = x.dtype.type(0), x.dtype.type(-np.inf)
    for j in range(x.shape[0]):
        row, powers = x[j], out[j]
        for i in range(lanes):
            powers[i] = exp(row[i] - (shift[i] if shift[i] > least else zero))


@jit()
def _weigh_by_confidence(lanes, log_mentor, present, told, state, masses, scratch):
    """Write the weights of both experts as the critic's confidence sets them."""
    constants = _constants(state)
    for j in range(log_mentor.shape[0]):
        here, row, out = present[j], log_mentor[j], scratch[j]
        for i in range(lanes):
            out[i] = row[i] if here[i] else constants.minus_infinity
    _largest(scratch, lanes, state[TOP])
    _exponentials(scratch, lanes, state[TOP], masses)
    _sum(masses, lanes, state[TOTAL])
    for j in range(log_mentor.shape[0]):
        m, out = masses[j], scratch[j]
        for i in range(lanes):
            out[i] = gain(select, m[i], out[i] - state[TOP, i])
    _sum(scratch, lanes, state[GAINED])
    for i in range(lanes):
        weight = confidence(select, log, state[N, i], state[TOTAL, i], state[GAINED, i], constants)
        told[CRITIC, i], told[REALITY, i] = weight, constants.one - weight


@jit()
def _rewards(variant, confident, lanes, log_mentor, present, told, state, rewards, scratch):
    """Write each action's reward, which in the fixed form is its share of the target."""
    constants, width = _constants(state), rewards.shape[0]
    n, top, total, factor = state[N], state[TOP], state[TOTAL], state[FACTOR]
    if confident:
        _weigh_by_confidence(lanes, log_mentor, present, told, state, rewards, scratch)
    for i in range(lanes):
        of_gold, of_others = log_reality(
            select, log, variant == ORIGINAL, n[i], told[SMOOTHING, i], constants
        )
        state[GOLD_TERM, i] = times(select, told[REALITY, i], of_gold)
        state[OTHER_TERM, i] = times(select, told[REALITY, i], of_others)
    gold_term, other_term, weight = state[GOLD_TERM], state[OTHER_TERM], told[CRITIC]
    for j in range(width):
        here, mentor, log_u, is_gold = present[j], log_mentor[j], scratch[j], j == 0
        for i in range(lanes):
            log_u[i] = log_product(
                select,
                is_gold,
                here[i],
                gold_term[i],
                other_term[i],
                weight[i],
                mentor[i],
                constants,
            )
    if variant == FIXED:
        _largest(scratch, lanes, top)
    else:
        for i in range(lanes):
            top[i] = 0
    _exponentials(scratch, lanes, top, rewards)
    _sum(rewards, lanes, total)
    if variant == FIXED:
        for j in range(width):
            u, is_gold = rewards[j], j == 0
            for i in range(lanes):
                u[i] = fixed_weight(select, is_gold, u[i], n[i], total[i])
        _sum(rewards, lanes, total)
        for i in range(lanes):
            factor[i] = constants.one / total[i]
    else:
        scale = told[SCALE]
        for j in range(width):
            u = rewards[j]
            for i in range(lanes):
                u[i] = published_reward(select, u[i], n[i], total[i], scale[i], constants)
        _largest(rewards, lanes, top)
        for i in range(lanes):
            factor[i] = clamp_factor(select, top[i], told[CLAMP, i], constants)
    for j in range(width):
        reward = rewards[j]
        for i in range(lanes):
            reward[i] *= factor[i]
    _sum(rewards, lanes, total)


@jit()
def _evaluate(variant, lanes, rate, log_pi, present, rewards, told, known, state, pushed, scratch):
    """Write each position's gain and divergence, and the numbers that describe its slope."""
    constants, width = _constants(state), rewards.shape[0]
    total, factor, gained, top = state[TOTAL], state[FACTOR], state[GAINED], state[TOP]
    bonus, share, mean = told[BONUS], told[SHARE], known[MEAN]
    for j in range(width):
        reward, push = rewards[j], pushed[j]
        for i in range(lanes):
            push[i] = reward[i]
    if variant == ORIGINAL:
        for j in range(width):
            logs, push = log_pi[j], pushed[j]
            for i in range(lanes):
                _, logs[i], part = floored(exp, log, logs[i], constants)
                push[i] *= part
    for j in range(width):
        reward, logs, out = rewards[j], log_pi[j], scratch[j]
        for i in range(lanes):
            out[i] = divergence(select, log, reward[i], total[i], logs[i])
    _sum(scratch, lanes, state[DIVERGENCE])
    _sum(pushed, lanes, state[PUSHED])
    for i in range(lanes):
        divisor = constants.one if variant == FIXED else state[N, i] + constants.tiny
        factor[i] = rate * share[i] / divisor
        state[ALPHA, i] = state[PUSHED, i] * factor[i] - bonus[i] * share[i] * mean[i]
        state[BETA, i] = bonus[i] * share[i]
    if variant == SUBSET:
        for j in range(width):
            here, logs = present[j], log_pi[j]
            for i in range(lanes):
                logs[i] = logs[i] if here[i] else constants.minus_infinity
        _largest(log_pi, lanes, top)
        _exponentials(log_pi, lanes, top, scratch)
        _sum(scratch, lanes, gained)
        for i in range(lanes):
            top[i] += log(gained[i])
            state[ALPHA, i] = 0
        for j in range(width):
            here, reward, logs, push = present[j], rewards[j], log_pi[j], pushed[j]
            for i in range(lanes):
                logs[i] -= top[i]
            for i in range(lanes):
                push[i] = subset_push(select, here[i], reward[i], total[i], exp(logs[i]))
    for j in range(width):
        reward, logs, out = rewards[j], log_pi[j], scratch[j]
        for i in range(lanes):
            out[i] = gain(select, reward[i], logs[i])
    _sum(scratch, lanes, gained)


@jit()
def _report(variant, lanes, rewards, told, known, state, counted, sheet):
    """Write the loss and the statistics of each position to the sheet."""
    constants = _constants(state)
    for i in range(lanes):
        line = sheet[i]
        if not counted[i]:
            line[:] = 0
            continue
        if np.isnan(known[LOG_TOTAL, i]):
            line[:], state[ALPHA, i] = np.nan, np.nan
            continue
        kept = 0
        for j in range(rewards.shape[0]):
            kept += rewards[j, i] > 0
        entropy = known[SURVEYED_ENTROPY, i]
        divisor = constants.one if variant == FIXED else state[N, i] + constants.tiny
        line[LOSS] = position_loss(state[GAINED, i], divisor, told[BONUS, i], entropy)
        line[GOLD_REWARD], line[GOLD_REWARDED] = rewards[0, i], rewards[0, i] > 0
        line[KEPT], line[ACTIONS] = kept, state[N, i]
        line[KL], line[ENTROPY] = state[DIVERGENCE, i], entropy


@jit(reassociate=True)
def _floor(row, peak, log_total, policy, steep):
    """Write π and h = log(π + floor) + π/(π + floor); return Σ π log(π + floor) and Σ π h."""
    zero, constants = row.dtype.type(0), _constants(row)
    moment, mean = 0.0, 0.0
    for first in range(0, row.size, PART):
        x, p, h = row[first : first + PART], policy[first : first + PART], steep[first:]
        sum_of_part, mean_of_part = zero, zero
        for j in range(x.size):
            pi, logarithm, part = floored(exp, log, x[j] - peak - log_total, constants)
            slope = logarithm + part
            p[j], h[j] = pi, slope
            sum_of_part += pi * logarithm
            mean_of_part += pi * slope
        moment += sum_of_part
        mean += mean_of_part
    return moment, mean


@jit()
def _floored_slopes(policy, steep, alpha, beta, tokens, less, is_counted, out):
    """Write out_j = π_j (α + β h_j), less the entry of `less` at each of the tokens."""
    if not is_counted:
        out[:] = 0
        return
    for j in range(out.size):
        out[j] = policy[j] * (alpha + beta * steep[j])
    for j in range(tokens.size):
        out[tokens[j]] -= less[j]
