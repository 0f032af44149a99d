"""One scan for all three libraries, bare or fused with the recipe that feeds it.

A recipe says how one row's fields become a_t and b_t of x_t = a_t·x_{t+1} + b_t, and how x_t
becomes outputs. It is written once, of elementwise operations and `where`: over whole arrays it
feeds the differentiable scan, and the Numba kernel is generated from the same functions.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopless.arrays import outputs
from loopless.arrays.library import NUMBER, NUMPY, Library

_BOOL, _SINGLE, _DOUBLE = np.dtype(np.bool_), np.dtype(np.float32), np.dtype(np.float64)


@dataclass(frozen=True, eq=False)
class Recipe:
    """How an estimator uses the scan. Fields come as floats, flags, numbers, then those `ahead`."""

    coefficients: Callable  # (where, last, *fields) -> a, b
    readout: Callable  # (where, last, x, x_next, *fields) -> outputs, a tuple
    outputs: int  # one to three
    ahead: tuple[int, ...] = ()  # which floats and flags are also wanted from the row after
    reads_next: bool = False  # whether `readout` looks at x_next
    lagged: bool = False  # an adjoint: y_t = b_t + a_{t−1}·y_{t−1}, forwards in time
    # From the outputs' gradients (as floats) to the floats', where the recipe is linear in them.
    adjoint: "Recipe | None" = None


def estimate(
    recipe: Recipe,
    library: Library,
    dtype,
    axis: int,
    floats: tuple[Any, ...],
    flags: tuple[Any, ...],
    numbers: tuple[Any, ...],
    valid=None,
) -> tuple[Any, ...]:
    """The recipe's outputs for checked arrays: fused where no derivative is asked for."""
    if library is NUMPY:
        return fused(recipe, dtype, axis, floats, flags, numbers, valid)
    if library.name == "torch" and recipe.adjoint is not None:
        from loopless.arrays import torch_fused

        if torch_fused.applies(floats, numbers):
            return torch_fused.estimate(recipe, dtype, axis, floats, flags, numbers, valid)
    if library.name == "jax":
        from loopless.arrays import jax_fused

        return jax_fused.estimate(recipe, dtype, axis, floats, flags, numbers, valid)
    return composed(recipe, library, dtype, axis, floats, flags, numbers, valid)


def once(library: Library, function: Callable, static: tuple[int, ...]) -> Callable:
    """`function` as one compiled program where the library has such a thing, else as it is."""
    if library.name != "jax":
        return function
    from loopless.arrays import jax_scan

    return jax_scan.compiled(function, static)


def composed(recipe, library, dtype, axis, floats, flags, numbers, valid=None) -> tuple[Any, ...]:
    """The recipe over whole arrays and the bare scan: traceable, differentiable, any device."""
    xp = library.xp
    where = xp.where
    wide = library.wide(dtype)
    floats = tuple(library.cast(x, wide) for x in floats)
    # Typed numbers: torch.where of bare ones would fall back to the default dtype.
    numbers = tuple(typed(library, x, wide, floats[0]) for x in numbers)
    if valid is not None:
        # Padding is emptied before any product: 0·NaN is NaN, forwards and backwards.
        floats = tuple(where(valid, x, 0) for x in floats)
    fields = floats + flags
    ahead = tuple(rows_ahead(xp, fields[k], axis, 1) for k in recipe.ahead)
    last = last_rows(library, floats[0], axis, valid)
    fields = fields + numbers + ahead
    a, b = recipe.coefficients(where, last, *fields)
    if valid is not None:
        a, b = where(valid, a, 0), where(valid, b, 0)
    if recipe.lagged:
        x = affine(library, a, b, None, reverse=False, axis=axis, lagged=True)
    else:
        x = affine(library, a, b, None, reverse=True, axis=axis)
    x_next = rows_ahead(xp, x, axis, 1) if recipe.reads_next else x
    outs = recipe.readout(where, last, x, x_next, *fields)
    if valid is not None:
        outs = tuple(where(valid, out, 0) for out in outs)
    return tuple(library.cast(out, dtype) for out in outs)


