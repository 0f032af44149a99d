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
from loopless.compiled.logits import ENTROPY, LOG_TOTAL, PART, PEAK, SUMMARY, slopes, survey
from loopless.compiled.math import exp, log
from loopless.compiled.scan import select
from loopless.kernels.avatarl import recipe
from loopless.kernels.avatarl.recipe import FIXED, FLOOR, ORIGINAL, SUBSET, TINY, Constants

LANES = 128  # positions in a block at most
CACHED = 1 << 15  # logits in a block at most, so that its rows stay in the second-level cache
# Columns of `numbers`, which are rows of `settings`
NUMBERS = 7
REALITY, CRITIC, SMOOTHING, SCALE, CLAMP, BONUS, SHARE = range(NUMBERS)
# Rows of `state`, what is computed of each position; the first are the columns of `sheet`
COLUMNS, STATE = 11, 21
LOSS, GOLD_REWARD, GOLD_REWARDED, KEPT, N, KL, ENTROPY_OF_POLICY = range(7)
REWARD_MEAN, REWARD_MAX, REWARD_MIN, GOLD_LOSS = range(7, COLUMNS)
MEAN, GOLD_TERM, OTHER_TERM, TOP, TOTAL, FACTOR, GAINED, PUSHED, ALPHA, BETA = range(COLUMNS, STATE)

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
    sheet: [N, 11], the loss and then the statistics in the order of `recipe.STATS`.
    gradient: [N, size], or [N, 0] if it is not wanted.

    Rows that are not counted come out 0; rows that are no distribution (NaN, +inf, or nothing above
    −inf), or whose gold is no token, come out NaN. Returns the first counted rows of student and of
    critic that are no distribution, or −1.
    """
    (memory, starts), (critic_memory, critic_starts) = student, critic
    count, dtype, width = starts.size, memory.dtype, 2 * k + 1
    block = max(1, min(LANES, CACHED // size, count))
    is_floored, has_bonus = variant == ORIGINAL, variant in (FIXED, ORIGINAL)
    one = dtype.type(1)
    tokens = np.empty((width, block), np.int32)  # gold, the student's best and the critic's best
    top, critic_top = tokens[1 : k + 1], tokens[k + 1 :]
    present = np.empty((width, block), np.bool_)
    summary, critic_summary = np.empty((SUMMARY, block), dtype), np.empty((SUMMARY, block), dtype)
    log_pi, log_mentor = np.empty((width, block), dtype), np.empty((width, block), dtype)
    rewards, pushed = np.empty((width, block), dtype), np.empty((width, block), dtype)
    settings, state = np.empty((NUMBERS, block), dtype), np.empty((STATE, block), dtype)
    policy = np.empty((3, block * is_floored, size), dtype)
    unsound, critic_unsound = -1, -1
    for first in range(0, count, block):
        lanes = min(block, count - first)
        rows = slice(first, first + lanes)
        here, critic_here, is_counted = starts[rows], critic_starts[rows], counted[rows]
        rate = one if has_bonus else one / (one + numbers[first, BONUS])
        row = survey(memory, here, size, rate, is_counted, top, log_pi[1 : k + 1], summary)
        unsound = first + row if row >= 0 and unsound < 0 else unsound
        row = survey(
            critic_memory, critic_here, size, one, is_counted, critic_top, log_mentor[k + 1 :],
            critic_summary,
        )  # fmt: skip
        critic_unsound = first + row if row >= 0 and critic_unsound < 0 else critic_unsound
        for i in range(lanes):
            for j in range(NUMBERS):
                settings[j, i] = numbers[first + i, j]
            if not has_bonus:
                settings[BONUS, i] = 0
            is_token = 0 <= gold[first + i] < size
            tokens[0, i] = gold[first + i] if is_token else 0
            if not is_token or np.isnan(critic_summary[LOG_TOTAL, i]):
                summary[LOG_TOTAL, i] = np.nan
            state[ENTROPY_OF_POLICY, i] = summary[ENTROPY, i]
            state[MEAN, i] = -summary[ENTROPY, i]
        if is_floored:
            _floor(memory, here, summary, policy, state)
        _gather(memory, here, tokens[:1], log_pi[:1])
        _gather(memory, here, critic_top, log_pi[k + 1 :])
        _find_new(lanes, tokens, log_pi, present, state[N])
        _normalize(lanes, rate, summary, log_pi)
        _gather(critic_memory, critic_here, tokens[: k + 1], log_mentor[: k + 1])
        _normalize(lanes, one, critic_summary, log_mentor)
        _rewards(variant, confident, lanes, log_mentor, present, settings, state, rewards, pushed)
        _evaluate(
            variant, lanes, rate, log_pi, present, rewards, settings, state, pushed, log_mentor
        )
        _report(is_counted, summary, state, sheet[rows])
        if gradient.size == 0:
            continue
        if is_floored:
            _floored_slopes(lanes, policy, is_counted, state, tokens, pushed, gradient[rows])
        else:
            slopes(
                memory, here, size, rate, dtype.type(0), is_counted, summary[PEAK],
                summary[LOG_TOTAL], state[ALPHA], state[BETA], tokens, pushed, gradient[rows],
            )  # fmt: skip
    return unsound, critic_unsound


@jit()
def _gather(memory, starts, tokens, out):
    """Write the logits of the tokens."""
    for j in range(tokens.shape[0]):
        token, logits = tokens[j], out[j]
        for i in range(starts.size):
            logits[i] = memory[starts[i] + token[i]]


@jit()
def _normalize(lanes, rate, summary, logits):
    """Turn logits into logarithms of the softmax."""
    peaks, log_totals = summary[PEAK], summary[LOG_TOTAL]
    for j in range(logits.shape[0]):
        row = logits[j]
        for i in range(lanes):
            row[i] = (row[i] - peaks[i]) * rate - log_totals[i]


@jit()
def _find_new(lanes, tokens, logits, present, n):
    """Write where each action stands for the first time, and how many actions there are.

    `logits` are the student's. A token is among the student's best if its logit is above that of
    the last of them, or equal to it and the token not after it.
    """
    k, gold, one = tokens.shape[0] // 2, tokens[0], logits.dtype.type(1)
    last, least = tokens[k], logits[k]
    for i in range(lanes):
        present[0, i], n[i] = True, 1
    for j in range(1, tokens.shape[0]):
        token, logit, is_new = tokens[j], logits[j], present[j]
        if j <= k:
            for i in range(lanes):
                is_new[i] = token[i] != gold[i]
        else:
            for i in range(lanes):
                is_best = (logit[i] > least[i]) | ((logit[i] == least[i]) & (token[i] <= last[i]))
                is_new[i] = (token[i] != gold[i]) & ~is_best
        for i in range(lanes):
            n[i] += select(is_new[i], one, 0)


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
def _weigh_by_confidence(lanes, log_mentor, present, settings, state, masses, scratch):
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
        settings[CRITIC, i], settings[REALITY, i] = weight, constants.one - weight


@jit()
def _rewards(variant, confident, lanes, log_mentor, present, settings, state, rewards, scratch):
    """Write each action's reward, which in the fixed form is its share of the target."""
    constants, width = _constants(state), rewards.shape[0]
    n, top, total, factor = state[N], state[TOP], state[TOTAL], state[FACTOR]
    if confident:
        _weigh_by_confidence(lanes, log_mentor, present, settings, state, rewards, scratch)
    for i in range(lanes):
        of_gold, of_others = log_reality(
            select, log, variant == ORIGINAL, n[i], settings[SMOOTHING, i], constants
        )
        state[GOLD_TERM, i] = times(select, settings[REALITY, i], of_gold)
        state[OTHER_TERM, i] = times(select, settings[REALITY, i], of_others)
    gold_term, other_term, weight = state[GOLD_TERM], state[OTHER_TERM], settings[CRITIC]
    for j in range(width):
        here, mentor, log_u, is_gold = present[j], log_mentor[j], scratch[j], j == 0
        for i in range(lanes):
            log_u[i] = log_product(
                select, is_gold, here[i], gold_term[i], other_term[i], weight[i], mentor[i],
                constants,
            )  # fmt: skip
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
        scale = settings[SCALE]
        for j in range(width):
            u = rewards[j]
            for i in range(lanes):
                u[i] = published_reward(select, u[i], n[i], total[i], scale[i], constants)
        _largest(rewards, lanes, top)
        for i in range(lanes):
            factor[i] = clamp_factor(select, top[i], settings[CLAMP, i], constants)
    for j in range(width):
        reward = rewards[j]
        for i in range(lanes):
            reward[i] *= factor[i]
    _sum(rewards, lanes, total)


