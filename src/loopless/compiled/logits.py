"""Rows of logits on the CPU, compiled by Numba.

What a loss needs of a row (its largest entries, its log-sum-exp, its entropy) takes several passes.
A long row is surveyed alone: 50,000 tokens fit into the cache where the whole array does not. A row
of some dozens of tokens is too short for vector instructions, and each of its largest entries costs
a mispredicted branch; so short rows are surveyed side by side, one row in each lane, and one token
of all of them at a time, without branches. A row is given by where it starts in flat memory, so
that slices of a larger array are not copied.

Imported on the first call only, by `arrays.logits.numpy` and `kernels.avatarl.compiled`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false

import math

import numpy as np
from numba.extending import register_jitable

from loopless.compiled.jit import jit
from loopless.compiled.math import exp, log, lowest

SHORT = 256  # tokens at most of rows that are surveyed side by side
LANES = 128  # rows side by side
WIDTH = LANES + 16  # of a tile: with a power of two, its rows would share few sets of the cache
STRIPE = 64  # neighbors in a long row, each the next element of another block
TILE = STRIPE * STRIPE  # tokens of a tile: 64 blocks of 64 tokens each
PART = 1024  # addends of a float32 sum, before it goes on in float64


# Rows of what a survey writes about each row of logits
SUMMARY = 3
PEAK, LOG_TOTAL, ENTROPY = range(SUMMARY)


@jit()
def survey(memory, starts, count, rate, counted, top, entries, summary):
    """Write the top tokens and their logits, and peak, log Σ e^((x − peak)·rate) and entropy.

    A row has `count` logits. Rows that are not counted come out 0. Rows that are no distribution
    (NaN, +inf, or nothing above −inf) come out NaN. Returns the first of those, or −1.
    """
    if count <= SHORT:
        _survey_short(memory, starts, count, rate, top, entries, summary)
    else:
        _survey_long(memory, starts, count, rate, counted, top, entries, summary)
    unsound, peaks, log_totals = -1, summary[PEAK], summary[LOG_TOTAL]
    for i in range(starts.size):
        if counted is not None and not counted[i]:
            for j in range(top.shape[0]):
                top[j, i] = 0
            for j in range(SUMMARY):
                summary[j, i] = 0
        elif not (-np.inf < peaks[i] < np.inf and log_totals[i] == log_totals[i]):
            for j in range(SUMMARY):
                summary[j, i] = np.nan
            unsound = i if unsound < 0 else unsound
    return unsound


# Short rows


@jit()
def _survey_short(memory, starts, count, rate, top, entries, summary):
    k, dtype = top.shape[0], memory.dtype
    tile = np.empty((count, WIDTH), dtype)
    best, tokens = np.empty(LANES, dtype), np.empty(LANES, np.int32)
    totals, moments = np.empty(LANES, dtype), np.empty(LANES, dtype)
    peaks, log_totals, entropies = summary[PEAK], summary[LOG_TOTAL], summary[ENTROPY]
    for first in range(0, starts.size, LANES):
        rows = min(LANES, starts.size - first)
        lanes = (rows + 15) // 16 * 16  # whole vectors, but no more than there are rows for
        _load_columns(memory, starts[first : first + rows], lanes, tile)
        for j in range(k):
            _first_of_columns(tile, lanes, best, tokens)
            if j == 0:
                _sums_of_columns(tile, lanes, best, rate, totals, moments)
                for lane in range(rows):
                    peaks[first + lane] = best[lane]
                    log_totals[first + lane] = log(totals[lane])
                for lane in range(rows):
                    mean = moments[lane] / totals[lane]
                    entropies[first + lane] = log_totals[first + lane] - mean
            tops, logits = top[j], entries[j]
            for lane in range(rows):
                tops[first + lane], logits[first + lane] = tokens[lane], best[lane]
            for lane in range(rows):
                tile[tokens[lane], lane] = np.nan  # NaN is never the largest again


@jit()
def _load_columns(memory, starts, lanes, tile):
    """Write rows as columns of the tile, four at a time; after the last row comes it again."""
    count, last = tile.shape[0], starts.size - 1
    for lane in range(0, lanes, 4):
        a, b = starts[min(lane, last)], starts[min(lane + 1, last)]
        c, d = starts[min(lane + 2, last)], starts[min(lane + 3, last)]
        first, second = memory[a : a + count], memory[b : b + count]
        third, fourth = memory[c : c + count], memory[d : d + count]
        for token in range(count):
            four = tile[token, lane : lane + 4]
            four[0], four[1], four[2], four[3] = (
                first[token], second[token], third[token], fourth[token],
            )  # fmt: skip


@jit()
def _first_of_columns(tile, lanes, best, tokens):
    """Write each column's largest entry that is not NaN, and its token; of equals the first."""
    count = tile.shape[0]
    eights = count // 8 * 8
    for lane in range(lanes):
        best[lane], tokens[lane] = -np.inf, -1
    for first in range(0, eights, 8):  # eight at a time, which leaves an eighth of the stores
        a, b, c, d = _four_rows(tile, first)
        e, f, g, h = _four_rows(tile, first + 4)
        t, u, v, w = _four_tokens(first)
        t4, u4, v4, w4 = _four_tokens(first + 4)
        for lane in range(lanes):
            x, place = _larger(a[lane], t, best[lane], tokens[lane])
            x, place = _larger(b[lane], u, x, place)
            x, place = _larger(c[lane], v, x, place)
            x, place = _larger(d[lane], w, x, place)
            x, place = _larger(e[lane], t4, x, place)
            x, place = _larger(f[lane], u4, x, place)
            x, place = _larger(g[lane], v4, x, place)
            best[lane], tokens[lane] = _larger(h[lane], w4, x, place)
    for token in range(eights, count):
        row, last = tile[token], np.int32(token)
        for lane in range(lanes):
            best[lane], tokens[lane] = _larger(row[lane], last, best[lane], tokens[lane])
    for lane in range(lanes):
        if tokens[lane] < 0:  # nothing above −inf is left: take the first −inf
            token = 0
            while token < count - 1 and tile[token, lane] != -np.inf:
                token += 1
            tokens[lane] = token


