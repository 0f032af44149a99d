"""One scan for all three libraries, bare or with the recipe that feeds it.

`estimate` picks the engine: a fused kernel where there is one, else the recipe over whole arrays
and the bare scan, which can be traced and differentiated and runs on any device. `recipe` says what
a recipe is; the engines are `numpy`, `torch` (with `triton`) and `jax`.
"""

from typing import Any

from loopless.arrays.library import NUMPY, Library, typed
from loopless.arrays.scan import numpy as numpy_scan
from loopless.arrays.scan.recipe import Recipe, last_rows, rows_ahead


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
    """Return the recipe's outputs for checked arrays."""
    arguments = dtype, axis, floats, flags, numbers, valid
    if library is NUMPY:
        return numpy_scan.estimate(recipe, *arguments)
    if library.name == "torch" and recipe.adjoint is not None:
        from loopless.arrays.scan import torch as torch_scan

        if torch_scan.can_fuse(floats, numbers):
            return torch_scan.estimate(recipe, compose, *arguments)
        if torch_scan.is_program():
            from loopless.arrays.scan import torch_programs

            if torch_programs.can_call(dtype, floats, numbers):
                return torch_programs.call(recipe, axis, floats, flags, numbers, valid)
    if library.name == "jax":
        from loopless.arrays.scan import jax as jax_scan

        return jax_scan.estimate(recipe, compose, *arguments)
    return compose(recipe, library, *arguments)


def compose(recipe, library, dtype, axis, floats, flags, numbers, valid=None) -> tuple[Any, ...]:
    """Return the outputs by operations on whole arrays and the bare scan, on any device."""
    xp = library.xp
    where = xp.where
    wide = library.wide(dtype)
    floats = tuple(library.cast(x, wide) for x in floats)
    # Typed numbers: torch.where of bare ones would fall back to the default dtype.
    numbers = tuple(typed(library, x, wide, floats[0]) for x in numbers)
    if valid is not None:
        # Padding is set to 0 before any product: 0·NaN is NaN, forwards and backwards.
        floats = tuple(where(valid, x, 0) for x in floats)
    fields = floats + flags
    ahead = tuple(rows_ahead(xp, fields[k], axis, 1) for k in recipe.ahead)
    last = last_rows(library, floats[0], axis, valid)
    row = recipe.row(*fields, *numbers, *ahead)
    a, b = recipe.coefficients(where, row, last)
    if valid is not None:
        a, b = where(valid, a, 0), where(valid, b, 0)
    if recipe.lagged:
        x = affine(library, a, b, None, reverse=False, axis=axis, lagged=True)
    else:
        x = affine(library, a, b, None, reverse=True, axis=axis)
    x_next = rows_ahead(xp, x, axis, 1) if recipe.reads_next else x
    outs = recipe.readout(where, row, last, x, x_next)
    if valid is not None:
        outs = tuple(where(valid, out, 0) for out in outs)
    return tuple(library.cast(out, dtype) for out in outs)


def affine(library: Library, a, b, init, *, reverse: bool, axis: int, lagged: bool = False):
    """Return the bare scan of arrays of one floating dtype, accumulated in float32 or float64.

    a is a number or broadcasts to b's shape; init is None or has b's shape without `axis`. `lagged`
    asks for the adjoint of the scan in the other direction, for PyTorch only: JAX transposes scans
    itself.
    """
    xp = library.xp
    dtype = b.dtype
    wide = library.wide(dtype)
    shape = tuple(b.shape)
    column_shape = shape[:axis] + shape[axis + 1 :]
    init = 0.0 if init is None else init
    if library is NUMPY:
        return numpy_scan.affine_scan(a, b, init, reverse=reverse, axis=axis)
    if library.name == "torch":
        from loopless.arrays.scan import torch as torch_scan

        outer, steps, inner = numpy_scan.as_columns(shape, axis)
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
