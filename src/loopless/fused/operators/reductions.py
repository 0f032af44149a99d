"""Operators that reduce, accumulate or order along axes."""

import jax
import jax.numpy as jnp
from jax import lax

from loopless.fused.operators.dtypes import dtype_or, floating, is_floating


def _axes(x, axes):
    """Return axes as JAX takes them; none, or an empty list, means all."""
    if axes is None or (not isinstance(axes, int) and not len(axes)):
        return tuple(range(x.ndim))
    axes = (axes,) if isinstance(axes, int) else axes
    return tuple(axis % x.ndim for axis in axes) if x.ndim else ()


def _total_dtype(x, dtype):
    """Return the dtype of sums: integers and booleans are added as int64."""
    return dtype_or(dtype, x.dtype if is_floating(x) else jnp.int64)


def _sum(x, axes=None, keepdim=False, *, dtype=None):
    return jnp.sum(x.astype(_total_dtype(x, dtype)), _axes(x, axes), keepdims=keepdim)


def _sum_all(x, *, dtype=None):
    return _sum(x, dtype=dtype)


def _prod(x, axes=None, keepdim=False, *, dtype=None):
    return jnp.prod(x.astype(_total_dtype(x, dtype)), _axes(x, axes), keepdims=keepdim)


def _prod_all(x, *, dtype=None):
    return _prod(x, dtype=dtype)


def _mean(x, axes=None, keepdim=False, *, dtype=None):
    return jnp.mean(x.astype(dtype_or(dtype, x.dtype)), _axes(x, axes), keepdims=keepdim)


def _mean_all(x, *, dtype=None):
    return _mean(x, dtype=dtype)


def _var(x, axes=None, *, correction=None, keepdim=False):
    axes = _axes(x, axes)
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    mean = jnp.mean(x, axes, keepdims=True)
    squares = jnp.sum(jnp.square(x - mean), axes, keepdims=keepdim)
    freedom = max(count - (1 if correction is None else correction), 0)
    return squares / jnp.asarray(freedom, x.dtype)


def _any(x, axes=None, keepdim=False):
    return jnp.any(x != jnp.zeros((), x.dtype), _axes(x, axes), keepdims=keepdim)


def _all(x, axes=None, keepdim=False):
    return jnp.all(x != jnp.zeros((), x.dtype), _axes(x, axes), keepdims=keepdim)


def _amax(x, axes=(), keepdim=False):
    return jnp.max(x, _axes(x, axes), keepdims=keepdim)


def _amin(x, axes=(), keepdim=False):
    return jnp.min(x, _axes(x, axes), keepdims=keepdim)


def _argmax(x, axis=None, keepdim=False):
    return jnp.argmax(x, axis, keepdims=keepdim).astype(jnp.int64)


def _argmin(x, axis=None, keepdim=False):
    return jnp.argmin(x, axis, keepdims=keepdim).astype(jnp.int64)


def _max(x, axis, keepdim=False):
    """Return the largest values and the first index of each, to which PyTorch sends the gradient."""
    return jnp.max(x, axis, keepdims=keepdim), _argmax(x, axis, keepdim)


def _min(x, axis, keepdim=False):
    return jnp.min(x, axis, keepdims=keepdim), _argmin(x, axis, keepdim)


def _cumsum(x, axis, *, dtype=None):
    x = x.astype(_total_dtype(x, dtype))
    return jnp.cumsum(x, axis) if x.ndim else x


def _cumprod(x, axis, *, dtype=None):
    x = x.astype(_total_dtype(x, dtype))
    return jnp.cumprod(x, axis) if x.ndim else x


def _softmax(x, axis, half_to_float=False):
    return jax.nn.softmax(x, axis)


def _log_softmax(x, axis, half_to_float=False):
    return jax.nn.log_softmax(x, axis)


def _sort(x, axis=-1, descending=False):
    order = jnp.argsort(x, axis, stable=True, descending=descending)
    return jnp.take_along_axis(x, order, axis), order.astype(jnp.int64)


def _sort_stable(x, *, stable=True, dim=-1, descending=False):
    return _sort(x, dim, descending)


def _topk(x, k, axis=-1, largest=True, sorted=True):
    values, order = _sort(x, axis, largest)
    return lax.slice_in_dim(values, 0, k, axis=axis), lax.slice_in_dim(order, 0, k, axis=axis)


OPERATORS = {
    "aten.sum.default": _sum_all,
    "aten.sum.dim_IntList": _sum,
    "aten.prod.default": _prod_all,
    "aten.prod.dim_int": _prod,
    "aten.mean.default": _mean_all,
    "aten.mean.dim": _mean,
    "aten.var.correction": _var,
    "aten.any.default": _any,
    "aten.any.dim": _any,
    "aten.any.dims": _any,
    "aten.all.default": _all,
    "aten.all.dim": _all,
    "aten.amax.default": _amax,
    "aten.amin.default": _amin,
    "aten.max.default": _amax,
    "aten.min.default": _amin,
    "aten.max.dim": _max,
    "aten.min.dim": _min,
    "aten.argmax.default": _argmax,
    "aten.argmin.default": _argmin,
    "aten.cumsum.default": _cumsum,
    "aten.cumprod.default": _cumprod,
    "aten._softmax.default": _softmax,
    "aten._log_softmax.default": _log_softmax,
    "aten.sort.default": _sort,
    "aten.sort.stable": _sort_stable,
    "aten.topk.default": _topk,
}
