"""Products of matrices that fit into the cache, compiled by Numba: a tile of the result at a time.

A tile stays in the processor's vector registers while all that is added to it goes by, so that each
number loaded is used in many multiplications. Libraries for large matrices first pack both factors,
which costs more than it gains where they are small. Imports Numba; imported on the first call only,
by `jax_product`. Loop twin: `a @ b` of NumPy in `tests/arrays/test_jax_product.py`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from loopless.arrays.numba_jit import jit


def _registers() -> tuple[int, int]:
    """How many float32 a vector register holds, and rows of a tile two such registers wide."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f"):
        return 16, 12
    return (8, 6) if features.get("avx2") else (4, 6)


LANES, ROWS = _registers()
COLUMNS = 2 * LANES


@jit()
def product(a, row, column, b, out):
    """out [m, n] = the sum over p of a[i · row + p · column] · b[p, j], for b [k, n].

    m must be ROWS at least, and n COLUMNS. The last tiles begin early enough to fit, and so do some
    of it again.
    """
    m, n = out.shape
    for j in range(0, n, COLUMNS):
        left = min(j, n - COLUMNS)
        for i in range(0, m, ROWS):
            top = min(i, m - ROWS)
            _tile(a, top * row, row, column, b, left, out, top * n + left)


@intrinsic
def _tile(typing, a, first, row, column, b, left, out, corner):
    """One tile; a is flat, and tells by `first` where its first row begins."""

    def generate(context, builder, signature, arguments):
        _, first, row, column, _, left, _, corner = arguments
        wide, many = ir.VectorType(ir.FloatType(), LANES), ir.IntType(64)
        kept, place = ir.Constant(wide, ir.Undefined), ir.IntType(32)
        same = ir.Constant(ir.VectorType(place, LANES), [0] * LANES)

        def array(number):
            return context.make_array(signature.args[number])(context, builder, arguments[number])

        def vector(start, number):
            there = builder.gep(start, [ir.Constant(many, number * LANES)])
            return builder.bitcast(there, wide.as_pointer())

        def scaled(start, stride, number):
            return builder.gep(start, [builder.mul(stride, ir.Constant(many, number))])

        from_a, from_b, into = array(0), array(4), array(6)
        depth, n = cgutils.unpack_tuple(builder, from_b.shape)
        sums = [[cgutils.alloca_once(builder, wide) for _ in range(2)] for _ in range(ROWS)]
        for pair in sums:
            for one in pair:
                builder.store(ir.Constant(wide, [0.0] * LANES), one)
        start = builder.gep(from_a.data, [first])
        rows = [scaled(start, row, i) for i in range(ROWS)]
        with cgutils.for_range(builder, depth, intp=many) as loop:
            line = builder.gep(from_b.data, [builder.add(builder.mul(loop.index, n), left)])
            loaded = [builder.load(vector(line, number), align=4) for number in range(2)]
            along = builder.mul(loop.index, column)
            for i in range(ROWS):
                x = builder.load(builder.gep(rows[i], [along]))
                x = builder.insert_element(kept, x, ir.Constant(place, 0))
                x = builder.shuffle_vector(x, kept, same)
                for one, y in zip(sums[i], loaded, strict=True):
                    more = builder.fmul(x, y, flags=("contract",))
                    more = builder.fadd(more, builder.load(one), flags=("contract",))
                    builder.store(more, one)
        start = builder.gep(into.data, [corner])
        for i in range(ROWS):
            for number, one in enumerate(sums[i]):
                builder.store(builder.load(one), vector(scaled(start, n, i), number), align=4)
        return context.get_dummy_value()

    numbers = types.int64, types.int64, types.int64
    return types.void(a, *numbers, b, types.int64, out, types.int64), generate
