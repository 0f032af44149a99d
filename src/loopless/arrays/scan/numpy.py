"""Scans and recipes on NumPy arrays: inputs made flat, memory for outputs, one compiled call.

The kernels are in `compiled.scan`, imported on the first call because Numba
takes long to import.
"""

import functools
import math
from collections.abc import Callable

import numpy as np

from loopless.arrays.dispatch import empty, flat, flat_or_number, number_of
from loopless.arrays.library import NUMPY
from loopless.arrays.scan.recipe import Recipe

_BOOL, _SINGLE, _DOUBLE = np.dtype(np.bool_), np.dtype(np.float32), np.dtype(np.float64)


def estimate_plain(recipe: Recipe, floats, flags, numbers) -> tuple[np.ndarray, ...] | None:
    """Return the recipe's outputs for plain [T, B] arrays, which need no conversion; else None.

    A fast path, because small rollouts spend their time in checks: here all that matters for such
    arrays is tested at once. Whatever is unusual, or wrong, is left to the checks.
    """
    first = floats[0]
    if first.__class__ is not np.ndarray:
        return None
    dtype, shape = first.dtype, first.shape
    if len(shape) != 2 or (dtype is not _SINGLE and dtype is not _DOUBLE) or not first.size:
        return None
    fields = []
    for x in floats:
        if x.__class__ is not np.ndarray or x.dtype is not dtype or x.shape != shape:
            return None
        if not x.flags.carray:
            return None
        fields.append(x.ravel())
    for x in flags:
        if x.__class__ is not np.ndarray or x.dtype is not _BOOL or x.shape != shape:
            return None
        if not x.flags.carray:
            return None
        fields.append(x.ravel())
    for x in numbers:
        if x.__class__ is not float or not 0.0 <= x <= 1.0:
            return None
        fields.append(number_of(x, dtype))
    outs = [empty(shape, dtype) for _ in range(recipe.outputs)]
    steps, columns = shape
    flat_outs = tuple([out.ravel() for out in outs])
    kernel(recipe, columns)(1, steps, columns, None, tuple(fields), (), flat_outs)
    return tuple(outs)


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
    outs = [empty(shape, wide) for _ in range(recipe.outputs)]
    if first.size:
        fields = [flat(x, wide) for x in floats] + [flat(x, _BOOL) for x in flags]
        ahead = tuple([fields[k] for k in recipe.ahead])
        fields += [flat_or_number(x, shape, wide) for x in numbers]
        outer, steps, inner = as_columns(shape, axis)
        kernel(recipe, inner)(
            outer,
            steps,
            inner,
            None if valid is None else flat(valid, _BOOL),
            tuple(fields),
            ahead,
            tuple([out.ravel() for out in outs]),
        )
    if wide == dtype:
        return tuple(outs)
    return tuple([out.astype(dtype) for out in outs])


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


def kernel(recipe: Recipe, columns: int) -> Callable:
    """Return the recipe's compiled kernel for this number of columns side by side."""
    narrow, wide, least = _kernels(recipe)
    return wide if columns >= least else narrow


@functools.cache
def _kernels(recipe: Recipe) -> tuple[Callable, Callable, int]:
    from loopless.compiled import scan as compiled_scan

    return *compiled_scan.fused(recipe), compiled_scan.NARROW


def as_columns(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """Return how many entries lie before, on and after the time axis."""
    if axis == 0 and len(shape) == 2:
        return 1, shape[0], shape[1]
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
