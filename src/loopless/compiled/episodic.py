"""The episodic sampler: draw a row, a start in it, a gap to a later step, and gather fields.

It works in phases over all items, so that arithmetic runs in SIMD and waits for memory overlap.
Item i of a call takes the generator's numbers c + 3i (its row), c + 3i + 1 (its start) and
c + 3i + 2 (its gap), whichever of them it needs. Fields are bytes of packed rows, so that one
compiled sampler serves every declaration of fields. Called by `replay.host.episodic.draws`; loop
twin: `reference.episodic`; device twin: `replay.device.episodes.draw_gaps`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable

from loopless.compiled.jit import jit
from loopless.compiled.random import below, bits, unit
from loopless.compiled.ring import gather_all
from loopless.compiled.tree import wrap

# How rows are drawn
ALL_STARTS, EVEN_ROWS, ROW_OF_A_START, WEIGHTED_ROWS = 0, 1, 2, 3
# How gaps are drawn
NO_GAP, NEXT_STEP, GEOMETRIC, UNIFORM = 0, 1, 2, 3

_MANTISSA = np.int64(52)  # bits
_BITS_OF_ROOT_HALF = np.sqrt(np.float64(0.5)).view(np.int64)
_LN_2 = np.log(2.0)


@intrinsic
def _prefetch(typing_context, array, i):
    """Fetch the cache line of array[i], which is about to be read."""

    def codegen(context, builder, signature, args):
        parts = context.make_array(signature.args[0])(context, builder, args[0])
        stride = cgutils.unpack_tuple(builder, parts.strides)[0]
        i32, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        signature_ = ir.FunctionType(ir.VoidType(), [pointer, i32, i32, i32])
        prefetch = cgutils.get_or_insert_function(builder.module, signature_, "llvm.prefetch.p0")
        data = builder.bitcast(parts.data, pointer)
        address = builder.gep(data, [builder.mul(args[1], stride)])
        builder.call(prefetch, [address, i32(0), i32(3), i32(1)])  # read, keep, data
        return context.get_dummy_value()

    return types.void(array, types.int64), codegen


@register_jitable
def natural_log(u):
    """Return ln u of a normal number u > 0, to a few units in the last place.

    There are no calls and branches, so that LLVM makes SIMD of it: u = 2^e·m with √½ ≤ m < √2, and
    ln m = 2 artanh s with s = (m − 1) / (m + 1), whose series ends below 2⁻⁵³ because s² < 0.03.
    """
    bits_of_u = np.float64(u).view(np.int64)
    e = (bits_of_u - _BITS_OF_ROOT_HALF) >> _MANTISSA
    m = np.int64(bits_of_u - (e << _MANTISSA)).view(np.float64)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    series = 1 / 21
    series = 1 / 19 + z * series
    series = 1 / 17 + z * series
    series = 1 / 15 + z * series
    series = 1 / 13 + z * series
    series = 1 / 11 + z * series
    series = 1 / 9 + z * series
    series = 1 / 7 + z * series
    series = 1 / 5 + z * series
    series = 1 / 3 + z * series
    return np.float64(e) * _LN_2 + 2.0 * (s + s * z * series)


@register_jitable
def geometric(x, log_discount):
    """Return k ≥ 0 from the random bits `x`: P(k) = (1−γ) γᵏ."""
    return np.int64(natural_log(unit(x)) / log_discount)


@register_jitable
def within(k, n, kind):
    """Return k in [0, n) from a geometric number or random bits: P(k) = (1−γ) γᵏ / (1−γⁿ)."""
    if kind == NEXT_STEP:
        return np.uint64(0)
    if kind == UNIFORM:
        return below(k, n)
    return k % n if k >= n else k  # exactly the truncated geometric: G is memoryless


@register_jitable
def search(sums, targets, out):
    """Find the first i with sums[i] ≥ target, for each target of at most sums[-1].

    With cumulative sums and targets > 0, no i of weight 0 is found: its sum is its predecessor's.
    """
    count, one = np.uint64(sums.size), np.uint64(1)
    for g in range(np.uint64(out.size)):
        out[g] = 0
    while count > one:  # all targets level by level, so that the waits overlap
        half = count >> one
        for g in range(np.uint64(out.size)):
            low = np.uint64(out[g])
            # By the sign bit: LLVM turns a comparison into a branch, mispredicted half the time
            below_target = np.float64(sums[low + half - one] - targets[g]).view(np.int64) >> 63
            out[g] = low + (half & np.uint64(below_target))
        count -= half


@register_jitable
def draw_rows(random, choice, group, before, row_sums, targets, out):
    """Draw a row for each item; items of one `group` share it. `targets` [items] is scratch."""
    key, counter, step = random[0], random[1], np.uint64(3 * group)
    leaders = out[: out.size // group]
    n = np.uint64(leaders.size)
    if choice == EVEN_ROWS:
        for g in range(n):
            leaders[g] = below(bits(key, counter + step * g), np.uint64(before.size - 1))
    elif choice == ROW_OF_A_START:
        numbers, total = targets[: leaders.size], np.uint64(before[-1] - before[0])
        for g in range(n):
            numbers[g] = before[0] + 1 + np.int64(below(bits(key, counter + step * g), total))
        search(before[1:], numbers, leaders)
    else:
        reached = targets[: leaders.size].view(np.float64)
        for g in range(n):
            reached[g] = unit(bits(key, counter + step * g)) * row_sums[-1]
        search(row_sums, reached, leaders)
    if group > 1:
        for i in range(out.size - 1, -1, -1):  # from behind: what is read is not yet overwritten
            out[i] = out[i // group]


@register_jitable
def draw_starts(random, table, aliases, pairs, packed, stride, indices, horizons):
    """Draw a start in each row that `indices` names.

    Write its flat index and its horizon; or its place in `pairs`, and 0 for the horizon.
    """
    key, counter = random[0], random[1]
    begins, ends, before = table[0], table[1], table[2]
    size, zero, one, three = np.uint64(pairs.shape[0]), np.uint64(0), np.uint64(1), np.uint64(3)
    lap = np.uint64(begins[0]) - np.uint64(begins[0]) % size  # all begin in [lap, lap + 2·size)
    turn = np.uint64(before[0]) - np.uint64(before[0]) % size  # and starts are numbered alike
    if aliases.size:
        for i in range(np.uint64(indices.size)):
            row = np.uint64(indices[i])
            count = np.uint64(before[row + one] - before[row])
            r = below(bits(key, counter + three * i + one), count)
            _prefetch(aliases, np.int64(wrap(np.uint64(before[row]) - turn + r, size)))
    for i in range(np.uint64(indices.size)):
        row = np.uint64(indices[i])
        first, count = np.uint64(before[row]) - turn, np.uint64(before[row + one] - before[row])
        x = bits(key, counter + three * i + one)
        r = below(x, count)
        if aliases.size:
            # x·count is r and a fraction, which decides between r and its alias
            fraction = np.float64((x * count) >> np.uint64(11)) * 2.0**-53
            place = wrap(first + r, size)
            r = r if fraction < aliases[place, zero] else np.uint64(aliases[place, one])
        if np.uint64(ends[row] - begins[row]) == count + one:
            # One segment: its starts are all steps but the last, and need no looking up
            indices[i] = wrap(np.uint64(begins[row]) - lap, size) + r
            horizons[i] = count - r
            _prefetch(packed, indices[i] * stride)
        else:
            indices[i] = wrap(first + r, size)
            horizons[i] = 0
            _prefetch(pairs, indices[i])


@register_jitable
def draw_of_all_starts(random, before, pairs, indices, horizons):
    """Draw the place in `pairs` of one of all starts, and write 0 for its horizon."""
    key, counter = random[0], random[1]
    size = np.uint64(pairs.shape[0])
    first, total = np.uint64(before[0]) % size, np.uint64(before[-1] - before[0])
    for i in range(np.uint64(indices.size)):
        place = first + below(bits(key, counter + np.uint64(3) * i + np.uint64(1)), total)
        indices[i] = wrap(place, size)
        horizons[i] = 0
        _prefetch(pairs, indices[i])


@jit()
def sample(
    random, choice, group, table, row_sums, aliases, pairs,
    kind, log_discount, max_horizon, block, count, packed, stride, fields,
):  # fmt: skip
    """Draw `count` starts, and gaps unless `kind` is NO_GAP, and gather the small fields.

    `table` [3, rows + 1] says where each row begins and ends and how many starts come before
    it. Starts stand, in this order, in the ring `pairs` [size, (flat index, horizon)].
    `row_sums` [rows] are cumulative weights, `aliases` [size, 2] what `tree.balance` makes;
    either is empty if not used. `block` begins with the starts, the successors and the gaps.
    The generator moves on by three numbers an item, whatever is drawn.
    """
    n = np.uint64(count)
    indices = block[: 8 * count].view(np.int64)
    later = block[8 * count : 16 * count].view(np.int64)
    gaps = block[16 * count : 24 * count].view(np.int64)
    if choice == ALL_STARTS:
        draw_of_all_starts(random, table[2], pairs, indices, gaps)
    else:
        draw_rows(random, choice, group, table[2], row_sums, later, indices)
        draw_starts(random, table, aliases, pairs, packed, stride, indices, gaps)
    key, counter = random[0], random[1] + np.uint64(2)
    random[1] += np.uint64(3) * n
    if kind == GEOMETRIC:
        for i in range(n):
            later[i] = geometric(bits(key, counter + np.uint64(3) * i), log_discount)
    elif kind == UNIFORM:
        for i in range(n):
            later[i] = np.int64(bits(key, counter + np.uint64(3) * i))
    for i in range(n):
        if gaps[i] == 0:
            place = np.uint64(indices[i])
            indices[i] = pairs[place, np.uint64(0)]
            gaps[i] = pairs[place, np.uint64(1)]
            _prefetch(packed, indices[i] * stride)
    if kind != NO_GAP:
        for i in range(n):
            horizon = np.uint64(min(gaps[i], max_horizon))
            gaps[i] = np.uint64(1) + within(np.uint64(later[i]), horizon, kind)
            later[i] = indices[i] + gaps[i]
            _prefetch(packed, later[i] * stride)
    gather_all(block, count, packed, stride, fields)
