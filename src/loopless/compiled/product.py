"""Products of matrices that fit into the cache, compiled by Numba: a tile of the result at a time.

A tile stays in the processor's vector registers until its sums are complete, so that each
number loaded is used in many multiplications. Libraries for large matrices first pack both factors,
which costs more than it gains where they are small. Called by `arrays.xla_cpu.product_call`; the
tests compare it with NumPy's `a @ b`.
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
    """Return how many float32 a vector register holds, and how many rows a tile has."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 16, 12
    return (8, 6) if features.get("avx2") else (4, 6)


LANES, ROWS = _registers()
COLUMNS = 2 * LANES
_WIDE, _MANY, _PLACE = ir.VectorType(ir.FloatType(), LANES), ir.IntType(64), ir.IntType(32)


@jit()
def product(a, row, column, b, out):
    """Write to out [m, n] the sum over p of a[i · row + p · column] · b[p, j], for b [k, n].

    m must be at least ROWS, and n at least COLUMNS. The last tile of a row or column is moved back
    until it fits, so that some elements are computed twice.
    """
    for j in range(0, out.shape[1], COLUMNS):
        left = min(j, out.shape[1] - COLUMNS)
        _tiles(a, row, column, b, left, out, left)


@jit()
def product_with_transposed(a, row, column, b, out):
    """Do the same as `product` with b[j, p], for b [n, k]; k must be at least LANES."""
    n, depth = b.shape
    columns = np.empty((depth, COLUMNS), np.float32)
    for j in range(0, n, COLUMNS):
        left = min(j, n - COLUMNS)
        for p in range(0, depth, LANES):
            top = min(p, depth - LANES)
            for c in range(0, COLUMNS, LANES):
                _transpose(b, (left + c) * depth + top, columns, top * COLUMNS + c)
        _tiles(a, row, column, columns, 0, out, left)


@jit()
def _tiles(a, row, column, b, first, out, left):
    """Write COLUMNS columns of `out` from `left` on, from the columns of b from `first` on."""
    m, n = out.shape
    for i in range(0, m, ROWS):
        top = min(i, m - ROWS)
        _tile(a, top * row, row, column, b, first, out, top * n + left)


@intrinsic
def _tile(typing, a, first, row, column, b, left, out, corner):
    """Write one tile; a is flat, and its first row begins at `first`."""

    def generate(context, builder, signature, arguments):
        _, first, row, column, _, left, _, corner = arguments
        undefined = ir.Constant(_WIDE, ir.Undefined)
        array = partial(_array, context, builder, signature, arguments)
        (from_a, _), (from_b, (depth, width)), (into, (_, n)) = array(0), array(4), array(6)
        sums = [[cgutils.alloca_once(builder, _WIDE) for _ in range(2)] for _ in range(ROWS)]
        for pair in sums:
            for total in pair:
                builder.store(ir.Constant(_WIDE, [0.0] * LANES), total)
        start = builder.gep(from_a, [first])
        rows = [_line(builder, start, row, i) for i in range(ROWS)]
        with cgutils.for_range(builder, depth, intp=_MANY) as loop:
            line = builder.gep(from_b, [builder.add(builder.mul(loop.index, width), left)])
            loaded = [builder.load(_vector(builder, line, i), align=4) for i in range(2)]
            along = builder.mul(loop.index, column)
            for i in range(ROWS):
                x = builder.load(builder.gep(rows[i], [along]))
                x = builder.insert_element(undefined, x, ir.Constant(_PLACE, 0))
                x = builder.shuffle_vector(x, undefined, _places([0] * LANES))
                for total, y in zip(sums[i], loaded, strict=True):
                    product = builder.fmul(x, y, flags=("contract",))
                    added = builder.fadd(product, builder.load(total), flags=("contract",))
                    builder.store(added, total)
        start = builder.gep(into, [corner])
        for i in range(ROWS):
            line = _line(builder, start, n, i)
            for number, total in enumerate(sums[i]):
                builder.store(builder.load(total), _vector(builder, line, number), align=4)
        return context.get_dummy_value()

    numbers = types.int64, types.int64, types.int64
    return types.void(a, *numbers, b, types.int64, out, types.int64), generate


@intrinsic
def _transpose(typing, b, first, out, corner):
    """Write a square of LANES rows and columns of b transposed."""

    def generate(context, builder, signature, arguments):
        _, first, _, corner = arguments
        array = partial(_array, context, builder, signature, arguments)
        (from_b, (_, width)), (into, (_, n)) = array(0), array(2)
        start, half = builder.gep(from_b, [first]), LANES // 2
        lines = [_vector(builder, _line(builder, start, width, i)) for i in range(LANES)]
        rows = [builder.load(line, align=4) for line in lines]
        pairs = [number for i in range(LANES) for number in (i, i + LANES)]
        parts = _places(pairs[:LANES]), _places(pairs[LANES:])
        # Interleave each row of the upper half with the row half a square below it: log₂ LANES such
        # rounds transpose the square.
        for _ in range(LANES.bit_length() - 1):
            halves = zip(rows[:half], rows[half:], strict=True)
            rows = [builder.shuffle_vector(*pair, part) for pair in halves for part in parts]
        start = builder.gep(into, [corner])
        for i, row in enumerate(rows):
            builder.store(row, _vector(builder, _line(builder, start, n, i)), align=4)
        return context.get_dummy_value()

    return types.void(b, types.int64, out, types.int64), generate


def _array(context, builder, signature, arguments, number):
    """Return the memory of an argument, and its shape."""
    array = context.make_array(signature.args[number])(context, builder, arguments[number])
    return array.data, cgutils.unpack_tuple(builder, array.shape)


def _line(builder, start, stride, number):
    """Return the address that many strides after `start`."""
    return builder.gep(start, [builder.mul(stride, ir.Constant(_MANY, number))])


def _places(numbers):
    """Return the mask that picks these elements of one or two vectors."""
    return ir.Constant(ir.VectorType(_PLACE, LANES), numbers)


def _vector(builder, start, number=0):
    """Return the address of a vector, that many vectors after `start`."""
    there = builder.gep(start, [ir.Constant(_MANY, number * LANES)])
    return builder.bitcast(there, _WIDE.as_pointer())
