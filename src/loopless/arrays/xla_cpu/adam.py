"""A step of Adam on the CPU in one pass: weights and both moments are read and written once.

XLA makes three passes of it, one for each result. Imports `jax_native`; imported on the first call
only, by `train.optimizer`, which has the same step in JAX operations. Tests:
`tests/train/test_optimizer.py`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportGeneralTypeIssues=false

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from numba.extending import register_jitable as jitable

from loopless.arrays.xla_cpu import frame as native
from loopless.compiled.jit import jit

NAME = "loopless_adam"


@functools.cache
def is_here() -> bool:
    """Whether XLA can call it."""
    return native.register(NAME, _handler)


def adam(weights, mu, nu, gradient, numbers) -> tuple[jax.Array, ...]:
    """Weights, mu and nu after a step, all float32; in their old memory, if nothing else reads it.

    numbers: β₁, 1 − β₁, β₂, 1 − β₂, ε, decay, rate, 1 − β₁ᵗ, 1 − β₂ᵗ, and whether to do anything.
    """
    same = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (weights, mu, nu)]
    call = jax.ffi.ffi_call(
        NAME, same, vmap_method="broadcast_all", input_output_aliases={0: 0, 1: 1, 2: 2}
    )
    told = jnp.stack([jnp.asarray(x, jnp.float32) for x in numbers])
    return tuple(call(weights, mu, nu, gradient, told))


def _handler(frame):
    if not native.is_question(frame):
        weights, mu, nu = _in_place(frame, 0), _in_place(frame, 1), _in_place(frame, 2)
        gradient = native.vector(frame, native.ARGUMENTS, 3, np.float32)
        numbers = native.matrix(frame, native.ARGUMENTS, 4, np.float32)
        size = weights.size // numbers.shape[0]
        for row in range(numbers.shape[0]):
            own = slice(row * size, (row + 1) * size)
            _step(weights[own], mu[own], nu[own], gradient[own], numbers[row])
    return 0


@jitable
def _in_place(frame, number):
    """A result that holds what its argument does, which most often is the same memory."""
    old = native.vector(frame, native.ARGUMENTS, number, np.float32)
    new = native.vector(frame, native.RESULTS, number, np.float32)
    if old.ctypes.data != new.ctypes.data:
        new[:] = old
    return new


@jit()
def _step(weights, all_mu, all_nu, gradient, numbers):
    one, rest_of_one, two, rest_of_two, epsilon, decay, rate, share_of_mu, share_of_nu, sound = (
        numbers
    )
    if sound == 0:
        return
    of_mu, of_nu = np.float32(1) / share_of_mu, np.float32(1) / share_of_nu
    for i in range(weights.size):
        g, w = gradient[i], weights[i]
        mu = one * all_mu[i] + rest_of_one * g
        nu = two * all_nu[i] + rest_of_two * g * g
        all_mu[i], all_nu[i] = mu, nu
        change = mu * of_mu / (math.sqrt(nu * of_nu) + epsilon)
        weights[i] = w - rate * (change + decay * w)
