"""Scans and recipes on NumPy arrays: inputs made flat, memory for outputs, one compiled call.

The kernels are in `compiled.fused` and `compiled.scan`, imported on the first call because Numba
takes long to import.
"""

import functools
import math
from collections.abc import Callable

import numpy as np

from loopless.arrays.checks import is_array
from loopless.arrays.dispatch import empty, flat, flat_or_number
from loopless.arrays.library import NUMBER, NUMPY
from loopless.arrays.outputs import apart
from loopless.arrays.scan.recipe import Recipe

_BOOL, _SINGLE, _DOUBLE = np.dtype(np.bool_), np.dtype(np.float32), np.dtype(np.float64)


def estimate_plain(
    recipe: Recipe, floats, flags, numbers, valid, time_axis, out
) -> tuple[np.ndarray, ...] | None:
    """Return the recipe's outputs for plain arrays of two axes that need no conversion; else None.

    A fast path, because small rollouts spend their time in checks: here all that matters for such
    arrays is tested at once. Whatever is unusual, or wrong, is left to the checks.
    """
    first = floats[0]
    dtype, shape = first.dtype, first.shape
    if len(shape) != 2 or (dtype is not _SINGLE and dtype is not _DOUBLE) or not first.size:
        return None
    for x in floats:
        if x.__class__ is not np.ndarray or x.dtype is not dtype or x.shape != shape:
            return None
        if not x.flags.carray:
            return None
    for x in flags if valid is None else (*flags, valid):
        if x.__class__ is not np.ndarray or x.dtype is not _BOOL or x.shape != shape:
            return None
        if not x.flags.carray:
            return None
    for x in numbers:
        if x.__class__ is not float or not 0.0 <= x <= 1.0:
            return None
    sizes = plain_sizes(shape, time_axis)
    if sizes is None:
        return None
    if out is None:
        outs = tuple([empty(shape, dtype) for _ in range(recipe.outputs)])
    elif _is_plain_out(out, recipe.outputs, dtype, shape) and apart(
        out, (*floats, *flags) if valid is None else (*floats, *flags, valid)
    ):
        outs = out
    else:
        return None
    kernel(recipe, sizes[2])(*sizes, valid, floats, flags, numbers, outs)
    return outs


def _is_plain_out(out, count: int, dtype, shape) -> bool:
    if out.__class__ is not tuple or len(out) != count:
        return False
    return all(is_array(x, dtype, shape) and x.flags.carray for x in out)


def plain_sizes(shape: tuple[int, int], time_axis: int) -> tuple[int, int, int] | None:
    """Return how many entries lie before, on and after a time axis of two; None for a bad axis."""
    if time_axis.__class__ is not int:
        return None
    if time_axis == 0 or time_axis == -2:
        return 1, shape[0], shape[1]
    if time_axis == 1 or time_axis == -1:
        return shape[0], shape[1], 1
    return None


def estimate(recipe, dtype, axis, floats, flags, numbers, valid) -> tuple[np.ndarray, ...]:
    """Return the recipe's outputs for checked NumPy arrays, by its compiled kernel."""
    first = floats[0]
    shape = first.shape
    if first.ndim > 1 and first.flags.f_contiguous and not first.flags.c_contiguous:
        # Data stored the other way round is walked the way it is stored: no copy.
        floats, flags, numbers = (
            [x.T if isinstance(x, np.ndarray) else x for x in group]
            for group in (floats, flags, numbers)
        )
        valid = None if valid is None else valid.T
        outs = estimate(recipe, dtype, len(shape) - 1 - axis, floats, flags, numbers, valid)
        return tuple([out.T for out in outs])
    wide = NUMPY.wide(dtype)
    outs = tuple([empty(shape, wide) for _ in range(recipe.outputs)])
    if first.size:
        sizes = as_columns(shape, axis)
        # As two axes, like the arrays of `estimate_plain`: the kernel is compiled for each number.
        table = sizes[0] * sizes[1], sizes[2]
        kernel(recipe, sizes[2])(
            *sizes,
            None if valid is None else flat(valid, _BOOL).reshape(table),
            tuple([flat(x, wide).reshape(table) for x in floats]),
            tuple([flat(x, _BOOL).reshape(table) for x in flags]),
            tuple([_flat_or_float(x, shape, wide) for x in numbers]),
            tuple([out.reshape(table) for out in outs]),
        )
    if wide == dtype:
        return outs
    return tuple([out.astype(dtype) for out in outs])


def _flat_or_float(x, shape: tuple[int, ...], dtype):
    return float(x) if isinstance(x, NUMBER) else flat(np.broadcast_to(x, shape), dtype)


def affine_scan(a, b: np.ndarray, init, *, reverse: bool, axis: int) -> np.ndarray:
    """Return x_t = a_t·x_{t±1} + b_t along `axis`; a and init are numbers or spread over b."""
    from loopless.compiled import scan as compiled_scan

    shape, dtype = b.shape, b.dtype
    wide = NUMPY.wide(dtype)
    out = empty(shape, wide)
    if out.size:
        a = flat_or_number(a, shape, wide)
        init = flat_or_number(init, shape[:axis] + shape[axis + 1 :], wide)
        compiled_scan.affine(  # pyright: ignore[reportCallIssue]
            *as_columns(shape, axis), a, flat(b, wide), init, out.ravel(), reverse, False
        )
    return out.astype(dtype, copy=False)


def compose_windows(maps: Callable, row: Callable, dtype, axis, floats, flags, numbers, n, valid):
    """Return windows of n composed steps; `compiled.scan.composed` says what they are."""
    from loopless.compiled import scan as compiled_scan

    wide = NUMPY.wide(dtype)
    shape = floats[0].shape
    out = empty(shape, wide)
    if out.size:
        fields = [flat(x, wide) for x in floats] + [flat(x, _BOOL) for x in flags]
        fields += [flat_or_number(x, shape, wide) for x in numbers]
        outer, steps, inner = as_columns(shape, axis)
        n = min(n, steps)
        tails = np.empty((2, n * compiled_scan.WINDOW_TILE), wide)
        compiled_scan.composed(maps, row)(
            outer,
            steps,
            inner,
            n,
            None if valid is None else flat(valid, _BOOL),
            tuple(fields),
            out.ravel(),
            tails[0],
            tails[1],
        )
    return out.astype(dtype, copy=False)


def kernel(recipe: Recipe, inner: int) -> Callable:
    """Return the recipe's compiled kernel for this number of columns side by side."""
    narrow, wide, chained, least = _kernels(recipe)
    if inner >= least:
        return wide
    return chained if inner == 1 else narrow


@functools.cache
def _kernels(recipe: Recipe) -> tuple[Callable, Callable, Callable, int]:
    from loopless.compiled import fused

    narrow, wide, chained = fused.fused(recipe)
    return narrow, wide, narrow if recipe.reads_next else chained, fused.NARROW


def as_columns(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """Return how many entries lie before, on and after the time axis."""
    if axis == 0 and len(shape) == 2:
        return 1, shape[0], shape[1]
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
