"""x @ weight in JAX, faster on the CPU than XLA's product where the factors are small.

Programs for the CPU call `compiled.product`, by way of `product_call.py`; other programs, and
products of other sizes, are left to XLA.
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from loopless.arrays.xla_cpu import is_on
from loopless.process import threads

LEAST, MOST = 2**17, 2**24  # multiplications of a product that our kernel computes
SHARED = 2**21  # on several cores: above this XLA's product, which uses all of them, is faster

Transposed = tuple[bool, bool]  # whether the first, the second factor is transposed; never both


def product(x: jax.Array, weight: jax.Array) -> jax.Array:
    """Return x [..., k] @ weight [k, n]."""
    flat: Any = _product((False, False), x.reshape(-1, x.shape[-1]), weight)
    return flat.reshape(*x.shape[:-1], weight.shape[-1])


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _product(transposed: Transposed, a: jax.Array, b: jax.Array) -> jax.Array:
    """Return a @ b, aᵀ @ b or a @ bᵀ."""
    xla = partial(_xla, transposed)
    if _is_ours(transposed, a, b):
        return lax.platform_dependent(a, b, cpu=partial(_call, transposed), default=xla)
    if transposed[0]:
        return lax.platform_dependent(a, b, cpu=_transpose_first, default=xla)
    return xla(a, b)


def _forward(transposed, a, b):
    return _product(transposed, a, b), (a, b)


def _backward(transposed, factors, g):
    a, b = factors
    plain, first, second = (False, False), (True, False), (False, True)
    if transposed == first:
        return _product(second, b, g), _product(plain, a, g)
    if transposed == second:
        return _product(plain, g, b), _product(first, g, a)
    return _product(second, g, b), _product(first, a, g)


_product.defvjp(_forward, _backward)


def _xla(transposed: Transposed, a: jax.Array, b: jax.Array) -> jax.Array:
    return (a.T if transposed[0] else a) @ (b.T if transposed[1] else b)


def _transpose_first(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return aᵀ @ b by XLA on the CPU.

    XLA hands a product with a transposed factor to a slower routine; so the factor is transposed
    before the product, and the barrier keeps XLA from joining the two. A narrow b is cheaper to
    transpose.
    """
    alone = lax.optimization_barrier
    return alone(alone(b.T) @ a).T if b.shape[1] < 32 else alone(a.T) @ b


def _sizes(transposed: Transposed, a: Any, b: Any) -> tuple[int, int, int]:
    """Return the rows of the result, the length of its sums, and its columns."""
    return a.shape[transposed[0]], b.shape[transposed[1]], b.shape[1 - transposed[1]]


def _is_ours(transposed: Transposed, a: jax.Array, b: jax.Array) -> bool:
    sizes = _sizes(transposed, a, b)
    if not is_on("product"):
        return False
    if not LEAST <= math.prod(sizes) <= (SHARED if threads() > 1 else MOST):
        return False
    # Beside an accelerator nothing is compiled for the CPU.
    if a.dtype != jnp.float32 or b.dtype != jnp.float32 or jax.default_backend() != "cpu":
        return False
    from loopless.arrays.xla_cpu.product_call import fits

    return fits(*sizes, transposed)


def _call(transposed: Transposed, a: jax.Array, b: jax.Array) -> jax.Array:
    from loopless.arrays.xla_cpu.product_call import NAME

    rows, _, columns = _sizes(transposed, a, b)
    result = jax.ShapeDtypeStruct((rows, columns), a.dtype)
    call = jax.ffi.ffi_call(NAME, result, vmap_method="broadcast_all")
    return call(a, b, transposed=np.array(transposed, np.int64))
