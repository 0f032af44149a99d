"""Convolutions and their gradients, in the one form that XLA's CPU compiler is fast at.

Inside a loop, XLA hands a convolution to a fast library only if its axes stand in the canonical
order: pictures [batch, space, channels], kernels [space, inputs, outputs]. JAX's own gradients are
in other orders, and become naive loops (jax-ml/jax#12868). Here the gradients are convolutions in
the canonical order too, and barriers keep XLA from folding the transposes into them. The networks
of all trainers (`conv.py`) and the PyTorch modules of `fused` use these functions.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

PART_BYTES = 2 << 20  # of pictures that are convolved at a time: 18 of 84 × 84 × 4 in float32


class Window(NamedTuple):
    """How a kernel moves over a picture: one entry for each spatial axis, and (low, high) pads."""

    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int = 1

    @classmethod
    def valid(cls, stride: int, axes: int = 2) -> "Window":
        """Return the window that stays inside the picture."""
        return cls((stride,) * axes, ((0, 0),) * axes, (1,) * axes)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def convolve(x: jax.Array, kernel: jax.Array, window: Window) -> jax.Array:
    """Convolve pictures [batch, *space, inputs] with a kernel [*size, inputs / groups, outputs]."""
    ones = (1,) * len(window.stride)
    settings = window.stride, window.padding, ones, window.dilation, window.groups
    return in_parts(lambda part: _canonical(part, kernel, *settings), x)


def input_gradient(
    gradient: jax.Array, kernel: jax.Array, space: tuple[int, ...], window: Window
) -> jax.Array:
    """Return the gradient with respect to pictures whose spatial sizes are `space`.

    dX = gradient, spread by the stride, convolved with the mirrored kernel
    """
    *size, inputs, outputs = kernel.shape
    n, groups = len(size), window.groups
    mirrored = jnp.flip(kernel, range(n)).reshape(*size, inputs, groups, outputs // groups)
    mirrored = jnp.moveaxis(mirrored, (n, n + 1, n + 2), (n + 2, n + 1, n))
    mirrored = mirrored.reshape(*size, outputs // groups, groups * inputs)
    padding = []
    for length, k, g, s, (low, _), d in zip(
        space, size, gradient.shape[1:-1], window.stride, window.padding, window.dilation,
        strict=True,
    ):  # fmt: skip
        reach = d * (k - 1)
        padding.append((reach - low, length - ((g - 1) * s + 1) + low))
    settings = (1,) * n, tuple(padding), window.stride, window.dilation, groups
    return in_parts(lambda part: _canonical(part, mirrored, *settings), gradient)


def kernel_gradient(
    x: jax.Array, gradient: jax.Array, size: tuple[int, ...], window: Window
) -> jax.Array:
    """Return the gradient with respect to a kernel whose spatial sizes are `size`, part by part.

    dW = x convolved with the gradient, spread by the stride; the batch takes the channels' place
    """
    n = len(size)
    padding = tuple(
        (low, (k - 1) * d + (g - 1) * s + 1 - length - low)
        for length, k, g, s, (low, _), d in zip(
            x.shape[1:-1], size, gradient.shape[1:-1], window.stride, window.padding,
            window.dilation, strict=True,
        )
    )  # fmt: skip
    settings = window.dilation, padding, (1,) * n, window.stride, 1, window.groups

    def of_part(x, gradient):
        pictures = jnp.moveaxis(x, (0, -1), (-1, 0))  # [inputs, *space, batch]
        spread = jnp.moveaxis(gradient, 0, -2)  # [*space, batch, outputs]
        return jnp.moveaxis(_canonical(pictures, spread, *settings), 0, -2)

    if (parts := _count_parts(x)) == 1:
        return of_part(x, gradient)
    pairs = _split(x, parts), _split(gradient, parts)  # zeros fill up the last part, and add 0
    first = of_part(*(array[0] for array in pairs))
    add = lambda total, pair: (total + of_part(*pair), None)  # noqa: E731
    return lax.scan(add, first, tuple(array[1:] for array in pairs))[0]


def in_parts(function: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    """Return function(x), computed on parts of the pictures x [batch, ...] that fit into caches.

    256 pictures of 84 × 84 took more than twice as long at once, on one core.
    """
    parts = _count_parts(x)
    if parts == 1:
        return function(x)
    y = lax.map(function, _split(x, parts))
    return y.reshape(-1, *y.shape[2:])[: x.shape[0]]


def _count_parts(x: jax.Array) -> int:
    """Return into how many parts to cut pictures; an accelerator takes all of them at once."""
    if jax.default_backend() != "cpu":
        return 1
    most = max(1, PART_BYTES // max(1, 4 * math.prod(x.shape[1:])))
    return max(1, -(-x.shape[0] // most))


def _split(x: jax.Array, parts: int) -> jax.Array:
    """Return [parts, size, ...]; the last part is filled up with zeros."""
    size = -(-x.shape[0] // parts)
    if rest := parts * size - x.shape[0]:
        x = jnp.concatenate([x, jnp.zeros((rest, *x.shape[1:]), x.dtype)])
    return x.reshape(parts, size, *x.shape[1:])


def _canonical(
    x, kernel, stride, padding, lhs_dilation, dilation, groups=1, batch_groups=1
) -> jax.Array:
    n = x.ndim - 2
    picture = (0, n + 1, *range(1, n + 1))
    numbers = lax.ConvDimensionNumbers(picture, (n + 1, n, *range(n)), picture)
    x, kernel = lax.optimization_barrier((x, kernel))
    y = lax.conv_general_dilated(
        x, kernel, stride, padding, lhs_dilation, dilation, dimension_numbers=numbers,
        feature_group_count=groups, batch_group_count=batch_groups,
    )  # fmt: skip
    return lax.optimization_barrier(y)


def _forward(x: jax.Array, kernel: jax.Array, window: Window) -> tuple[jax.Array, Any]:
    return convolve(x, kernel, window), (x, kernel)


def _backward(window: Window, saved: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, kernel = saved
    for_x = input_gradient(gradient, kernel, x.shape[1:-1], window)
    return for_x, kernel_gradient(x, gradient, kernel.shape[:-2], window)


convolve.defvjp(_forward, _backward)
