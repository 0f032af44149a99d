"""Operators that make, move and join arrays without computing anything."""

import operator

import jax.numpy as jnp
from jax import lax

from loopless.fused.operators.dtypes import default_dtype, dtype_or, promote


def _identity(x, **_):
    return x


def _view(x, shape):
    return x.reshape(tuple(shape))


def _expand(x, shape, *, implicit=False):
    missing = len(shape) - x.ndim
    known = [n if size == -1 else size for size, n in zip(shape[missing:], x.shape, strict=True)]
    return jnp.broadcast_to(x, (*shape[:missing], *known))


def _repeat(x, repeats):
    return jnp.tile(x, tuple(repeats))


def _permute(x, axes):
    return jnp.transpose(x, [axis % x.ndim for axis in axes])


def _squeeze(x, axes):
    axes = [axes] if isinstance(axes, int) else axes
    return jnp.squeeze(x, tuple({a % x.ndim for a in axes if x.ndim and x.shape[a] == 1}))


def _unsqueeze(x, axis):
    return jnp.expand_dims(x, axis)


def _flip(x, axes):
    return jnp.flip(x, tuple(axes))


def _roll(x, shifts, axes=()):
    return jnp.roll(x, tuple(shifts), tuple(axes)) if axes else jnp.roll(x, shifts[0])


def _diagonal(x, offset=0, axis1=0, axis2=1):
    return jnp.diagonal(x, offset, axis1, axis2)


# --- parts -----------------------------------------------------------------------------------


def _part(axis, part):
    """Return the index that takes `part` along one axis and everything along those before it."""
    return (*[slice(None)] * axis, part)


def _select(x, axis, index):
    return x[_part(axis % x.ndim, index)]


def _slice(x, axis=0, start=None, end=None, step=1):
    return x[_part(axis % x.ndim, slice(start, end, step))]


def _select_scatter(x, values, axis, index):
    return x.at[_part(axis % x.ndim, index)].set(values.astype(x.dtype))


def _slice_scatter(x, values, axis=0, start=None, end=None, step=1):
    return x.at[_part(axis % x.ndim, slice(start, end, step))].set(values.astype(x.dtype))


def _split_with_sizes(x, sizes, axis=0):
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [
        lax.slice_in_dim(x, end - size, end, axis=axis % x.ndim)
        for size, end in zip(sizes, ends, strict=True)
    ]


def _cat(arrays, axis=0):
    """Join arrays; PyTorch lets a one-axis array without elements pass beside any other."""
    parts = promote(*arrays)
    shaped = [x for x in parts if x.shape != (0,)] or parts
    return jnp.concatenate(shaped, axis)


def _constant_pad(x, pad, value=0):
    widths = [(0, 0, 0)] * x.ndim
    for i in range(len(pad) // 2):
        widths[x.ndim - 1 - i] = (pad[2 * i], pad[2 * i + 1], 0)
    return lax.pad(x, jnp.asarray(value, x.dtype), widths)


# --- new arrays ------------------------------------------------------------------------------


def _full(shape, value, *, dtype=None, **_):
    kinds = {bool: jnp.bool_, int: jnp.int64}
    return jnp.full(tuple(shape), value, dtype_or(dtype, kinds.get(type(value), default_dtype())))


def _full_like(x, value, *, dtype=None, **_):
    return jnp.full(x.shape, value, dtype_or(dtype, x.dtype))


def _empty(shape, *args, dtype=None, **_):
    """PyTorch leaves the values open; here they are 0."""
    return jnp.zeros(tuple(shape), dtype_or(dtype, default_dtype()))


def _new_empty(x, shape, *args, dtype=None, **_):
    return jnp.zeros(tuple(shape), dtype_or(dtype, x.dtype))


def _arange(start, end, step=1, *, dtype=None, **_):
    whole = all(isinstance(x, int) for x in (start, end, step))
    return jnp.arange(start, end, step, dtype_or(dtype, jnp.int64 if whole else default_dtype()))


def _copy(x, source, non_blocking=False):
    return jnp.broadcast_to(source.astype(x.dtype), x.shape)


OPERATORS = {
    "getitem": operator.getitem,
    "aten.alias.default": _identity,
    "aten.clone.default": _identity,
    "aten.detach.default": _identity,
    "aten.lift_fresh_copy.default": _identity,
    "aten.view.default": _view,
    "aten._unsafe_view.default": _view,
    "aten.expand.default": _expand,
    "aten.repeat.default": _repeat,
    "aten.permute.default": _permute,
    "aten.squeeze.dim": _squeeze,
    "aten.squeeze.dims": _squeeze,
    "aten.unsqueeze.default": _unsqueeze,
    "aten.flip.default": _flip,
    "aten.roll.default": _roll,
    "aten.diagonal.default": _diagonal,
    "aten.select.int": _select,
    "aten.slice.Tensor": _slice,
    "aten.select_scatter.default": _select_scatter,
    "aten.slice_scatter.default": _slice_scatter,
    "aten.split_with_sizes.default": _split_with_sizes,
    "aten.cat.default": _cat,
    "aten.constant_pad_nd.default": _constant_pad,
    "aten.full.default": _full,
    "aten.full_like.default": _full_like,
    "aten.empty.memory_format": _empty,
    "aten.empty_permuted.default": _empty,
    "aten.empty_strided.default": _empty,
    "aten.new_empty_strided.default": _new_empty,
    "aten.arange.start_step": _arange,
    "aten.copy.default": _copy,
}
