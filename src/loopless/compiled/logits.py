"""Rows of logits on the CPU, compiled by Numba: each is read from memory once a pass.

What there is to know of a row (its largest entries, its log-sum-exp, its entropy) takes several
passes, and a row of 50,000 tokens fits into the cache where the array does not. A row is told by
where it starts in flat memory, so that slices of a larger array are not copied.

Imported on the first call only, by `arrays.vocabulary`. Tests: `tests/arrays/test_vocabulary.py`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false

import math

import numpy as np
from numba.extending import register_jitable

from loopless.compiled.jit import jit
from loopless.compiled.math import exp, log, lowest

LANES = 64  # stripes side by side in a tile, so that maxima of blocks are elementwise
TILE = LANES * LANES
BLOCKED = 1024  # tokens from which on blocks are searched; below, one look at each is cheaper
PART = 1024  # addends of a float32 sum, before it goes on in float64


@register_jitable
def _insert(values, tokens, held, x, token):
    """x among the `held` largest, in order; of equal values the lower token stands first."""
    k = values.size
    place = held if held < k else k - 1
    while place > 0:
        before = values[place - 1]
        if before > x or (before == x and tokens[place - 1] < token):
            break
        values[place] = before
        tokens[place] = tokens[place - 1]
        place -= 1
    values[place] = x
    tokens[place] = token
    return held + 1 if held < k else held


@register_jitable
def _maxima_of_blocks(row, maxima):
    """The maximum of every block: lane l of tile t holds tokens t·4096 + i·64 + l."""
    count = row.size
    for tile in range((count + TILE - 1) // TILE):
        lanes = maxima[tile * LANES : (tile + 1) * LANES]
        lanes[:] = -np.inf
        part = row[tile * TILE : min((tile + 1) * TILE, count)]
        stripes = part.size // LANES
        for i in range(stripes):
            stripe = part[i * LANES : (i + 1) * LANES]
            for lane in range(LANES):
                lanes[lane] = stripe[lane] if stripe[lane] > lanes[lane] else lanes[lane]
        rest = part[stripes * LANES :]
        for lane in range(rest.size):
            lanes[lane] = rest[lane] if rest[lane] > lanes[lane] else lanes[lane]


@register_jitable
def _top(row, values, tokens, maxima):
    """The tokens of the largest values, in order.

    The k largest are in the blocks whose maximum is among the k largest maxima; where maxima are
    equal, in any block of that maximum.
    """
    k, count, held = values.size, row.size, 0
    if count < BLOCKED:
        for token in range(count):  # in order, so that of equals the first stands first
            x = row[token]
            if held < k or x > values[k - 1]:
                place = held if held < k else k - 1
                held += held < k
                while place > 0 and values[place - 1] < x:
                    values[place] = values[place - 1]
                    tokens[place] = tokens[place - 1]
                    place -= 1
                values[place], tokens[place] = x, token
        return
    _maxima_of_blocks(row, maxima)
    blocks = (count + TILE - 1) // TILE * LANES
    for block in range(blocks):
        x = maxima[block]
        if held < k or x > values[k - 1]:
            held = _insert(values, tokens, held, x, block)
    least = values[k - 1] if held == k else -np.inf
    held = 0
    for block in range(blocks):
        if maxima[block] >= least:
            first = block // LANES * TILE + block % LANES
            for token in range(first, min(first - block % LANES + TILE, count), LANES):
                x = row[token]
                if held < k or x > values[k - 1] or (x == values[k - 1] and token < tokens[k - 1]):
                    held = _insert(values, tokens, held, x, token)


@jit(reassociate=True)
def _sums(row, largest, rate):
    """Σ e^d and Σ d·e^d of d = (x − largest)·rate."""
    least = lowest(largest)
    total, moment = 0.0, 0.0
    for first in range(0, row.size, PART):
        part = row[first : first + PART]
        s, m = largest * 0, largest * 0
        for j in range(part.size):
            d = (part[j] - largest) * rate
            e = exp(d)
            s += e
            m += e * (least if d < least else d)  # 0 times minus infinity is not 0
        total += s
        moment += m
    return total, moment


@jit(reassociate=True)
def floored_sums(row, largest, rate, log_total, floor):
    """Σ π log(π + floor) and Σ π²/(π + floor)."""
    total, share = 0.0, 0.0
    for j in range(row.size):
        pi = exp((row[j] - largest) * rate - log_total)
        raised = pi + floor
        total += pi * log(raised)
        share += pi * pi / raised
    return total, share


@jit()
def survey(memory, starts, count, rate, floor, counted, top, peaks, log_totals, entropies, means):
    """Of each row: its top k tokens, largest entry, log Σ e^((x − largest)·rate), entropy, mean h.

    The entropy is −Σ π log(π + floor); h is what `slopes` says. Rows that are not counted are not
    read. Returns the first row that is no distribution (NaN, +inf, or nothing above −inf), or −1.
    """
    k = top.shape[1]
    values, tokens = np.empty(max(k, 1), memory.dtype), np.empty(max(k, 1), np.int64)
    maxima = np.empty((count + TILE - 1) // TILE * LANES, memory.dtype)
    for i in range(starts.size):
        if counted is not None and not counted[i]:
            top[i] = 0
            peaks[i], log_totals[i], entropies[i], means[i] = 0, 0, 0, 0
            continue
        row = memory[starts[i] : starts[i] + count]
        _top(row, values, tokens, maxima)
        for j in range(k):
            top[i, j] = tokens[j]
        peaks[i] = values[0]
        total, moment = _sums(row, values[0], rate)
        if not (-np.inf < values[0] < np.inf and total == total):
            return i
        log_totals[i] = math.log(total)
        entropies[i] = math.log(total) - moment / total
        means[i] = -entropies[i]
        if floor > 0:
            moment, share = floored_sums(row, values[0], rate, log_totals[i], floor)
            entropies[i] = -moment
            means[i] = moment + share
    return -1


@jit()
def slopes(
    memory, starts, count, rate, floor, counted, peaks, log_totals, alphas, betas, tokens, less, out
):
    """out_j = π_j (α + β h_j) − the `less` of each token j, and 0 in rows that are not counted.

    h = log π, or with a floor log(π + floor) + π/(π + floor).
    """
    for i in range(starts.size):
        gradient = out[i]
        if counted is not None and not counted[i]:
            gradient[:] = 0
            continue
        row = memory[starts[i] : starts[i] + count]
        peak, log_total, alpha, beta = peaks[i], log_totals[i], alphas[i], betas[i]
        if alpha == 0 and beta == 0:
            gradient[:] = 0
        elif floor > 0:
            for j in range(count):
                pi = exp((row[j] - peak) * rate - log_total)
                raised = pi + floor
                gradient[j] = pi * (alpha + beta * (log(raised) + pi / raised))
        else:
            least = lowest(peak)
            for j in range(count):
                log_pi = (row[j] - peak) * rate - log_total
                h = least if log_pi < least else log_pi
                gradient[j] = exp(log_pi) * (alpha + beta * h)
        for j in range(tokens.shape[1]):
            gradient[tokens[i, j]] -= less[i, j]


@jit()
def divergences(memory, starts, count, rate, counted, peaks, log_totals, others, out):
    """Σ q (log q − log π) of each row; `others` are the memory, starts, peaks, totals of q's."""
    memory_q, starts_q, peaks_q, log_totals_q = others
    for i in range(starts.size):
        out[i] = 0
        if counted is not None and not counted[i]:
            continue
        row = memory[starts[i] : starts[i] + count]
        other = memory_q[starts_q[i] : starts_q[i] + count]
        total, least = 0.0, lowest(peaks[i])
        for j in range(count):
            log_q = (other[j] - peaks_q[i]) * rate - log_totals_q[i]
            if log_q > least:
                log_pi = (row[j] - peaks[i]) * rate - log_totals[i]
                total += exp(log_q) * (log_q - log_pi)
        out[i] = total


@jit()
def differences(memory, starts, count, rate, counted, peaks, log_totals, alphas, others, out):
    """out_j = α (π_j − q_j), of the same two."""
    memory_q, starts_q, peaks_q, log_totals_q = others
    for i in range(starts.size):
        gradient = out[i]
        if counted is not None and not counted[i]:
            gradient[:] = 0
            continue
        row = memory[starts[i] : starts[i] + count]
        other = memory_q[starts_q[i] : starts_q[i] + count]
        peak, log_total, alpha = peaks[i], log_totals[i], alphas[i]
        peak_q, log_total_q = peaks_q[i], log_totals_q[i]
        for j in range(count):
            pi = exp((row[j] - peak) * rate - log_total)
            gradient[j] = alpha * (pi - exp((other[j] - peak_q) * rate - log_total_q))
