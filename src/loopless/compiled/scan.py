"""The scan on NumPy arrays (and PyTorch tensors on the CPU), compiled by Numba.

Arrays arrive flat and C-contiguous, standing for [outer, steps, inner]: every time axis of a
contiguous array has that form without a copy. Many columns side by side are walked in tiles, time
inside the tile, so that the inner loop is SIMD and each input is read once; single columns are
walked one after the other. What one tile carries lives on the stack: only there can LLVM prove
that it aliases no argument, and without that proof it does not vectorize.

In every engine a coefficient of exactly 0 cuts: nothing passes it, NaN and infinity included.

Imported on the first call only, by `arrays.scan.numpy`: importing Numba takes longer than most
callers' whole program. Loop twin: `reference.scan`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportPrivateImportUsage=false

import functools

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable

from loopless.compiled.jit import jit, overload

TILE = 1024  # columns; what a tile carries stays in the first-level cache
WINDOW_TILE = 256  # columns of windows side by side: scratch is 2·n·WINDOW_TILE numbers


@intrinsic
def stack_like(typing_context, like):
    """Return a pointer to TILE uninitialized elements of `like`'s dtype in this stack frame.

    `like` is an array or a pointer.
    """
    dtype = like.dtype

    def codegen(context, builder, signature, args):
        element = context.get_data_type(dtype)
        block = cgutils.alloca_once(builder, ir.ArrayType(element, TILE))
        return builder.bitcast(block, element.as_pointer())

    return types.CPointer(dtype)(like), codegen


@register_jitable
def tile_like(array):
    """Return an uninitialized array of TILE elements on the stack, of the same dtype."""
    return carray(stack_like(array), (TILE,))


def select(condition, x, y):
    """Return x if the condition holds, else y: `where` of single numbers."""
    raise AssertionError("compiled code only")


@overload(select)
def _select_typed(condition, x, y):
    # A literal 0 takes the type of the other side; Numba alone would widen float32 to float64.
    if isinstance(x, types.Integer) and isinstance(y, types.Float):
        return lambda condition, x, y: type(y)(x) if condition else y
    if isinstance(y, types.Integer) and isinstance(x, types.Float):
        return lambda condition, x, y: x if condition else type(x)(y)
    return lambda condition, x, y: x if condition else y


def at(field, i):
    """Return entry i of a flat array or pointer; a number stands for all, None for all true."""
    raise AssertionError("compiled code only")


@overload(at)
def _at_typed(field, i):
    if isinstance(field, types.Array | types.CPointer):
        return lambda field, i: field[i]
    if isinstance(field, types.NoneType):
        return lambda field, i: True
    return lambda field, i: field


def row_of(fields, i):
    """Return entry i of each field, as a tuple."""
    raise AssertionError("compiled code only")


@overload(row_of)
def _row_typed(fields, i):
    if len(fields) == 0:
        return lambda fields, i: ()
    return lambda fields, i: (at(fields[0], i), *row_of(fields[1:], i))


@jit()
def affine(outer, steps, inner, a, b, init, out, reverse, lagged):
    """Write x_t = a_t·x_{t±1} + b_t, or lagged, its adjoint: y_t = b_t + a_{t∓1}·y_{t∓1}.

    `a` and `init` are flat arrays or numbers. Lagged, `init` is what the first row adds to b.
    """
    carry = tile_like(out)
    for o in range(outer):
        for start in range(0, inner, TILE):
            width = np.uint64(min(TILE, inner - start))
            for k in range(width):
                carry[k] = at(init, np.uint64(o * inner + start) + k)
            for s in range(steps):
                t = steps - 1 - s if reverse else s
                base = np.uint64((o * steps + t) * inner + start)
                if lagged:
                    for k in range(width):
                        x = b[base + k] + carry[k]
                        factor = at(a, base + k)
                        carry[k] = select(factor == 0, 0, factor * x)
                        out[base + k] = x
                else:
                    for k in range(width):
                        factor = at(a, base + k)
                        x = select(factor == 0, b[base + k], factor * carry[k] + b[base + k])
                        carry[k] = x
                        out[base + k] = x


# Sliding windows of affine maps: O(T) for any window. The same blocks as in `kernels.windows`,
# walked once: while the maps of a block are composed from its left, each row completes the window
# that began n−1 rows before, in the tail of the block to the left; then the tails of this block are
# composed from its right, into scratch memory.


@functools.cache
def composed(maps, Row):
    """Return the kernel of `maps(where, row, last)` → a, b, c: a step is x ↦ a·x + b, its end is c.

    out[t] = f_t(f_{t+1}(… c_{t+n−1})), or up to the last row if the window reaches past it.
    """
    compiled_maps = register_jitable(maps)

    @register_jitable
    def step(valid, fields, steps, inner, t, i):
        """Return a, b and c of row t at the flat index i; all 0 where it is not valid."""
        j = i + np.uint64(inner if t + 1 < steps else 0)
        last = (t + 1 == steps) | (not at(valid, j))
        a, b, c = compiled_maps(select, Row(*row_of(fields, i)), last)
        keep = at(valid, i)
        return select(keep, a, 0), select(keep, b, 0), select(keep, c, 0)

    @jit()
    def kernel(outer, steps, inner, n, valid, fields, out, tail_a, tail_b):
        head_a, head_b, whole = tile_like(out), tile_like(out), tile_like(out)
        for o in range(outer):
            for start in range(0, inner, WINDOW_TILE):
                width = np.uint64(min(WINDOW_TILE, inner - start))
                origin = o * steps * inner + start
                for first in range(0, steps, n):
                    end = min(first + n, steps)
                    for k in range(width):
                        head_a[k], head_b[k] = 1, 0
                    for t in range(first, end):
                        base = np.uint64(origin + t * inner)
                        for k in range(width):
                            a, b, c = step(valid, fields, steps, inner, t, base + k)
                            product, total = head_a[k], head_b[k]
                            whole[k] = total + select(product == 0, 0, product * c)
                            head_b[k] = total + select(product == 0, 0, product * b)
                            head_a[k] = product * a
                        began = t - n + 1
                        # At the end of time all windows still open are complete.
                        closing = first if t + 1 == steps else began + 1
                        for s in range(max(began, first - n + 1, 0), min(closing, first)):
                            into = np.uint64(origin + s * inner)
                            tail = np.uint64((s - (first - n)) * WINDOW_TILE)
                            for k in range(width):
                                product = tail_a[tail + k]
                                passed = select(product == 0, 0, product * whole[k])
                                out[into + k] = tail_b[tail + k] + passed
                        if began == first:
                            into = np.uint64(origin + first * inner)
                            for k in range(width):
                                out[into + k] = whole[k]
                    for s in range(end - first):
                        t = end - 1 - s
                        base = np.uint64(origin + t * inner)
                        tail = np.uint64((t - first) * WINDOW_TILE)
                        later = np.uint64((t - first + (1 if s > 0 else 0)) * WINDOW_TILE)
                        for k in range(width):
                            a, b, _c = step(valid, fields, steps, inner, t, base + k)
                            onward = select(s == 0, 0, tail_b[later + k])
                            tail_b[tail + k] = b + select(a == 0, 0, a * onward)
                            beyond = select(s == 0, 1, tail_a[later + k])
                            tail_a[tail + k] = a * beyond
                    if end == steps:
                        # Windows that reach past the last row, which is an end: their tails alone.
                        for t in range(first if end - first < n else first + 1, end):
                            base = np.uint64(origin + t * inner)
                            tail = np.uint64((t - first) * WINDOW_TILE)
                            for k in range(width):
                                out[base + k] = tail_b[tail + k]
                for t in range(steps):
                    base = np.uint64(origin + t * inner)
                    for k in range(width):
                        out[base + k] = select(at(valid, base + k), out[base + k], 0)

    return kernel
