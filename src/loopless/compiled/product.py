"""Products of matrices that fit into the cache, compiled by Numba: a tile of the result at a time.

A tile stays in the processor's vector registers while all that is added to it goes by, so that each
number loaded is used in many multiplications. Libraries for large matrices first pack both factors,
which costs more than it gains where they are small. Imports Numba; imported on the first call only,
by `jax_product`. Loop twin: `a @ b` of NumPy in `tests/arrays/test_jax_product.py`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false

from functools import partial

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from loopless.compiled.jit import jit


def _registers() -> tuple[int, int]:
    """How many float32 a vector register holds, and rows of a tile two such registers wide."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 16, 12
    return (8, 6) if features.get("avx2") else (4, 6)


LANES, ROWS = _registers()
COLUMNS = 2 * LANES
_WIDE, _MANY, _PLACE = ir.VectorType(ir.FloatType(), LANES), ir.IntType(64), ir.IntType(32)


@jit()
def product(a, row, column, b, out):
    """out [m, n] = the sum over p of a[i · row + p · column] · b[p, j], for b [k, n].

    m must be ROWS at least, and n COLUMNS. The last tiles begin early enough to fit, and so do some
    of it again.
    """
    for j in range(0, out.shape[1], COLUMNS):
        left = min(j, out.shape[1] - COLUMNS)
        _tiles(a, row, column, b, left, out, left)


@jit()
def product_with_turned(a, row, column, b, out):
    """The same with b[j, p], for b [n, k]; k must be LANES at least."""
    n, depth = b.shape
    turned = np.empty((depth, COLUMNS), np.float32)
    for j in range(0, n, COLUMNS):
        left = min(j, n - COLUMNS)
        for p in range(0, depth, LANES):
            top = min(p, depth - LANES)
            for c in range(0, COLUMNS, LANES):
                _turn(b, (left + c) * depth + top, turned, top * COLUMNS + c)
        _tiles(a, row, column, turned, 0, out, left)


@jit()
def _tiles(a, row, column, b, first, out, left):
    """COLUMNS of `out` from `left` on, by those of b from `first` on."""
    m, n = out.shape
    for i in range(0, m, ROWS):
        top = min(i, m - ROWS)
        _tile(a, top * row, row, column, b, first, out, top * n + left)


@intrinsic
def _tile(typing, a, first, row, column, b, left, out, corner):
    """One tile; a is flat, and tells by `first` where its first row begins."""

    def generate(context, builder, signature, arguments):
        _, first, row, column, _, left, _, corner = arguments
        kept = ir.Constant(_WIDE, ir.Undefined)
        array = partial(_array, context, builder, signature, arguments)
        (from_a, _), (from_b, (depth, width)), (into, (_, n)) = array(0), array(4), array(6)
        sums = [[cgutils.alloca_once(builder, _WIDE) for _ in range(2)] for _ in range(ROWS)]
        for pair in sums:
            for one in pair:
                builder.store(ir.Constant(_WIDE, [0.0] * LANES), one)
        start = builder.gep(from_a, [first])
        rows = [_line(builder, start, row, i) for i in range(ROWS)]
        with cgutils.for_range(builder, depth, intp=_MANY) as loop:
            line = builder.gep(from_b, [builder.add(builder.mul(loop.index, width), left)])
            loaded = [builder.load(_vector(builder, line, i), align=4) for i in range(2)]
            along = builder.mul(loop.index, column)
            for i in range(ROWS):
                x = builder.load(builder.gep(rows[i], [along]))
                x = builder.insert_element(kept, x, ir.Constant(_PLACE, 0))
                x = builder.shuffle_vector(x, kept, _places([0] * LANES))
                for one, y in zip(sums[i], loaded, strict=True):
                    more = builder.fmul(x, y, flags=("contract",))
                    more = builder.fadd(more, builder.load(one), flags=("contract",))
                    builder.store(more, one)
        start = builder.gep(into, [corner])
        for i in range(ROWS):
            line = _line(builder, start, n, i)
            for number, one in enumerate(sums[i]):
                builder.store(builder.load(one), _vector(builder, line, number), align=4)
        return context.get_dummy_value()

    numbers = types.int64, types.int64, types.int64
    return types.void(a, *numbers, b, types.int64, out, types.int64), generate


@intrinsic
def _turn(typing, b, first, out, corner):
    """A square of LANES rows and columns of b, turned: place (i, j) of it to place (j, i)."""

    def generate(context, builder, signature, arguments):
        _, first, _, corner = arguments
        array = partial(_array, context, builder, signature, arguments)
        (from_b, (_, width)), (into, (_, n)) = array(0), array(2)
        start, half = builder.gep(from_b, [first]), LANES // 2
        lines = [_vector(builder, _line(builder, start, width, i)) for i in range(LANES)]
        rows = [builder.load(line, align=4) for line in lines]
        pairs = [number for i in range(LANES) for number in (i, i + LANES)]
        parts = _places(pairs[:LANES]), _places(pairs[LANES:])
        # A row dealt out with the one half the square below it, as often as halves can be halved.
        for _ in range(LANES.bit_length() - 1):
            dealt = zip(rows[:half], rows[half:], strict=True)
            rows = [builder.shuffle_vector(*two, part) for two in dealt for part in parts]
        start = builder.gep(into, [corner])
        for i, row in enumerate(rows):
            builder.store(row, _vector(builder, _line(builder, start, n, i)), align=4)
        return context.get_dummy_value()

    return types.void(b, types.int64, out, types.int64), generate


def _array(context, builder, signature, arguments, number):
    """The memory of an argument, and its shape."""
    found = context.make_array(signature.args[number])(context, builder, arguments[number])
    return found.data, cgutils.unpack_tuple(builder, found.shape)


def _line(builder, start, stride, number):
    """The place that many strides after `start`."""
    return builder.gep(start, [builder.mul(stride, ir.Constant(_MANY, number))])


def _places(numbers):
    """Which numbers of one or two vectors make a new one."""
    return ir.Constant(ir.VectorType(_PLACE, LANES), numbers)


def _vector(builder, start, number=0):
    """The place of a vector, that many vectors after `start`."""
    there = builder.gep(start, [ir.Constant(_MANY, number * LANES)])
    return builder.bitcast(there, _WIDE.as_pointer())