@jit()
def _evaluate(variant, lanes, rate, log_pi, present, rewards, settings, state, pushed, scratch):
    """Write each position's loss and statistics, and the numbers that describe its slope."""
    constants, width = _constants(state), rewards.shape[0]
    total, factor, gained, top = state[TOTAL], state[FACTOR], state[GAINED], state[TOP]
    bonus, share, entropy = settings[BONUS], settings[SHARE], state[ENTROPY_OF_POLICY]
    divisor, kept = state[GOLD_TERM], state[KEPT]
    largest, smallest = state[REWARD_MAX], state[REWARD_MIN]
    for i in range(lanes):
        divisor[i] = constants.one if variant == FIXED else state[N, i] + constants.tiny
        factor[i] = rate * share[i] / divisor[i]
        kept[i] = 0
        state[REWARD_MEAN, i] = total[i] / state[N, i]
        largest[i] = smallest[i] = rewards[0, i]  # gold is always present
        state[GOLD_LOSS, i] = -log_pi[0, i]
    for j in range(width):
        reward, push, here = rewards[j], pushed[j], present[j]
        for i in range(lanes):
            push[i] = reward[i]
            kept[i] += select(reward[i] > 0, constants.one, 0)
            largest[i] = max(reward[i], largest[i])
            smallest[i] = min(reward[i], smallest[i]) if here[i] else smallest[i]
    if variant == ORIGINAL:
        for j in range(width):
            logs, push = log_pi[j], pushed[j]
            for i in range(lanes):
                logs[i] = exp(logs[i])
            for i in range(lanes):
                logs[i], part = floored(log, logs[i], constants)
                push[i] *= part
    for j in range(width):
        reward, logs, out = rewards[j], log_pi[j], scratch[j]
        for i in range(lanes):
            out[i] = divergence(select, log, reward[i], total[i], logs[i])
    _sum(scratch, lanes, state[KL])
    _sum(pushed, lanes, state[PUSHED])
    for i in range(lanes):
        state[BETA, i] = bonus[i] * share[i]
        state[ALPHA, i] = state[PUSHED, i] * factor[i] - state[BETA, i] * state[MEAN, i]
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
        reward, logs, out, push = rewards[j], log_pi[j], scratch[j], pushed[j]
        for i in range(lanes):
            out[i] = gain(select, reward[i], logs[i])
        for i in range(lanes):
            push[i] *= factor[i]
    _sum(scratch, lanes, gained)
    for i in range(lanes):
        state[LOSS, i] = position_loss(gained[i], divisor[i], bonus[i], entropy[i])
        state[GOLD_REWARD, i], state[GOLD_REWARDED, i] = rewards[0, i], rewards[0, i] > 0


