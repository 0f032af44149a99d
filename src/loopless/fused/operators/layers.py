"""Operators that layers of networks are made of."""

import jax.numpy as jnp


def _mm(x, y):
    return jnp.matmul(x, y)


def _addmm(x, first, second, *, beta=1, alpha=1):
    product = jnp.matmul(first, second)
    if alpha != 1:
        product = product * jnp.asarray(alpha, product.dtype)
    if beta == 0:
        return product
    return product + (x if beta == 1 else x * jnp.asarray(beta, x.dtype))


OPERATORS = {
    "aten.mm.default": _mm,
    "aten.bmm.default": _mm,
    "aten.mv.default": _mm,
    "aten.dot.default": _mm,
    "aten.addmm.default": _addmm,
    "aten.addmv.default": _addmm,
    "aten.baddbmm.default": _addmm,
}
