"""Convolutions of images: by XLA's own operation, or as matrix products of patches."""

import equinox as eqx
import jax
import jax.numpy as jnp

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
    """Return the layers of Mnih et al. 2015 for large images, smaller ones for small images."""
    height, width, _ = shape
    if min(height, width) >= 36:
        return (32, 8, 4), (64, 4, 2), (64, 3, 1)
    return ((16, 3, 2), (32, 3, 1)) if min(height, width) >= 7 else ((16, 2, 1),)


class PatchConvolutions(Convolutions):
    """`Convolutions`, each computed as a matrix product with the patches that its kernel covers.

    For use within a compiled loop on the CPU, where XLA's own convolutions are slow: a gradient of
    small images took 21 ms, and takes 1.5 ms this way. The results are the same.
    """

    @classmethod
    def of(cls, layers: Convolutions) -> "PatchConvolutions":
        """Return the same layers with this way to compute them."""
        copy = object.__new__(cls)
        for name, value in vars(layers).items():
            object.__setattr__(copy, name, value)
        return copy

    def __call__(self, x: jax.Array) -> jax.Array:
        leading, dtype = x.shape[:-3], self.weights[0].dtype
        scale = 1 / 255 if x.dtype == jnp.uint8 else 1
        x = x.reshape(-1, *x.shape[-3:]).astype(dtype) * jnp.asarray(scale, dtype)
        for weight, bias, stride in zip(self.weights, self.biases, self.strides, strict=True):
            patches = _patches(x, weight.shape[0], stride)
            flat = patches.reshape(-1, patches.shape[-1]) @ weight.reshape(-1, weight.shape[-1])
            x = flat.reshape(*patches.shape[:-1], -1) + bias
            x = ACTIVATIONS[self.activation](x)
        return x.reshape(*leading, -1)


def _patches(x: jax.Array, size: int, stride: int) -> jax.Array:
    """Return [n, height', width', size · size · channels]: what a kernel covers at each place."""
    down, across = ((side - size) // stride * stride + 1 for side in x.shape[1:3])
    shifted = [
        x[:, row : row + down : stride, column : column + across : stride]
        for row in range(size)
        for column in range(size)
    ]
    return jnp.concatenate(shifted, -1)