@register_jitable
def _four_rows(tile, first):
    return tile[first], tile[first + 1], tile[first + 2], tile[first + 3]


@register_jitable
def _four_tokens(first):
    return np.int32(first), np.int32(first + 1), np.int32(first + 2), np.int32(first + 3)


@register_jitable
def _larger(x, token, best, best_token):
    """Return the larger of two entries, and its token."""
    is_larger = x > best
    return x if is_larger else best, token if is_larger else best_token


@jit()
def _sums_of_columns(tile, lanes, peaks, rate, totals, moments):
    """Write Σ e^d and Σ d·e^d of d = (x − peak)·rate, of each column."""
    least = lowest(rate)
    for lane in range(lanes):
        totals[lane], moments[lane] = 0, 0
    for token in range(tile.shape[0]):
        row = tile[token]
        for lane in range(lanes):
            d = (row[lane] - peaks[lane]) * rate
            e = exp(d)
            totals[lane] += e
            moments[lane] += e * (least if d < least else d)  # 0 times minus infinity is not 0


# Long rows


@jit()
def _survey_long(memory, starts, count, rate, counted, top, entries, summary):
    k = top.shape[0]
    values, tokens = np.empty(max(k, 1), memory.dtype), np.empty(max(k, 1), np.int64)
    maxima = np.empty((count + TILE - 1) // TILE * STRIPE, memory.dtype)
    for i in range(starts.size):
        if counted is None or counted[i]:
            row = memory[starts[i] : starts[i] + count]
            _top(row, values, tokens, maxima)
            for j in range(k):
                top[j, i], entries[j, i] = tokens[j], values[j]
            total, moment = _sums(row, values[0], rate)
            summary[PEAK, i], summary[LOG_TOTAL, i] = values[0], math.log(total)
            summary[ENTROPY, i] = math.log(total) - moment / total


@register_jitable
def _top(row, values, tokens, maxima):
    """Write the tokens of the largest values, in order; of equals the first stands first.

    The k largest are in the blocks whose maximum is among the k largest maxima; where maxima are
    equal, in any block of that maximum.
    """
    k, count, held = values.size, row.size, 0
    _maxima_of_blocks(row, maxima)
    for block in range(maxima.size):
        x = maxima[block]
        if held < k or x > values[k - 1]:
            held = _insert(values, tokens, held, x, block)
    least = values[k - 1] if held == k else -np.inf
    held = 0
    for block in range(maxima.size):
        if maxima[block] >= least:
            first = block // STRIPE * TILE + block % STRIPE
            for token in range(first, min(first - block % STRIPE + TILE, count), STRIPE):
                x = row[token]
                if held < k or x > values[k - 1] or (x == values[k - 1] and token < tokens[k - 1]):
                    held = _insert(values, tokens, held, x, token)


@register_jitable
def _insert(values, tokens, held, x, token):
    """Put x among the `held` largest, in order; of equal values the lower token stands first."""
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
    """Write the maximum of every block: block l of tile t holds the tokens t·4096 + i·64 + l."""
    count = row.size
    for tile in range((count + TILE - 1) // TILE):
        blocks = maxima[tile * STRIPE : (tile + 1) * STRIPE]
        blocks[:] = -np.inf
        part = row[tile * TILE : min((tile + 1) * TILE, count)]
        stripes = part.size // STRIPE
        for i in range(stripes):
            stripe = part[i * STRIPE : (i + 1) * STRIPE]
            for j in range(STRIPE):
                blocks[j] = stripe[j] if stripe[j] > blocks[j] else blocks[j]
        rest = part[stripes * STRIPE :]
        for j in range(rest.size):
            blocks[j] = rest[j] if rest[j] > blocks[j] else blocks[j]


@jit(reassociate=True)
def _sums(row, largest, rate):
    """Return Σ e^d and Σ d·e^d of d = (x − largest)·rate."""
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
def floored_sums(memory, starts, count, rate, floor, counted, summary, means):
    """Write the entropy −Σ π log(π + floor) of surveyed rows, and Σ π h for the h of `slopes`."""
    for i in range(starts.size):
        if counted is None or counted[i]:
            row = memory[starts[i] : starts[i] + count]
            moment, share = 0.0, 0.0
            for j in range(count):
                pi = exp((row[j] - summary[PEAK, i]) * rate - summary[LOG_TOTAL, i])
                raised = pi + floor
                moment += pi * log(raised)
                share += pi * pi / raised
            summary[ENTROPY, i], means[i] = -moment, moment + share


# Derivatives, for rows of any length


@jit()
def slopes(
    memory, starts, count, rate, floor, counted, peaks, log_totals, alphas, betas, tokens, less, out
):
    """Write π_j (α + β h_j), less the `less` of each token j; 0 in rows that are not counted.

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
        for j in range(tokens.shape[0]):
            gradient[tokens[j, i]] -= less[j, i]


@jit()
def divergences(memory, starts, count, rate, counted, peaks, log_totals, others, out):
    """Write Σ q (log q − log π) of each row; `others` is the memory, starts, peaks, totals of q."""
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
    """Write α (π_j − q_j) of each row, for π and q as in `divergences`."""
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
