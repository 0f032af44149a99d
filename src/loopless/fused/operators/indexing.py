"""Operators that read or write the elements that other arrays name.

PyTorch raises for an index that lies outside. A compiled program cannot: reads from outside give
NaN (the lowest number, for integers), and writes to outside are dropped.
"""

import jax.numpy as jnp
from jax import lax

from loopless.fused.operators.dtypes import is_floating


def _within(x, index, axis):
    """Return the part of an array that an index reaches: along other axes it may be shorter."""
    sizes = [
        n if a == axis else m for a, (n, m) in enumerate(zip(x.shape, index.shape, strict=True))
    ]
    return x[tuple(slice(size) for size in sizes)]


def _places(index, axis):
    """Return, for each axis, the positions of the elements that an index names along one axis."""
    grid = [lax.broadcasted_iota(index.dtype, index.shape, a) for a in range(index.ndim)]
    grid[axis] = index
    return tuple(grid)


def _gather(x, axis, index, *, sparse_grad=False):
    if not x.ndim:
        return jnp.broadcast_to(x, index.shape)
    axis %= x.ndim
    return jnp.take_along_axis(_within(x, index, axis), index, axis, mode="fill")


def _takes_one(x, axis, index):
    """Return whether an index names exactly one element along its axis, in all the rest of x."""
    return all(
        (1 if a == axis else n) == m
        for a, (n, m) in enumerate(zip(x.shape, index.shape, strict=True))
    )


def _is_at(x, axis, index):
    """Return where an index that names one element along an axis points to."""
    return lax.broadcasted_iota(index.dtype, x.shape, axis) == index


def _scatter(x, axis, index, source, *, combine="set"):
    """Write elements. One element along an axis is a comparison, which XLA fuses; a scatter is a loop."""
    if not x.ndim:
        return getattr(x[None].at[index.reshape(-1)], combine)(
            jnp.broadcast_to(source, index.shape).reshape(-1)
        )[0]
    axis %= x.ndim
    source = source.astype(x.dtype)
    source = _cut(source, index) if source.ndim else jnp.broadcast_to(source, index.shape)
    if _takes_one(x, axis, index) and combine in ("set", "add"):
        here = _is_at(x, axis, index)
        if combine == "set":
            return jnp.where(here, source, x)
        return x + jnp.where(here, source, jnp.zeros((), x.dtype))
    return getattr(x.at[_places(index, axis)], combine)(source, mode="drop")


def _cut(source, index):
    return source[tuple(slice(size) for size in index.shape)]


def _scatter_value(x, axis, index, value):
    return _scatter(x, axis, index, jnp.asarray(value, x.dtype))


def _scatter_add(x, axis, index, source):
    return _scatter(x, axis, index, source, combine="add")


def _embedding(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    return jnp.take(weight, indices, 0, mode="fill")


def _index_select(x, axis, index):
    return jnp.take(x, index, axis, mode="fill") if x.ndim else x


def _index(x, indices):
    index = tuple(slice(None) if i is None else i for i in indices)
    return x.at[index].get(mode="fill", fill_value=jnp.nan if is_floating(x) else None)


def _index_put(x, indices, values, accumulate=False):
    values = values.astype(x.dtype)
    masks = [i for i in indices if i is not None and i.dtype == jnp.bool_]
    if masks:
        (mask,) = masks
        before = [i for i in indices[: list(map(id, indices)).index(id(mask))]]
        mask = mask.reshape(mask.shape + (1,) * (x.ndim - len(before) - mask.ndim))
        return jnp.where(mask, x + values if accumulate else values, x)
    index = tuple(slice(None) if i is None else i for i in indices)
    return (
        x.at[index].add(values, mode="drop") if accumulate else x.at[index].set(values, mode="drop")
    )


OPERATORS = {
    "aten.gather.default": _gather,
    "aten.scatter.src": _scatter,
    "aten.scatter.value": _scatter_value,
    "aten.scatter_add.default": _scatter_add,
    "aten.embedding.default": _embedding,
    "aten.index_select.default": _index_select,
    "aten.index.Tensor": _index,
    "aten.index_put.default": _index_put,
    "aten._unsafe_index.Tensor": _index,
    "aten._unsafe_index_put.default": _index_put,
}
