"""The scan on NumPy arrays (and PyTorch's on the CPU), compiled by Numba.

Arrays arrive flat and C-contiguous, standing for [outer, steps, inner]: every time axis of a
contiguous array has that form without a copy. Many columns side by side are walked in tiles, time
inside the tile, so that the inner loop is SIMD and each input is read once; single columns are
walked one after the other. What one tile carries lives on the stack: only there can LLVM prove
that it aliases no argument, and without that proof it does not vectorise.

In every engine a coefficient of exactly 0 cuts: nothing passes it, NaN and infinity included.

Imported on the first call only: importing Numba takes longer than most callers' whole program.
"""

import functools
import hashlib

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload, register_jitable

TILE = 256  # columns; a tile's carry and outputs stay in the first-level cache
NARROW = 4  # below so many columns side by side, SIMD pays less than its row overhead

# Every kernel: FMA allowed, nothing that changes how NaN and infinity behave.
_OPTIONS = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract"},
    "boundscheck": False,
}


@intrinsic
def _stack(typing_context, like):
    """A pointer to TILE uninitialised elements of `like`'s dtype in this stack frame."""
    dtype = like.dtype

    def codegen(context, builder, signature, args):
        element = context.get_data_type(dtype)
        block = cgutils.alloca_once(builder, ir.ArrayType(element, TILE))
        return builder.bitcast(block, element.as_pointer())

    return types.CPointer(dtype)(like), codegen


@register_jitable
def _tile_like(array):
    return carray(_stack(array), (TILE,))


def _select(condition, x, y):
    raise AssertionError("compiled code only")


@overload(_select)
def _select_typed(condition, x, y):
    # A literal 0 takes the type of the other side; Numba alone would widen float32 to float64.
    if isinstance(x, types.Integer) and isinstance(y, types.Float):
        return lambda condition, x, y: type(y)(x) if condition else y
    if isinstance(y, types.Integer) and isinstance(x, types.Float):
        return lambda condition, x, y: x if condition else type(x)(y)
    return lambda condition, x, y: x if condition else y


def _at(field, i):
    raise AssertionError("compiled code only")


@overload(_at)
def _at_typed(field, i):
    if isinstance(field, types.Array):
        return lambda field, i: field[i]
    if isinstance(field, types.NoneType):  # no mask: every row holds
        return lambda field, i: True
    return lambda field, i: field


def _row(fields, i):
    raise AssertionError("compiled code only")


@overload(_row)
def _row_typed(fields, i):
    if len(fields) == 0:
        return lambda fields, i: ()
    return lambda fields, i: (_at(fields[0], i), *_row(fields[1:], i))


def _tiles_like(outs):
    raise AssertionError("compiled code only")


@overload(_tiles_like)
def _tiles_like_typed(outs):
    if len(outs) == 0:
        return lambda outs: ()
    return lambda outs: (_tile_like(outs[0]), *_tiles_like(outs[1:]))


def _put(outs, i, values, keep):
    raise AssertionError("compiled code only")


@overload(_put)
def _put_typed(outs, i, values, keep):
    if len(outs) == 0:
        return lambda outs, i, values, keep: None

    def put(outs, i, values, keep):
        outs[0][i] = _select(keep, values[0], 0)
        _put(outs[1:], i, values[1:], keep)

    return put


def _flush(outs, base, tiles, width):
    raise AssertionError("compiled code only")


@overload(_flush)
def _flush_typed(outs, base, tiles, width):
    if len(outs) == 0:
        return lambda outs, base, tiles, width: None

    def flush(outs, base, tiles, width):
        for k in range(width):
            outs[0][base + k] = tiles[0][k]
        _flush(outs[1:], base, tiles[1:], width)

    return flush


@functools.cache
def fused(recipe):
    """The compiled kernel of one recipe: coefficients, reverse scan and read-out in one pass.

    `recipe.coefficients(where, last, *fields)` gives a_t and b_t, and
    `recipe.readout(where, last, x, x_next, *fields)` the outputs: of scalars here, of whole arrays
    elsewhere. The fields in `ahead` are read one row later (the same row at the end of time, where
    `last` is true and recipes do not look). Rows with `valid` false come out 0 and cut the scan.
    """
    coefficients = register_jitable(recipe.coefficients)
    readout = register_jitable(recipe.readout)
    # Numba's disk cache knows this file's timestamp and the closure's values, not the recipe's
    # source: the digest makes an edited recipe miss the cache.
    digest = _digest(recipe.coefficients, recipe.readout)

    @njit(**_OPTIONS)
    def kernel(outer, steps, inner, valid, fields, ahead, outs):
        _ = digest
        carry = _tile_like(outs[0])
        if inner < NARROW:
            for column in range(outer * inner):
                first = (column // inner) * steps * inner + column % inner
                carry[0] = 0
                for s in range(steps):
                    i = np.uint64(first + (steps - 1 - s) * inner)
                    j = i + np.uint64(inner if s > 0 else 0)
                    last = (s == 0) | (not _at(valid, j))
                    row = _row(fields, i) + _row(ahead, j)
                    a, b = coefficients(_select, last, *row)
                    x_next = carry[0]
                    x = _select(a == 0, b, a * x_next + b)
                    keep = _at(valid, i)
                    carry[0] = _select(keep, x, 0)
                    _put(outs, i, readout(_select, last, x, x_next, *row), keep)
            return
        tiles = _tiles_like(outs)
        for o in range(outer):
            for start in range(0, inner, TILE):
                width = np.uint64(min(TILE, inner - start))
                for k in range(width):
                    carry[k] = 0
                for s in range(steps):
                    base = np.uint64((o * steps + steps - 1 - s) * inner + start)
                    step = np.uint64(inner if s > 0 else 0)
                    for k in range(width):
                        i = base + k
                        j = i + step
                        last = (s == 0) | (not _at(valid, j))
                        row = _row(fields, i) + _row(ahead, j)
                        a, b = coefficients(_select, last, *row)
                        x_next = carry[k]
                        x = _select(a == 0, b, a * x_next + b)
                        keep = _at(valid, i)
                        carry[k] = _select(keep, x, 0)
                        _put(tiles, k, readout(_select, last, x, x_next, *row), keep)
                    _flush(outs, base, tiles, width)

    return kernel


@njit(**_OPTIONS)
def affine(outer, steps, inner, a, b, init, out, reverse, lagged):
    """x_t = a_t·x_{t±1} + b_t, or lagged, its adjoint: y_t = b_t + a_{t∓1}·y_{t∓1}.

    `a` and `init` are flat arrays or numbers. Lagged, `init` is what the first row adds to b.
    """
    carry = _tile_like(out)
    for o in range(outer):
        for start in range(0, inner, TILE):
            width = np.uint64(min(TILE, inner - start))
            for k in range(width):
                carry[k] = _at(init, np.uint64(o * inner + start) + k)
            for s in range(steps):
                t = steps - 1 - s if reverse else s
                base = np.uint64((o * steps + t) * inner + start)
                if lagged:
                    for k in range(width):
                        x = b[base + k] + carry[k]
                        factor = _at(a, base + k)
                        carry[k] = _select(factor == 0, 0, factor * x)
                        out[base + k] = x
                else:
                    for k in range(width):
                        factor = _at(a, base + k)
                        x = _select(factor == 0, b[base + k], factor * carry[k] + b[base + k])
                        carry[k] = x
                        out[base + k] = x


def _digest(*functions) -> str:
    codes = [f.__code__ for f in functions]
    text = repr([(c.co_code, c.co_consts, c.co_names) for c in codes])
    return hashlib.sha256(text.encode()).hexdigest()