def affine(library: Library, a, b, init, *, reverse: bool, axis: int, lagged: bool = False):
    """The bare scan of arrays of one floating dtype, accumulated in float32 or float64.

    a is a number or broadcasts to b's shape; init is None or has b's shape without `axis`. Lagged,
    the adjoint of the walk the other way, is for PyTorch alone: JAX transposes scans itself.
    """
    xp = library.xp
    dtype = b.dtype
    wide = library.wide(dtype)
    shape = tuple(b.shape)
    column_shape = shape[:axis] + shape[axis + 1 :]
    outer, steps, inner = _as_columns(shape, axis)
    init = 0.0 if init is None else init
    if library is NUMPY:
        from loopless.arrays import numba_scan

        out = outputs.empty(shape, wide)
        if out.size:
            a = _flat_or_number(a, shape, wide)
            init = _flat_or_number(init, column_shape, wide)
            numba_scan.affine(  # pyright: ignore[reportCallIssue]
                outer, steps, inner, a, flat(b, wide), init, out.ravel(), reverse, False
            )
        return out.astype(dtype, copy=False)
    if library.name == "torch":
        from loopless.arrays import torch_scan

        a, b, init = (typed(library, x, wide, b) for x in (a, b, init))
        x = torch_scan.affine_scan(
            a.expand(shape).reshape(outer, steps, inner),
            b.reshape(outer, steps, inner),
            init.expand(column_shape).reshape(outer, inner),
            reverse=reverse,
            lagged=lagged,
        )
        return library.cast(x.reshape(shape), dtype)
    from loopless.arrays import jax_scan

    a, b, init = (xp.asarray(x, wide) for x in (a, b, init))
    x = jax_scan.affine_scan(
        xp.moveaxis(xp.broadcast_to(a, shape), axis, 0),
        xp.moveaxis(b, axis, 0),
        xp.broadcast_to(init, column_shape),
        reverse,
    )
    return library.cast(xp.moveaxis(x, 0, axis), dtype)


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
    flat = tuple([out.ravel() for out in outs])
    steps, columns = shape
    kernel(recipe, columns)(1, steps, columns, None, tuple(fields), (), flat)
    return tuple(outs)


def kernel(recipe: Recipe, columns: int) -> Callable:
    """The recipe's compiled kernel for so many columns side by side."""
    narrow, wide, least = _kernels(recipe)
    return wide if columns >= least else narrow


@functools.cache
def _kernels(recipe: Recipe) -> tuple[Callable, Callable, int]:
    from loopless.arrays import numba_scan

    return *numba_scan.fused(recipe), numba_scan.NARROW


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
        fields += [_flat_or_number(x, shape, wide) for x in numbers]
        outer, steps, inner = _as_columns(shape, axis)
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


def _as_columns(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    if axis == 0 and len(shape) == 2:
        return 1, shape[0], shape[1]
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def flat(x: np.ndarray, dtype) -> np.ndarray:
    """`x` as a flat, contiguous, writable array of `dtype`; a copy only where it must be one."""
    # Numba compiles read-only arrays anew; a rare copy is cheaper than a rare compilation.
    if x.dtype != dtype or not x.flags.writeable:
        x = x.astype(dtype)
    return x.ravel()


def _flat_or_number(x, shape: tuple[int, ...], dtype):
    return _number(x, dtype) if isinstance(x, NUMBER) else flat(np.broadcast_to(x, shape), dtype)


@functools.lru_cache(maxsize=64)
def _number(x: float, dtype: np.dtype):
    return dtype.type(x)


def typed(library: Library, x, dtype, like) -> Any:
    if not isinstance(x, NUMBER):
        return library.cast(x, dtype)
    if library.name == "torch":
        return like.new_full((), x, dtype=dtype)
    return dtype.type(x)


def row_numbers(library: Library, like, axis: int, steps: int):
    """0 … steps−1 along `axis`, shaped to spread over `like`."""
    place = {"device": like.device} if library.name == "torch" else {}
    shape = [1] * like.ndim
    shape[axis] = steps
    return library.xp.arange(steps, **place).reshape(shape)


def last_rows(library: Library, like, axis: int, valid):
    """Where no valid row follows."""
    steps = like.shape[axis]
    final = row_numbers(library, like, axis, steps) == steps - 1
    if valid is None:
        return final
    return final | ~rows_ahead(library.xp, valid, axis, 1)


def rows_ahead(xp, x, axis: int, n: int):
    """Row t+n of x at row t; past the end the final row stands in."""
    before = (slice(None),) * axis
    shape = tuple(x.shape)
    missing = (*shape[:axis], min(n, shape[axis]), *shape[axis + 1 :])
    final = xp.broadcast_to(x[(*before, slice(-1, None))], missing)
    return xp.concatenate([x[(*before, slice(n, None))], final], axis)


def row_before(xp, x, axis: int):
    """Row t−1 of x at row t; the first row stands in for the one before it."""
    before = (slice(None),) * axis
    return xp.concatenate([x[(*before, slice(0, 1))], x[(*before, slice(None, -1))]], axis)
