"""Rows of logits on the CPU, compiled by Numba: each is read from memory once a pass.

What there is to know of a row (its largest entries, its log-sum-exp, its entropy) takes several
passes, and a row of 50,000 tokens fits into the cache where the array does not. A row is told by
where it starts in flat memory, so that slices of a larger array are not copied.

Exponentials and logarithms of float32 are polynomials here, within two units of the last place:
the compiler can then do sixteen at once, which it cannot with the library's. Imported on the first
call only, by `arrays.vocabulary`. Tests: `tests/arrays/test_vocabulary.py`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false

import math

import numpy as np
from numba import types
from numba.extending import intrinsic, overload, register_jitable

from loopless.arrays.numba_jit import jit

LANES = 64  # stripes side by side in a tile, so that maxima of blocks are elementwise
TILE = LANES * LANES
BLOCKED = 1024  # tokens from which on blocks are searched; below, one look at each is cheaper
PART = 1024  # addends of a float32 sum, before it goes on in float64

_LOWEST = np.float32(-87.3)  # exp of it is the smallest normal number
_LOG2E, _HALF, _ONE = np.float32(1.44269504), np.float32(0.5), np.float32(1)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_E2, _E3, _E4 = np.float32(0.5), np.float32(1.6666665459e-1), np.float32(4.1665795894e-2)
_E5, _E6 = np.float32(8.3334519073e-3), np.float32(1.3981999507e-3)
_E7 = np.float32(1.9875691500e-4)


@intrinsic
def _as_float(typing, bits):
    """The float32 of these 32 bits."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(types.float32))

    return types.float32(types.int32), generate


def exp(x):
    """e to a number not above 0; exactly 0 where float32 has no normal number left."""
    return math.exp(x)


@overload(exp)
def _exp(x):
    if x != types.float32:
        return lambda x: math.exp(x)

    def polynomial(x):
        clamped = _LOWEST if x < _LOWEST else x
        whole = np.int32(clamped * _LOG2E - _HALF)  # to the nearest, since it cuts towards 0
        n = np.float32(whole)
        r = clamped - n * _LN2_HIGH - n * _LN2_LOW
        p = ((((_E7 * r + _E6) * r + _E5) * r + _E4) * r + _E3) * r + _E2
        p = p * r * r + r + _ONE
        power = _as_float(np.int32((whole + np.int32(127)) << np.int32(23)))
        return np.float32(0) if x < _LOWEST else p * power

    return polynomial


def lowest(x):
    """Where `exp` of x's dtype ends: finite, so that 0 times it is 0."""
    return -750.0


@overload(lowest)
def _lowest(x):
    if x == types.float32:
        return lambda x: _LOWEST
    return lambda x: -750.0


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
        total += pi * math.log(raised)
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
                gradient[j] = pi * (alpha + beta * (math.log(raised) + pi / raised))
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
