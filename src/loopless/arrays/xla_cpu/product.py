"""x @ weight in JAX, faster on the CPU than XLA's where the factors are small.

Programs for the CPU call the compiled `numba_product`; others, and products of other sizes, are
XLA's. Imports JAX, and Numba's part on the first call that needs it. Tests:
`tests/arrays/test_jax_product.py`.
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from loopless.process import threads

LEAST, MOST = 2**17, 2**24  # multiplications of a product that is ours
SHARED = 2**21  # where there are several cores: above this XLA's is faster, with all of them


Turned = tuple[bool, bool]  # whether a factor is transposed: the first, the second; never both


def product(x: jax.Array, weight: jax.Array) -> jax.Array:
    """x [..., k] @ weight [k, n]."""
    flat: Any = _product((False, False), x.reshape(-1, x.shape[-1]), weight)
    return flat.reshape(*x.shape[:-1], weight.shape[-1])


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _product(turned: Turned, a: jax.Array, b: jax.Array) -> jax.Array:
    """a @ b, aᵀ @ b or a @ bᵀ."""
    xla = partial(_xla, turned)
    if _is_ours(turned, a, b):
        return lax.platform_dependent(a, b, cpu=partial(_call, turned), default=xla)
    if turned[0]:
        return lax.platform_dependent(a, b, cpu=_apart, default=xla)
    return xla(a, b)


def _forward(turned, a, b):
    return _product(turned, a, b), (a, b)


def _backward(turned, factors, g):
    a, b = factors
    plain, first, second = (False, False), (True, False), (False, True)
    if turned == first:
        return _product(second, b, g), _product(plain, a, g)
    if turned == second:
        return _product(plain, g, b), _product(first, g, a)
    return _product(second, g, b), _product(first, a, g)


_product.defvjp(_forward, _backward)


def _xla(turned: Turned, a: jax.Array, b: jax.Array) -> jax.Array:
    return (a.T if turned[0] else a) @ (b.T if turned[1] else b)


def _apart(a: jax.Array, b: jax.Array) -> jax.Array:
    """aᵀ @ b by XLA on the CPU.

    It hands a product with a transposed factor to a slower routine; so the factor is transposed
    first, apart from the product. A narrow b is cheaper to transpose.
    """
    apart = lax.optimization_barrier
    return apart(apart(b.T) @ a).T if b.shape[1] < 32 else apart(a.T) @ b


def _sizes(turned: Turned, a: Any, b: Any) -> tuple[int, int, int]:
    """Rows of the result, how much is summed, columns of the result."""
    return a.shape[turned[0]], b.shape[turned[1]], b.shape[1 - turned[1]]


def _is_ours(turned: Turned, a: jax.Array, b: jax.Array) -> bool:
    sizes = _sizes(turned, a, b)
    if not LEAST <= math.prod(sizes) <= (SHARED if threads() > 1 else MOST):
        return False
    # Nothing is compiled for a CPU that is there beside an accelerator.
    if a.dtype != jnp.float32 or b.dtype != jnp.float32 or jax.default_backend() != "cpu":
        return False
    from loopless.arrays.xla_cpu.product_call import fits

    return fits(*sizes, turned)


def _call(turned: Turned, a: jax.Array, b: jax.Array) -> jax.Array:
    from loopless.arrays.xla_cpu.product_call import NAME

    rows, _, columns = _sizes(turned, a, b)
    result = jax.ShapeDtypeStruct((rows, columns), a.dtype)
    call = jax.ffi.ffi_call(NAME, result, vmap_method="broadcast_all")
    return call(a, b, turned=np.array(turned, np.int64))
