"""Operators that layers of networks are made of: products, normalization, distances."""

import jax.numpy as jnp
from jax import lax

from loopless.fused.operators.dtypes import is_floating

NARROW = 16  # rows or columns of a product


def _mm(x, y):
    """Return x @ y.

    In the gradient of a layer's weight, x is a transpose. XLA would make it part of the product,
    which then takes up to twice as long if its result is narrow; the barrier keeps it apart.
    """
    if x.ndim == 2 and min(x.shape[0], y.shape[-1]) <= NARROW:
        x = lax.optimization_barrier(x)
    return jnp.matmul(x, y)


def _scale(x, factor):
    return x if factor == 1 else x * jnp.asarray(factor, x.dtype)


def _addmm(x, first, second, *, beta=1, alpha=1):
    """Return beta · x + alpha · first @ second; with beta = 0, x may hold NaN."""
    product = _scale(jnp.matmul(first, second), alpha)
    return product if beta == 0 else _scale(x, beta) + product


def _addbmm(x, first, second, *, beta=1, alpha=1):
    product = _scale(jnp.sum(jnp.matmul(first, second), 0), alpha)
    return product if beta == 0 else _scale(x, beta) + product


def _trilinear(x, y, z, expand1, expand2, expand3, sum_axes, unroll_dim=1):
    parts = [
        jnp.expand_dims(part, tuple(axes))
        for part, axes in ((x, expand1), (y, expand2), (z, expand3))
    ]
    return jnp.sum(parts[0] * parts[1] * parts[2], tuple(sum_axes))


# --- normalization ---------------------------------------------------------------------------


def _standardize(x, axes, epsilon):
    """Return x with mean 0 and variance 1 over some axes, its mean, and 1 / deviation."""
    mean = jnp.mean(x, axes, keepdims=True)
    variance = jnp.mean(jnp.square(x - mean), axes, keepdims=True)
    rate = lax.rsqrt(variance + jnp.asarray(epsilon, x.dtype))
    return (x - mean) * rate, mean, rate


def _wide(x):
    """Return half-precision numbers as float32, in which PyTorch takes their statistics."""
    return x.astype(jnp.float32) if is_floating(x) and x.dtype.itemsize < 4 else x


def _affine(x, weight, bias, dtype):
    x = x if weight is None else x * _wide(weight)
    return (x if bias is None else x + _wide(bias)).astype(dtype)


def _layer_norm(x, shape, weight, bias, epsilon):
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    normal, mean, rate = _standardize(_wide(x), axes, epsilon)
    return _affine(normal, weight, bias, x.dtype), mean.astype(x.dtype), rate.astype(x.dtype)


def _group_norm(x, weight, bias, n, channels, space, groups, epsilon):
    parts = _wide(x).reshape(n, groups, channels // groups * space)
    normal, mean, rate = _standardize(parts, (2,), epsilon)
    weight, bias = (
        None if part is None else part.reshape(-1, *(1,) * (x.ndim - 2)) for part in (weight, bias)
    )
    result = _affine(normal.reshape(x.shape), weight, bias, x.dtype)
    return result, *(part.reshape(n, groups).astype(x.dtype) for part in (mean, rate))


# --- gradients of activations that PyTorch does not take apart --------------------------------


def _shrink_backward(gradient, x, lambd):
    bound = jnp.asarray(lambd, x.dtype)
    return jnp.where((x >= -bound) & (x <= bound), jnp.zeros((), x.dtype), gradient)


# --- distances, linear algebra ---------------------------------------------------------------


def _cdist(x, y, p, compute_mode=None):
    """Return the distances between the rows of x [..., n, d] and y [..., m, d]: [..., n, m]."""
    gaps = jnp.abs(x[..., :, None, :] - y[..., None, :, :])
    if p == 0:
        return jnp.sum((gaps != jnp.zeros((), x.dtype)).astype(x.dtype), -1)
    if p == float("inf"):
        return jnp.max(gaps, -1)
    if p == 2:
        return jnp.sqrt(jnp.sum(jnp.square(gaps), -1))
    power = jnp.asarray(p, x.dtype)
    return jnp.power(jnp.sum(jnp.power(gaps, power), -1), jnp.ones((), x.dtype) / power)


def _cdist_backward(gradient, x, y, p, distances):
    """Return the gradient with respect to x; where a distance is 0, it is 0."""
    gaps = x[..., :, None, :] - y[..., None, :, :]
    gradient, distances = gradient[..., None], distances[..., None]
    zero, one = jnp.zeros((), x.dtype), jnp.ones((), x.dtype)
    if p == 0:
        return jnp.zeros_like(x)
    if p == 1:
        parts = gradient * jnp.sign(gaps)
    elif p == float("inf"):
        parts = jnp.where(jnp.abs(gaps) == distances, gradient * jnp.sign(gaps), zero)
    else:
        power = jnp.asarray(p - 1, x.dtype)
        ratio = jnp.abs(gaps) / jnp.where(distances == zero, one, distances)
        slope = gradient * jnp.sign(gaps) * jnp.power(ratio, power)
        parts = jnp.where((distances == zero) | (gaps == zero), zero, slope)
    return jnp.sum(parts, -2)


def _cholesky(x, *, upper=False, check_errors=False):
    """Return the factor and what went wrong, which is nothing: a failure shows as NaN."""
    factor = lax.linalg.cholesky(jnp.swapaxes(x, -1, -2) if upper else x, symmetrize_input=False)
    factor = jnp.swapaxes(factor, -1, -2) if upper else factor
    return factor, jnp.zeros(x.shape[:-2], jnp.int32)


def _solve_triangular(x, b, *, upper, left=True, unitriangular=False):
    lead = jnp.broadcast_shapes(x.shape[:-2], b.shape[:-2])
    x, b = (jnp.broadcast_to(part, (*lead, *part.shape[-2:])) for part in (x, b))
    return lax.linalg.triangular_solve(
        x, b, left_side=left, lower=not upper, unit_diagonal=unitriangular
    )


def _inverse(x, *, check_errors=False):
    return jnp.linalg.inv(x), jnp.zeros(x.shape[:-2], jnp.int32)


OPERATORS = {
    "aten.mm.default": _mm,
    "aten.bmm.default": _mm,
    "aten.addmm.default": _addmm,
    "aten.addmv.default": _addmm,
    "aten.addbmm.default": _addbmm,
    "aten._trilinear.default": _trilinear,
    "aten.native_layer_norm.default": _layer_norm,
    "aten.native_group_norm.default": _group_norm,
    "aten.softshrink_backward.default": _shrink_backward,
    "aten.hardshrink_backward.default": _shrink_backward,
    "aten._cdist_forward.default": _cdist,
    "aten._cdist_backward.default": _cdist_backward,
    "aten.linalg_cholesky_ex.default": _cholesky,
    "aten.linalg_solve_triangular.default": _solve_triangular,
    "aten.linalg_inv_ex.default": _inverse,
}
