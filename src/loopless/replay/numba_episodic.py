"""The episodic sampler, compiled: draw a row, a start in it, a gap, and gather.

Everything random is drawn first, then each array is gathered, so that the waits for memory
overlap. Item i of a call takes the generator's numbers c + 3i (its row), c + 3i + 1 (its start)
and c + 3i + 2 (its gap), whichever of them it needs. Fields arrive as rows of bytes: one compiled
sampler serves every dtype.

Imports `numba_random` only; imported on the first draw, because importing Numba is slow. Loop
twin: `reference.episodic.search_sample`. Tests: `tests/replay/test_episodic_laws.py`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from loopless.replay.numba_random import below, bits, unit

# How a row is chosen
ALL_STARTS, EVEN_ROWS, ROW_OF_A_START, WEIGHTED_ROWS = 0, 1, 2, 3
# How a gap is
NEXT_STEP, GEOMETRIC, UNIFORM = 0, 1, 2

_OPTIONS = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract"},
    "boundscheck": False,
}


@intrinsic
def _prefetch(typing_context, array, row):
    """Ask for the cache line where row `row` of a contiguous array [rows, width] begins."""

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


@njit(**_OPTIONS)
def steps_beyond(x, n, kind, log_discount):
    """k in [0, n) from the random bits `x`: P(k) = (1−γ) γᵏ / (1−γⁿ)."""
    if kind == NEXT_STEP:
        return np.uint64(0)
    if kind == UNIFORM:
        return below(x, n)
    # G mod n of an untruncated geometric G is exactly the truncated one: G is memoryless
    k = np.uint64(np.log(unit(x)) / log_discount)
    return k % n if k >= n else k


@njit(**_OPTIONS)
def _first_reaching(cumulative, x):
    """The first i with cumulative[i + 1] ≥ x."""
    low, high = np.uint64(1), np.uint64(cumulative.size - 1)
    while low < high:
        middle = (low + high) >> np.uint64(1)
        if cumulative[middle] >= x:
            high = middle
        else:
            low = middle + np.uint64(1)
    return low - np.uint64(1)


@njit(**_OPTIONS)
def draw(generator, choice, group, before, weights, pairs, indices, gaps):
    """Starts into `indices`, their horizons into `gaps`; items of one `group` share their row.

    `before` [rows + 1] counts the starts of earlier rows; starts number `before[0]` to
    `before[-1]` lie in the ring `pairs` [size, (flat index, horizon)]. `weights` [rows + 1] are
    cumulative, and read where rows are weighted.
    """
    key, counter = generator[0], generator[1]
    size = np.uint64(pairs.shape[0])
    oldest = np.uint64(before[0])
    turn = oldest - oldest % size  # numbers of starts, less this, lie in [0, 2·size)
    rows, total = np.uint64(before.size - 1), np.uint64(before[-1]) - oldest
    one, three = np.uint64(1), np.uint64(3)
    for g in range(indices.size // group):
        item = np.uint64(g * group)
        x = bits(key, counter + three * item)
        first, count = oldest, total
        if choice != ALL_STARTS:
            if choice == EVEN_ROWS:
                row = below(x, rows)
            elif choice == ROW_OF_A_START:
                row = _first_reaching(before, np.int64(oldest + below(x, total) + one))
            else:
                row = _first_reaching(weights, unit(x) * weights[-1])
            first = np.uint64(before[row])
            count = np.uint64(before[row + one]) - first
        first -= turn
        for i in range(item, item + np.uint64(group)):
            position = first + below(bits(key, counter + three * i + one), count)
            position -= size if position >= size else np.uint64(0)
            indices[i] = position
            _prefetch(pairs, np.int64(position))
    for i in range(np.uint64(indices.size)):
        position = np.uint64(indices[i])
        indices[i] = pairs[position, np.uint64(0)]
        gaps[i] = pairs[position, one]


@njit(**_OPTIONS)
def _gather(source, indices, gaps, ahead, out):
    """Rows `indices`, or `indices + gaps` if `ahead`, of `source` into `out`, both words."""
    words = np.uint64(source.shape[1])
    if words == 0:
        return
    zero, one = np.uint64(0), np.uint64(1)
    if words <= np.uint64(2):  # without an inner loop
        for i in range(np.uint64(indices.size)):
            row = np.uint64(indices[i] + (gaps[i] if ahead else 0))
            out[i, zero] = source[row, zero]
            if words > one:
                out[i, one] = source[row, one]
        return
    for i in range(np.uint64(indices.size)):
        row = np.uint64(indices[i] + (gaps[i] if ahead else 0))
        for w in range(words):
            out[i, w] = source[row, w]


@njit(**_OPTIONS)
def sample(
    generator, choice, group, before, weights, pairs,
    kind, log_discount, max_horizon, indices, gaps, at_start, sources, outs,
):  # fmt: skip
    """Draw starts and gaps, then gather: `sources[:at_start]` there, the others `gaps` later.

    `sources` and `outs` are rows of bytes. The generator moves on by three numbers an item.
    """
    draw(generator, choice, group, before, weights, pairs, indices, gaps)
    key, counter = generator[0], generator[1]
    first, later = sources[0], sources[at_start if at_start < len(sources) else 0]
    for i in range(np.uint64(indices.size)):
        _prefetch(first, indices[i])
        n = np.uint64(min(gaps[i], max_horizon))
        x = bits(key, counter + np.uint64(3) * i + np.uint64(2))
        gaps[i] = np.uint64(1) + steps_beyond(x, n, kind, log_discount)
        _prefetch(later, indices[i] + gaps[i])
    generator[1] += np.uint64(3) * np.uint64(indices.size)
    for f in range(len(sources)):
        source, out, ahead = sources[f], outs[f], f >= at_start
        width = source.shape[1]
        if width % 8 == 0:
            _gather(source.view(np.uint64), indices, gaps, ahead, out.view(np.uint64))
        elif width % 4 == 0:
            _gather(source.view(np.uint32), indices, gaps, ahead, out.view(np.uint32))
        else:
            _gather(source, indices, gaps, ahead, out)
