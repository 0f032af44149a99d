"""Operators that draw random numbers: PyTorch's law, from a key of JAX.

Each takes the arguments of its ATen operator, and `key`.
"""

import jax
import jax.numpy as jnp

from loopless.fused.operators.dtypes import default_dtype, dtype_or


def _rand(shape, *, key, dtype=None, **_):
    return jax.random.uniform(key, tuple(shape), dtype_or(dtype, default_dtype()))


def _rand_like(x, *, key, dtype=None, **_):
    return jax.random.uniform(key, x.shape, dtype_or(dtype, x.dtype))


def _randn(shape, *, key, dtype=None, **_):
    return jax.random.normal(key, tuple(shape), dtype_or(dtype, default_dtype()))


def _randn_like(x, *, key, dtype=None, **_):
    return jax.random.normal(key, x.shape, dtype_or(dtype, x.dtype))


def _normal(mean, std=1.0, *, key, generator=None):
    """Draw with the given mean and deviation, each an array or a number."""
    arrays = [part for part in (mean, std) if isinstance(part, jax.Array)]
    dtype = arrays[0].dtype
    shape = jnp.broadcast_shapes(*(part.shape for part in arrays))
    mean, std = (jnp.asarray(part, dtype) for part in (mean, std))
    return mean + std * jax.random.normal(key, shape, dtype)


def _normal_functional(x, mean=0.0, std=1.0, *, key, generator=None):
    return _normal(jnp.full(x.shape, mean, x.dtype), std, key=key)


def _uniform(x, low=0.0, high=1.0, *, key, generator=None):
    return jax.random.uniform(key, x.shape, x.dtype, low, high)


def _exponential(x, rate=1.0, *, key, generator=None):
    return jax.random.exponential(key, x.shape, x.dtype) / jnp.asarray(rate, x.dtype)


def _bernoulli(x, *, key, generator=None):
    return jax.random.bernoulli(key, x).astype(x.dtype)


def _bernoulli_p(x, p=0.5, *, key, generator=None):
    return jax.random.bernoulli(key, p, x.shape).astype(x.dtype)


def _native_dropout(x, p, train, *, key):
    if not train:
        return x, jnp.ones(x.shape, jnp.bool_)
    keep = jax.random.bernoulli(key, 1 - p, x.shape)
    scale = jnp.asarray(0 if p == 1 else 1 / (1 - p), x.dtype)
    return jnp.where(keep, x * scale, jnp.zeros((), x.dtype)), keep


def _randint(low, high, shape, *, key, dtype=None, **_):
    numbers = jax.random.randint(key, tuple(shape), low, high, jnp.int64)
    return numbers.astype(dtype_or(dtype, jnp.int64))


def _randint_high(high, shape, **options):
    return _randint(0, high, shape, **options)


def _randint_like(x, high, *, key, dtype=None, **_):
    return _randint_like_low(x, 0, high, key=key, dtype=dtype)


def _randint_like_low(x, low, high, *, key, dtype=None, **_):
    return _randint(low, high, x.shape, key=key).astype(dtype_or(dtype, x.dtype))


def _randperm(n, *, key, dtype=None, **_):
    return jax.random.permutation(key, n).astype(dtype_or(dtype, jnp.int64))


def _multinomial(weights, count, replacement=False, *, key, generator=None):
    """Draw indices by their weights, which need not add up to 1: [..., count]."""
    logits = jnp.log(weights)
    if replacement:
        draws = jax.random.categorical(key, logits, shape=(count, *weights.shape[:-1]))
        return jnp.moveaxis(draws, 0, -1).astype(jnp.int64)
    # The largest of logits with Gumbel noise are a draw without replacement.
    noise = jax.random.gumbel(key, weights.shape, weights.dtype)
    return jax.lax.top_k(logits + noise, count)[1].astype(jnp.int64)


def _standard_gamma(x, generator=None, *, key):
    return jax.random.gamma(key, x, dtype=x.dtype)


def _poisson(x, generator=None, *, key):
    return jax.random.poisson(key, x).astype(x.dtype)


OPERATORS = {
    "aten.rand.default": _rand,
    "aten.rand_like.default": _rand_like,
    "aten.randn.default": _randn,
    "aten.randn_like.default": _randn_like,
    "aten.normal.Tensor_float": _normal,
    "aten.normal.Tensor_Tensor": _normal,
    "aten.normal.float_Tensor": _normal,
    "aten.normal_functional.default": _normal_functional,
    "aten.uniform.default": _uniform,
    "aten.exponential.default": _exponential,
    "aten.bernoulli.default": _bernoulli,
    "aten.bernoulli.p": _bernoulli_p,
    "aten.native_dropout.default": _native_dropout,
    "aten.randint.default": _randint_high,
    "aten.randint.low": _randint,
    "aten.randint_like.default": _randint_like,
    "aten.randint_like.low_dtype": _randint_like_low,
    "aten.randperm.default": _randperm,
    "aten.multinomial.default": _multinomial,
    "aten._standard_gamma.default": _standard_gamma,
    "aten.poisson.default": _poisson,
}
