"""The pieces of all networks, on batches: x [..., width], no vmap.

Weights are [in, out], so that a forward pass is `x @ weight + bias` in any library. Imports JAX
and Equinox. Tests: `tests/nets/test_networks.py`.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp

from loopless.arrays.xla_cpu.product import product

ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh, "selu": jax.nn.selu}


class Linear(eqx.Module):
    """x @ weight + bias, both first drawn evenly from ±1/√in."""

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
    """Linear layers of these `widths`, the activation after each."""

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


class Convolutions(eqx.Module):
    """Images [..., height, width, channels] as flat features [..., n]; bytes count as x / 255.

    `shape` is an image's. Each of `filters` is (channels, kernel size, stride).
    """

    weights: tuple[jax.Array, ...]
    biases: tuple[jax.Array, ...]
    strides: tuple[int, ...] = eqx.field(static=True)
    activation: str = eqx.field(static=True)

    def __init__(self, shape, filters, activation: str, key: jax.Array) -> None:
        channels, weights, biases = shape[-1], [], []
        keys = jax.random.split(key, len(filters))
        for (outputs, size, _stride), own in zip(filters, keys, strict=True):
            most = 1 / (channels * size * size) ** 0.5
            for_weight, for_bias = jax.random.split(own)
            kernel = (size, size, channels, outputs)
            weights.append(jax.random.uniform(for_weight, kernel, jnp.float32, -most, most))
            biases.append(jax.random.uniform(for_bias, (outputs,), jnp.float32, -most, most))
            channels = outputs
        self.weights, self.biases = tuple(weights), tuple(biases)
        self.strides, self.activation = tuple(stride for _, _, stride in filters), activation

    def __call__(self, x: jax.Array) -> jax.Array:
        leading, dtype = x.shape[:-3], self.weights[0].dtype
        scale = 1 / 255 if x.dtype == jnp.uint8 else 1
        x = x.reshape(-1, *x.shape[-3:]).astype(dtype) * jnp.asarray(scale, dtype)
        for weight, bias, stride in zip(self.weights, self.biases, self.strides, strict=True):
            x = jax.lax.conv_general_dilated(
                x, weight, (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x = ACTIVATIONS[self.activation](x + bias)
        return x.reshape(*leading, -1)


def filters_for(shape: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
    """The layers of Mnih et al. 2015 for large images, smaller ones for small images."""
    height, width, _ = shape
    if min(height, width) >= 36:
        return (32, 8, 4), (64, 4, 2), (64, 3, 1)
    return ((16, 3, 2), (32, 3, 1)) if min(height, width) >= 7 else ((16, 2, 1),)


def orthogonal(module: Any, key: jax.Array, gains: Any) -> Any:
    """`module` with biases 0, and weights whose rows or columns are orthogonal, as long as `gains`.

    gains: a number, or numbers in a tree whose leaves stand for parts of the module's. A
    convolution's weight counts as [height · width · in, out]. Saxe et al. 2014.
    """
    # One draw for all: a generator for each shape would be most of the time that compiling takes.
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
    q = q * jnp.where(jnp.diagonal(r) < 0, -gain, gain)  # the signs make every rotation as likely
    return (q.T if wide else q).reshape(normal.shape)


def as_vector(module: eqx.Module) -> tuple[jax.Array, Any]:
    """All parameters as one vector, and the function that makes a module of such a vector.

    An optimiser's step on one vector is a handful of operations, however many layers there are.
    """
    arrays, rest = eqx.partition(module, eqx.is_inexact_array)
    vector, unravel = jax.flatten_util.ravel_pytree(arrays)
    return vector, lambda v: eqx.combine(unravel(v), rest)


def rebuilder(make: Any) -> Any:
    """`as_vector(make())[1]`, but nothing is computed: a network's shapes are enough for it."""
    found = []
    jax.eval_shape(lambda: found.append(as_vector(make())[1]))
    return found[0]
