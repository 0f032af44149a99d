"""Operators that read or write the elements that other arrays name.

PyTorch raises for an index that lies outside. A compiled program cannot: reads from outside give
NaN (for integers, the lowest or highest number), and writes to outside are dropped.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from loopless.fused.operators.dtypes import is_floating

# --- one index for each element: gather and scatter ------------------------------------------


def _cut(x, shape):
    """Return the part of an array that an index of this shape reaches."""
    return x[tuple(slice(size) for size in shape)]


def _gather(x, axis, index, *, sparse_grad=False):
    if not x.ndim:
        return jnp.broadcast_to(x, index.shape)
    axis %= x.ndim
    reach = [n if a == axis else index.shape[a] for a, n in enumerate(x.shape)]
    return jnp.take_along_axis(_cut(x, reach), index, axis, mode="fill")


def _places(index, axis):
    """Return, for each axis, the positions of the elements that an index names along one axis."""
    grid = [lax.broadcasted_iota(index.dtype, index.shape, a) for a in range(index.ndim)]
    grid[axis] = index
    return tuple(grid)


def _names_one(x, axis, index) -> bool:
    """Return whether an index names just one element along its axis, for all of the other axes."""
    return index.shape == (*x.shape[:axis], 1, *x.shape[axis + 1 :])


def _scatter(x, axis, index, source, combine="set"):
    """Set or add elements. XLA fuses a comparison, but makes a loop of a scatter."""
    if not x.ndim:
        return _scatter(x[None], 0, index.reshape(1), source.reshape(1), combine)[0]
    axis %= x.ndim
    source = _cut(source, index.shape).astype(x.dtype)
    if _names_one(x, axis, index):
        here = lax.broadcasted_iota(index.dtype, x.shape, axis) == index
        if combine == "set":
            return jnp.where(here, source, x)
        return x + jnp.where(here, source, jnp.zeros((), x.dtype))
    places = x.at[_places(index, axis)]
    return places.set(source, mode="drop") if combine == "set" else places.add(source, mode="drop")


def _scatter_value(x, axis, index, value):
    return _scatter(x, axis, index, jnp.full(index.shape, value, x.dtype))


def _scatter_add(x, axis, index, source):
    return _scatter(x, axis, index, source, "add")


def _scatter_reduce(x, axis, index, source, reduce, *, include_self=True):
    if not x.ndim:
        x, index, source = x[None], index.reshape(1), source.reshape(1)
        return _scatter_reduce(x, 0, index, source, reduce, include_self=include_self)[0]
    places, source = _places(index, axis % x.ndim), _cut(source, index.shape)
    lowest, highest = (
        (-jnp.inf, jnp.inf) if is_floating(x) else (jnp.iinfo(x.dtype).min, jnp.iinfo(x.dtype).max)
    )
    neutral = {"sum": 0, "mean": 0, "prod": 1, "amax": lowest, "amin": highest}[reduce]
    counts = jnp.zeros(x.shape, jnp.int64).at[places].add(jnp.ones(index.shape, jnp.int64))
    if not include_self:
        x = jnp.where(counts > 0, jnp.asarray(neutral, x.dtype), x)
    method = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}[reduce]
    result = getattr(x.at[places], method)(source, mode="drop")
    if reduce != "mean":
        return result
    counts = jnp.maximum(counts + int(include_self), 1).astype(x.dtype)
    return result / counts if is_floating(x) else result // counts


# --- rows and positions ----------------------------------------------------------------------


def _embedding(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    return jnp.take(weight, indices, 0, mode="fill")


def _index_select(x, axis, index):
    return jnp.take(x, index, axis, mode="fill") if x.ndim else x


def _whole(indices):
    return tuple(slice(None) if index is None else index for index in indices)


def _index(x, indices):
    return x.at[_whole(indices)].get(mode="fill")


def _index_put(x, indices, values, accumulate=False):
    values = values.astype(x.dtype)
    ((axis, index), *_) = ((a, i) for a, i in enumerate(indices) if i is not None)
    if index.dtype == jnp.bool_:  # `lowering` passes a mask only alone, and with values that spread
        mask = index.reshape(*index.shape, *(1,) * (x.ndim - axis - index.ndim))
        return jnp.where(mask, x + values if accumulate else values, x)
    places = x.at[_whole(indices)]
    return places.add(values, mode="drop") if accumulate else places.set(values, mode="drop")


def _put(x, index, source, accumulate=False):
    flat = x.reshape(-1).at[index.reshape(-1)]
    source = source.reshape(-1)
    flat = flat.add(source, mode="drop") if accumulate else flat.set(source, mode="drop")
    return flat.reshape(x.shape)


def _masked_scatter(x, mask, source):
    """Write the elements of `source`, in order, where a mask is true."""
    shape = jnp.broadcast_shapes(x.shape, mask.shape)
    x, mask = jnp.broadcast_to(x, shape), jnp.broadcast_to(mask, shape)
    order = jnp.cumsum(mask.reshape(-1).astype(jnp.int64)) - 1
    return jnp.where(mask, jnp.take(source.reshape(-1), order, mode="clip").reshape(shape), x)


# --- places in memory ------------------------------------------------------------------------


def _memory(size, stride, offset) -> np.ndarray:
    """Return where the elements of a strided view lie in a contiguous array's memory."""
    places = np.full(tuple(size), offset or 0)
    for axis, (n, step) in enumerate(zip(size, stride, strict=True)):
        places += (np.arange(n) * step).reshape(-1, *(1,) * (len(size) - axis - 1))
    return places


def _as_strided(x, size, stride, storage_offset=None) -> jax.Array:
    return x.reshape(-1)[_memory(size, stride, storage_offset)]


def _as_strided_scatter(x, source, size, stride, storage_offset=None):
    places = _memory(size, stride, storage_offset)
    return x.reshape(-1).at[places].set(source.astype(x.dtype)).reshape(x.shape)


def _diagonal_scatter(x, source, offset=0, axis1=0, axis2=1):
    places = jnp.arange(x.size).reshape(x.shape)
    places = jnp.diagonal(places, offset, axis1, axis2)
    return x.reshape(-1).at[places].set(source.astype(x.dtype)).reshape(x.shape)


def _unfold(x, axis, size, step):
    """Return windows along an axis, as a new last axis."""
    if not x.ndim:
        return x[None]
    axis %= x.ndim
    count = (x.shape[axis] - size) // step + 1
    places = np.arange(count)[:, None] * step + np.arange(size)
    return jnp.moveaxis(jnp.take(x, places, axis), axis + 1, -1)


OPERATORS = {
    "aten.gather.default": _gather,
    "aten.scatter.src": _scatter,
    "aten.scatter.value": _scatter_value,
    "aten.scatter_add.default": _scatter_add,
    "aten.scatter_reduce.two": _scatter_reduce,
    "aten.embedding.default": _embedding,
    "aten.index_select.default": _index_select,
    "aten.index.Tensor": _index,
    "aten._unsafe_index.Tensor": _index,
    "aten.index_put.default": _index_put,
    "aten._unsafe_index_put.default": _index_put,
    "aten.put.default": _put,
    "aten.masked_scatter.default": _masked_scatter,
    "aten.as_strided.default": _as_strided,
    "aten.as_strided_scatter.default": _as_strided_scatter,
    "aten.diagonal_scatter.default": _diagonal_scatter,
    "aten.unfold.default": _unfold,
}
