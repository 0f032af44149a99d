"""Operators that draw random numbers: PyTorch's law, from a key of JAX.

Each takes the arguments of its ATen operator, and `key`.
"""

import jax
import jax.numpy as jnp

from loopless.fused.operators.dtypes import default_dtype, dtype_or


def _rand(shape, *, key, dtype=None, **_):
    return jax.random.uniform(key, tuple(shape), dtype_or(dtype, default_dtype()))


def _randn(shape, *, key, dtype=None, **_):
    return jax.random.normal(key, tuple(shape), dtype_or(dtype, default_dtype()))


def _rand_like(x, *, key, dtype=None, **_):
    return (
        _rand(x.shape, key=key, dtype=None)
        if False
        else jax.random.uniform(key, x.shape, dtype_or(dtype, x.dtype))
    )


def _randn_like(x, *, key, dtype=None, **_):
    return jax.random.normal(key, x.shape, dtype_or(dtype, x.dtype))


def _bernoulli(x, *, key, **_):
    return jax.random.bernoulli(key, x).astype(x.dtype)


def _bernoulli_p(x, p=0.5, *, key, **_):
    return jax.random.bernoulli(key, p, x.shape).astype(x.dtype)


def _native_dropout(x, p, train, *, key):
    if not train:
        return x, jnp.ones(x.shape, jnp.bool_)
    keep = jax.random.bernoulli(key, 1 - p, x.shape)
    scale = jnp.asarray(0 if p == 1 else 1 / (1 - p), x.dtype)
    return jnp.where(keep, x * scale, jnp.zeros((), x.dtype)), keep


OPERATORS = {
    "aten.rand.default": _rand,
    "aten.randn.default": _randn,
    "aten.rand_like.default": _rand_like,
    "aten.randn_like.default": _randn_like,
    "aten.bernoulli.default": _bernoulli,
    "aten.bernoulli.p": _bernoulli_p,
    "aten.native_dropout.default": _native_dropout,
}
