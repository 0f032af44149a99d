"""The pieces of all networks: linear layers, MLPs, initial weights, networks as one vector.

Networks take batches, x [..., width], without vmap. Weights are [in, out], so that a forward pass
is `x @ weight + bias` in any library.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
from jax import lax

ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh, "selu": jax.nn.selu}
NARROW = 32  # outputs of a layer below which the gradient of its weight is computed transposed


def product(x: jax.Array, weight: jax.Array) -> jax.Array:
    """Return x [..., k] @ weight [k, n], whose gradient is fast on the CPU where n is small."""
    if weight.shape[1] >= NARROW:
        return x @ weight
    flat = _narrow_product(x.reshape(-1, x.shape[-1]), weight)
    return flat.reshape(*x.shape[:-1], weight.shape[1])


@jax.custom_vjp
def _narrow_product(x, weight):
    return x @ weight


def _backward(factors, g):
    x, weight = factors
    by_weight = lax.platform_dependent(x, g, cpu=_transpose_second, default=lambda x, g: x.T @ g)
    return g @ weight.T, by_weight


def _transpose_second(x, g):
    """Return xᵀ @ g as (gᵀ @ x)ᵀ.

    XLA's routine for xᵀ @ g on the CPU is up to nine times slower where g is narrow. The barriers
    keep XLA from joining the transpositions with the product, which would be xᵀ @ g again.
    """
    alone = lax.optimization_barrier
    return alone(alone(g.T) @ x).T


_narrow_product.defvjp(lambda x, weight: (x @ weight, (x, weight)), _backward)


class Linear(eqx.Module):
    """x @ weight + bias, both first drawn uniformly from [−1/√in, 1/√in)."""

    weight: jax.Array
    bias: jax.Array

    def __init__(self, inputs: int, outputs: int, key: jax.Array) -> None:
        most = 1 / max(1, inputs) ** 0.5
        for_weight, for_bias = jax.random.split(key)
        self.weight = jax.random.uniform(for_weight, (inputs, outputs), jnp.float32, -most, most)
        self.bias = jax.random.uniform(for_bias, (outputs,), jnp.float32, -most, most)

    def __call__(self, x: jax.Array) -> jax.Array:
        return product(x, self.weight) + self.bias


class MLP(eqx.Module):
    """Linear layers of these `widths`, with the activation after each."""

    layers: tuple[Linear, ...]
    activation: str = eqx.field(static=True)

    def __init__(self, inputs: int, widths, activation: str, key: jax.Array) -> None:
        sizes = [inputs, *widths]
        keys = jax.random.split(key, max(1, len(widths)))
        self.layers = tuple(map(Linear, sizes, sizes[1:], keys))
        self.activation = activation

    def __call__(self, x: jax.Array) -> jax.Array:
        for layer in self.layers:
            x = ACTIVATIONS[self.activation](layer(x))
        return x


def orthogonal(module: Any, key: jax.Array, gains: Any) -> Any:
    """Return `module` with biases 0 and orthogonal weights, whose rows or columns are `gains` long.

    gains: a number, or a tree of numbers, one for each part of the module at that place. A
    convolution's weight counts as [height · width · in, out]. Saxe et al. 2014.
    """
    # One draw for all: compiling a generator for each shape would take most of the time.
    vector, unravel = jax.flatten_util.ravel_pytree(module)
    normal = unravel(jax.random.normal(key, vector.shape, vector.dtype))
    return jax.tree.map(
        lambda gain, part: jax.tree.map(partial(_orthogonal, gain), part), gains, normal
    )


def _orthogonal(gain: float, normal: jax.Array) -> jax.Array:
    if normal.ndim < 2:
        return jnp.zeros_like(normal)
    flat = normal.reshape(-1, normal.shape[-1])
    wide = flat.shape[0] < flat.shape[1]
    q, r = jnp.linalg.qr(flat.T if wide else flat)
    # With these signs every rotation is equally likely.
    q = q * jnp.where(jnp.diagonal(r) < 0, -gain, gain)
    return (q.T if wide else q).reshape(normal.shape)


def as_vector(module: eqx.Module) -> tuple[jax.Array, Any]:
    """Return all parameters as one vector, and the function that makes a module of such a vector.

    An optimizer's step on one vector is a handful of operations, however many layers there are.
    """
    arrays, rest = eqx.partition(module, eqx.is_inexact_array)
    vector, unravel = jax.flatten_util.ravel_pytree(arrays)
    return vector, lambda v: eqx.combine(unravel(v), rest)


def layer_maker(rebuild: Any) -> tuple[Any, Any]:
    """Return a compiled function from a vector to a module's arrays, and one from these to it.

    The arrays are new ones. A module may hold functions, too, which no program returns: the second
    function puts those back, inside a program or outside.
    """
    functions = []

    def arrays_of(vector: jax.Array) -> Any:
        arrays, rest = eqx.partition(rebuild(vector), eqx.is_array)
        functions[:] = [rest]
        return arrays

    return jax.jit(arrays_of), lambda arrays: eqx.combine(arrays, functions[0])


def rebuilder(make: Any) -> Any:
    """Return `as_vector(make())[1]` without computing anything: the network's shapes are enough."""
    rebuild = []
    jax.eval_shape(lambda: rebuild.append(as_vector(make())[1]))
    return rebuild[0]
