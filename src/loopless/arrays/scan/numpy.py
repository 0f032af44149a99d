"""Whole recipes on NumPy arrays: outputs allocated, inputs flattened, one kernel called."""

import functools
import math
from collections.abc import Callable

import numpy as np

from loopless.arrays import pool as outputs
from loopless.arrays.library import NUMBER, NUMPY
from loopless.arrays.scan.recipe import Recipe

_BOOL, _SINGLE, _DOUBLE = np.dtype(np.bool_), np.dtype(np.float32), np.dtype(np.float64)


def plain(recipe: Recipe, floats, flags, numbers) -> tuple[np.ndarray, ...] | None:
    """The recipe's outputs for plain [T, B] NumPy arrays, which need no conversion; else None.

    A lane of its own because small rollouts spend their time in checks: it asks all there is to
    ask of such arrays at once. Whatever is unusual, or wrong, is left to the checks.
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
        fields.append(_number(x, dtype))
    outs = [outputs.empty(shape, dtype) for _ in range(recipe.outputs)]
    steps, columns = shape
    flat_outs = tuple([out.ravel() for out in outs])
    kernel(recipe, columns)(1, steps, columns, None, tuple(fields), (), flat_outs)
    return tuple(outs)


def fused(recipe, dtype, axis, floats, flags, numbers, valid) -> tuple[np.ndarray, ...]:
    """The recipe's outputs for NumPy arrays, by its compiled kernel."""
    first = floats[0]
    shape = first.shape
    if first.ndim > 1 and first.flags.f_contiguous and not first.flags.c_contiguous:
        # Data stored the other way round is walked the way it is stored: no copy.
        floats, flags, numbers = (
            [x.T if isinstance(x, np.ndarray) else x for x in group]
            for group in (floats, flags, numbers)
        )
        valid = None if valid is None else valid.T
        outs = fused(recipe, dtype, len(shape) - 1 - axis, floats, flags, numbers, valid)
        return tuple([out.T for out in outs])
    wide = NUMPY.wide(dtype)
    outs = [outputs.empty(shape, wide) for _ in range(recipe.outputs)]
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


def windowed(maps: Callable, dtype, axis, floats, flags, numbers, n: int, valid) -> np.ndarray:
    """Windows of n composed steps; `numba_windows.windowed` says what they are."""
    from loopless.compiled import windows as numba_windows

    wide = NUMPY.wide(dtype)
    shape = floats[0].shape
    out = outputs.empty(shape, wide)
    if out.size:
        fields = [flat(x, wide) for x in floats] + [flat(x, _BOOL) for x in flags]
        fields += [flat_or_number(x, shape, wide) for x in numbers]
        outer, steps, inner = as_columns(shape, axis)
        n = min(n, steps)
        tails = np.empty((2, n * numba_windows.WIDTH), wide)
        numba_windows.windowed(maps)(
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
    """The recipe's compiled kernel for so many columns side by side."""
    narrow, wide, least = _kernels(recipe)
    return wide if columns >= least else narrow


@functools.cache
def _kernels(recipe: Recipe) -> tuple[Callable, Callable, int]:
    from loopless.compiled import scan as numba_scan

    return *numba_scan.fused(recipe), numba_scan.NARROW


def as_columns(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    if axis == 0 and len(shape) == 2:
        return 1, shape[0], shape[1]
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def flat(x: np.ndarray, dtype) -> np.ndarray:
    """`x` as a flat, contiguous, writable array of `dtype`; a copy only where it must be one."""
    # Numba compiles read-only arrays anew; a rare copy is cheaper than a rare compilation.
    if x.dtype != dtype or not x.flags.writeable:
        x = x.astype(dtype)
    return x.ravel()


def flat_or_number(x, shape: tuple[int, ...], dtype):
    return _number(x, dtype) if isinstance(x, NUMBER) else flat(np.broadcast_to(x, shape), dtype)


@functools.lru_cache(maxsize=64)
def _number(x: float, dtype: np.dtype):
    return dtype.type(x)
