"""Operators that reduce, accumulate or order along axes."""

import functools
import math

import jax
import jax.numpy as jnp
from jax import lax

from loopless.fused.operators.dtypes import dtype_or, is_floating, promote


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


def _var_mean(x, axes=None, *, correction=None, keepdim=False):
    axes = _axes(x, axes)
    count = math.prod(x.shape[axis] for axis in axes)
    freedom = max(count - (1 if correction is None else correction), 0)
    mean = jnp.mean(x, axes, keepdims=True)
    squares = jnp.sum(jnp.square(x - mean), axes, keepdims=keepdim)
    return squares / jnp.asarray(freedom, x.dtype), mean if keepdim else jnp.squeeze(mean, axes)


def _var(x, axes=None, *, correction=None, keepdim=False):
    return _var_mean(x, axes, correction=correction, keepdim=keepdim)[0]


def _vector_norm(x, order=2, axes=None, keepdim=False, *, dtype=None):
    x, axes = jnp.abs(x.astype(dtype_or(dtype, x.dtype))), _axes(x, axes)
    if abs(order) == math.inf:
        return (jnp.max if order > 0 else jnp.min)(x, axes, keepdims=keepdim)
    if order == 0:
        return jnp.sum((x != jnp.zeros((), x.dtype)).astype(x.dtype), axes, keepdims=keepdim)
    if order == 1:
        return jnp.sum(x, axes, keepdims=keepdim)
    if order == 2:
        return jnp.sqrt(jnp.sum(jnp.square(x), axes, keepdims=keepdim))
    power = jnp.asarray(order, x.dtype)
    total = jnp.sum(jnp.power(x, power), axes, keepdims=keepdim)
    return jnp.power(total, jnp.ones((), x.dtype) / power)


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
    """Return the largest values and the first index of each, where PyTorch sends gradients."""
    return jnp.max(x, axis, keepdims=keepdim), _argmax(x, axis, keepdim)


def _min(x, axis, keepdim=False):
    return jnp.min(x, axis, keepdims=keepdim), _argmin(x, axis, keepdim)


def _cumsum(x, axis, *, dtype=None):
    x = x.astype(_total_dtype(x, dtype))
    return jnp.cumsum(x, axis) if x.ndim else x


def _cumprod(x, axis, *, dtype=None):
    x = x.astype(_total_dtype(x, dtype))
    return jnp.cumprod(x, axis) if x.ndim else x


def _cumulative_extreme(x, axis, function, is_new):
    """Return the extremes so far and the latest index of each, as PyTorch does."""
    if not x.ndim:
        return x, jnp.zeros((), jnp.int64)
    axis %= x.ndim
    values = function(x, axis)
    new = is_new(x, values) | jnp.isnan(x)
    places = lax.broadcasted_iota(jnp.int64, x.shape, axis)
    return values, lax.cummax(jnp.where(new, places, jnp.zeros((), jnp.int64)), axis)


def _cummax(x, axis):
    return _cumulative_extreme(x, axis, lax.cummax, jnp.greater_equal)


def _cummin(x, axis):
    return _cumulative_extreme(x, axis, lax.cummin, jnp.less_equal)


def _logcumsumexp(x, axis):
    return lax.cumlogsumexp(x, axis % x.ndim) if x.ndim else x


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


def _kthvalue(x, k, axis=-1, keepdim=False):
    if not x.ndim:
        return x, jnp.zeros((), jnp.int64)
    axis %= x.ndim
    parts = (lax.slice_in_dim(part, k - 1, k, axis=axis) for part in _sort(x, axis))
    return tuple(part if keepdim else jnp.squeeze(part, axis) for part in parts)


def _median(x, axis, keepdim=False):
    """Return the lower median and its index; NaN where there is one."""
    if not x.ndim:
        return x, jnp.zeros((), jnp.int64)
    values, indices = _kthvalue(x, (x.shape[axis] + 1) // 2, axis, keepdim)
    if not is_floating(x):
        return values, indices
    broken = jnp.isnan(x)
    any_broken = jnp.any(broken, axis, keepdims=keepdim)
    first = _argmax(broken, axis, keepdim)
    values = jnp.where(any_broken, jnp.asarray(jnp.nan, x.dtype), values)
    return values, jnp.where(any_broken, first, indices)


def _median_all(x):
    return _median(x.reshape(-1), 0)[0]


def _searchsorted(boundaries, x, *, out_int32=False, right=False, side=None, sorter=None):
    if sorter is not None:
        boundaries = jnp.take_along_axis(boundaries, sorter, -1)
    boundaries, x = promote(boundaries, x)
    search = functools.partial(jnp.searchsorted, side="right" if right else side or "left")
    if boundaries.ndim == 1:
        places = search(boundaries, x)
    else:
        rows = boundaries.reshape(-1, boundaries.shape[-1]), x.reshape(-1, x.shape[-1])
        places = jax.vmap(search)(*rows).reshape(x.shape)
    return places.astype(jnp.int32 if out_int32 else jnp.int64)


def _bucketize(x, boundaries, *, out_int32=False, right=False):
    return _searchsorted(boundaries, x, out_int32=out_int32, right=right)


OPERATORS = {
    "aten.sum.default": _sum_all,
    "aten.sum.dim_IntList": _sum,
    "aten.prod.default": _prod_all,
    "aten.prod.dim_int": _prod,
    "aten.mean.default": _mean_all,
    "aten.mean.dim": _mean,
    "aten.var.correction": _var,
    "aten.var_mean.correction": _var_mean,
    "aten.linalg_vector_norm.default": _vector_norm,
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
    "aten.cummax.default": _cummax,
    "aten.cummin.default": _cummin,
    "aten.logcumsumexp.default": _logcumsumexp,
    "aten._softmax.default": _softmax,
    "aten._log_softmax.default": _log_softmax,
    "aten.sort.default": _sort,
    "aten.sort.stable": _sort_stable,
    "aten.topk.default": _topk,
    "aten.kthvalue.default": _kthvalue,
    "aten.median.default": _median_all,
    "aten.median.dim": _median,
    "aten.searchsorted.Tensor": _searchsorted,
    "aten.bucketize.Tensor": _bucketize,
}
