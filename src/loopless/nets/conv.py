"""The convolutional layers of every network that sees images."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from loopless.nets.convolution import Window, convolve, in_parts
from loopless.nets.mlp import ACTIVATIONS


class Convolutions(eqx.Module):
    """Maps images [..., height, width, channels] to flat features [..., n]; bytes are x / 255.

    `shape` is that of one image. Each of `filters` is (channels, kernel size, stride).
    """

    weights: tuple[jax.Array, ...]
    biases: tuple[jax.Array, ...]
    strides: tuple[int, ...] = eqx.field(static=True)
    activation: str = eqx.field(static=True)

    def __init__(self, shape, filters, activation: str, key: jax.Array) -> None:
        channels, weights, biases = shape[-1], [], []
        keys = jax.random.split(key, len(filters))
        for (outputs, size, _stride), layer_key in zip(filters, keys, strict=True):
            most = 1 / (channels * size * size) ** 0.5
            for_weight, for_bias = jax.random.split(layer_key)
            kernel = (size, size, channels, outputs)
            weights.append(jax.random.uniform(for_weight, kernel, jnp.float32, -most, most))
            biases.append(jax.random.uniform(for_bias, (outputs,), jnp.float32, -most, most))
            channels = outputs
        self.weights, self.biases = tuple(weights), tuple(biases)
        self.strides, self.activation = tuple(stride for _, _, stride in filters), activation

    def __call__(self, x: jax.Array) -> jax.Array:
        leading = x.shape[:-3]
        features = in_parts(self._features, x.reshape(-1, *x.shape[-3:]))
        return features.reshape(*leading, -1)

    def _features(self, x: jax.Array) -> jax.Array:
        """Return the features [batch, n] of images [batch, height, width, channels]."""
        dtype = self.weights[0].dtype
        scale = 1 / 255 if x.dtype == jnp.uint8 else 1
        x = x.astype(dtype) * jnp.asarray(scale, dtype)
        for weight, bias, stride in zip(self.weights, self.biases, self.strides, strict=True):
            y: Any = convolve(x, weight, Window.valid(stride))
            x = ACTIVATIONS[self.activation](y + bias)
        return x.reshape(len(x), -1)


def filters_for(shape: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
    """Return the layers of Mnih et al. 2015 for large images, smaller ones for small images."""
    height, width, _ = shape
    if min(height, width) >= 36:
        return (32, 8, 4), (64, 4, 2), (64, 3, 1)
    return ((16, 3, 2), (32, 3, 1)) if min(height, width) >= 7 else ((16, 2, 1),)
