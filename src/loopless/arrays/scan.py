"""One scan for all three libraries, bare or fused with the recipe that feeds it.

A recipe says how one row's fields become a_t and b_t of x_t = a_t·x_{t+1} + b_t, and how x_t
becomes outputs. It is written once, of elementwise operations and `where`: over whole arrays it
feeds the differentiable scan, and the Numba kernel is generated from the same functions.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopless.arrays.library import NUMBER, NUMPY, Library


_BOOL = np.dtype(np.bool_)


@dataclass(frozen=True, eq=False)
class Recipe:
    """How an estimator uses the scan. Fields come as floats, flags, numbers, then those `ahead`."""

    coefficients: Callable  # (where, last, *fields) -> a, b
    readout: Callable  # (where, last, x, x_next, *fields) -> outputs, a tuple
    outputs: int
    ahead: tuple[int, ...] = ()  # which floats and flags are also wanted from the row after
    reads_next: bool = False  # whether `readout` looks at x_next


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
        return _fused(recipe, dtype, axis, floats, flags, numbers, valid)
    if library.name == "torch":
        views = _numpy_views(library.xp, dtype, floats, flags, numbers, valid)
        if views is not None:
            outs = _fused(recipe, views[0][0].dtype, axis, *views)
            return tuple([library.xp.from_numpy(out).to(dtype) for out in outs])
    return once(library, composed, (0, 1, 2, 3))(
        recipe, library, dtype, axis, floats, flags, numbers, valid
    )


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
    x = affine(library, a, b, None, reverse=True, axis=axis)
    x_next = rows_ahead(xp, x, axis, 1) if recipe.reads_next else x
    outs = recipe.readout(where, last, x, x_next, *fields)
    if valid is not None:
        outs = tuple(where(valid, out, 0) for out in outs)
    return tuple(library.cast(out, dtype) for out in outs)


def affine(library: Library, a, b, init, *, reverse: bool, axis: int):
    """The bare scan of arrays of one floating dtype, accumulated in float32 or float64.

    a is a number or broadcasts to b's shape; init is None or has b's shape without `axis`.
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

        out = np.empty(shape, wide)
        if out.size:
            a = _flat_or_number(a, shape, wide)
            init = _flat_or_number(init, column_shape, wide)
            numba_scan.affine(
                outer, steps, inner, a, _flat(b, wide), init, out.ravel(), reverse, False
            )
        return out.astype(dtype, copy=False)
    if library.name == "torch":
        from loopless.arrays import torch_scan

        a, b, init = (typed(library, x, wide, b) for x in (a, b, init))
        x = torch_scan.affine_scan(
            a.expand(shape).reshape(outer, steps, inner),
            b.reshape(outer, steps, inner),
            init.expand(column_shape).reshape(outer, inner),
            reverse,
            False,
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


def _fused(recipe, dtype, axis, floats, flags, numbers, valid) -> tuple[np.ndarray, ...]:
    from loopless.arrays import numba_scan

    first = floats[0]
    shape = first.shape
    if first.ndim > 1 and first.flags.f_contiguous and not first.flags.c_contiguous:
        # Data stored the other way round is walked the way it is stored: no copy.
        outs = _fused(
            recipe,
            dtype,
            len(shape) - 1 - axis,
            *(tuple(x.T if isinstance(x, np.ndarray) else x for x in group)
              for group in (floats, flags, numbers)),
            None if valid is None else valid.T,
        )  # fmt: skip
        return tuple(out.T for out in outs)
    wide = NUMPY.wide(dtype)
    outs = tuple([np.empty(shape, wide) for _ in range(recipe.outputs)])
    if first.size:
        fields = [_flat(x, wide) for x in floats] + [_flat(x, _BOOL) for x in flags]
        ahead = tuple([fields[k] for k in recipe.ahead])
        fields += [_flat_or_number(x, shape, wide) for x in numbers]
        numba_scan.fused(recipe)(
            *_as_columns(shape, axis),
            None if valid is None else _flat(valid, _BOOL),
            tuple(fields),
            ahead,
            tuple([out.ravel() for out in outs]),
        )
    if wide == dtype:
        return outs
    return tuple([out.astype(dtype) for out in outs])


def _as_columns(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    if axis == 0 and len(shape) == 2:
        return 1, shape[0], shape[1]
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def _flat(x: np.ndarray, dtype) -> np.ndarray:
    """`x` as a flat, contiguous, writable array of `dtype`; a copy only where it must be one."""
    x = x.ravel()
    # Numba compiles read-only arrays anew; a rare copy is cheaper than a rare compilation.
    if x.dtype != dtype or not x.flags.writeable:
        x = x.astype(dtype)
    return x


def _flat_or_number(x, shape: tuple[int, ...], dtype):
    return dtype.type(x) if isinstance(x, NUMBER) else _flat(np.broadcast_to(x, shape), dtype)


def _numpy_views(torch, dtype, floats, flags, numbers, valid):
    """The tensors as NumPy arrays on the same memory, or None where tensors must stay tensors."""
    if torch.compiler.is_compiling():
        return None
    wants_gradient = torch.is_grad_enabled()
    for x in (*floats, *flags, *numbers, valid):
        if isinstance(x, torch.Tensor) and (not x.is_cpu or (wants_gradient and x.requires_grad)):
            return None
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    try:
        return (
            [_numpy_view(x, wide) for x in floats],
            [_numpy_view(x, torch.bool) for x in flags],
            [x if isinstance(x, NUMBER) else _numpy_view(x, wide) for x in numbers],
            None if valid is None else _numpy_view(valid, torch.bool),
        )
    except RuntimeError:  # under vmap or a functional transform a tensor has no memory of its own
        return None


def _numpy_view(x, dtype):
    if x.dtype != dtype:
        x = x.to(dtype)
    if x.requires_grad:
        x = x.detach()
    return x.numpy() if x.ndim else x.item()


def typed(library: Library, x, dtype, like):
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
    final = x[(*before, slice(-1, None))]
    return xp.concatenate([x[(*before, slice(n, None))], *[final] * min(n, x.shape[axis])], axis)


def row_before(xp, x, axis: int):
    """Row t−1 of x at row t; the first row stands in for the one before it."""
    before = (slice(None),) * axis
    return xp.concatenate([x[(*before, slice(0, 1))], x[(*before, slice(None, -1))]], axis)