@jit()
def _report(is_counted, summary, state, sheet):
    """Copy the loss and the statistics of each position to the sheet."""
    for i in range(is_counted.size):
        is_sound = summary[LOG_TOTAL, i] == summary[LOG_TOTAL, i]
        state[ALPHA, i] = state[ALPHA, i] if is_sound else np.nan
        for j in range(COLUMNS):
            x = state[j, i] if is_sound else state.dtype.type(np.nan)
            sheet[i, j] = x if is_counted[i] else 0


@jit(reassociate=True)
def _floor(memory, starts, summary, policy, state):
    """Write π, log(π + floor) and h = log(π + floor) + π/(π + floor), and the sums over a row.

    The exponentials of all rows are one loop, because a short row has a long remainder.
    """
    size, constants, zero = policy.shape[2], _constants(policy), policy.dtype.type(0)
    for i in range(starts.size):
        row, out = memory[starts[i] : starts[i] + size], policy[0, i]
        peak, log_total = summary[PEAK, i], summary[LOG_TOTAL, i]
        for j in range(size):
            out[j] = row[j] - peak - log_total
    pi, logs, steep = policy[0].ravel(), policy[1].ravel(), policy[2].ravel()
    for j in range(starts.size * size):
        pi[j] = exp(pi[j])
    for j in range(starts.size * size):
        logs[j], part = floored(log, pi[j], constants)
        steep[j] = logs[j] + part
    for i in range(starts.size):
        moment, mean = 0.0, 0.0
        for first in range(0, size, PART):
            piece = slice(first, first + PART)
            p, logarithm, h = policy[0, i][piece], policy[1, i][piece], policy[2, i][piece]
            moment_of_part, mean_of_part = zero, zero
            for j in range(p.size):
                moment_of_part += p[j] * logarithm[j]
                mean_of_part += p[j] * h[j]
            moment += moment_of_part
            mean += mean_of_part
        state[ENTROPY_OF_POLICY, i], state[MEAN, i] = -moment, mean


@jit()
def _floored_slopes(lanes, policy, is_counted, state, tokens, less, gradient):
    """Write π_j (α + β h_j), less the entry of `less` at each of the tokens."""
    for i in range(lanes):
        pi, steep, out = policy[0, i], policy[2, i], gradient[i]
        alpha, beta = state[ALPHA, i], state[BETA, i]
        for j in range(out.size):
            out[j] = pi[j] * (alpha + beta * steep[j]) if is_counted[i] else 0
        for j in range(tokens.shape[0]):
            if is_counted[i]:
                out[tokens[j, i]] -= less[j, i]
