"""One scan for all three libraries, bare or with the recipe that feeds it.

`estimate` picks the road: a fused kernel where there is one, else the recipe over whole arrays and
the bare scan, which can be traced and differentiated and runs on any device.
"""

from collections.abc import Callable
from typing import Any

from loopless.arrays import pool as outputs
from loopless.arrays.library import NUMBER, NUMPY, Library
from loopless.arrays.scan import numpy as numpy_fused
from loopless.arrays.scan.numpy import as_columns, flat, flat_or_number
from loopless.arrays.scan.recipe import Recipe


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
        return numpy_fused.fused(recipe, dtype, axis, floats, flags, numbers, valid)
    if library.name == "torch" and recipe.adjoint is not None:
        from loopless.arrays.scan import torch_fused

        if torch_fused.applies(floats, numbers):
            return torch_fused.estimate(recipe, dtype, axis, floats, flags, numbers, valid)
    if library.name == "jax":
        from loopless.arrays.scan import jax_fused

        return jax_fused.estimate(recipe, dtype, axis, floats, flags, numbers, valid)
    return composed(recipe, library, dtype, axis, floats, flags, numbers, valid)


def once(library: Library, function: Callable, static: tuple[int, ...]) -> Callable:
    """`function` as one compiled program where the library has such a thing, else as it is."""
    if library.name != "jax":
        return function
    from loopless.arrays.scan import jax as jax_scan

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
    outer, steps, inner = as_columns(shape, axis)
    init = 0.0 if init is None else init
    if library is NUMPY:
        from loopless.compiled import scan as numba_scan

        out = outputs.empty(shape, wide)
        if out.size:
            a = flat_or_number(a, shape, wide)
            init = flat_or_number(init, column_shape, wide)
            numba_scan.affine(  # pyright: ignore[reportCallIssue]
                outer, steps, inner, a, flat(b, wide), init, out.ravel(), reverse, False
            )
        return out.astype(dtype, copy=False)
    if library.name == "torch":
        from loopless.arrays.scan import torch as torch_scan

        a, b, init = (typed(library, x, wide, b) for x in (a, b, init))
        x = torch_scan.affine_scan(
            a.expand(shape).reshape(outer, steps, inner),
            b.reshape(outer, steps, inner),
            init.expand(column_shape).reshape(outer, inner),
            reverse=reverse,
            lagged=lagged,
        )
        return library.cast(x.reshape(shape), dtype)
    from loopless.arrays.scan import jax as jax_scan

    a, b, init = (xp.asarray(x, wide) for x in (a, b, init))
    x = jax_scan.affine_scan(
        xp.moveaxis(xp.broadcast_to(a, shape), axis, 0),
        xp.moveaxis(b, axis, 0),
        xp.broadcast_to(init, column_shape),
        reverse,
    )
    return library.cast(xp.moveaxis(x, 0, axis), dtype)


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
