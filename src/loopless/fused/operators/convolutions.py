"""Convolutions and their gradients, in the one form that XLA's CPU compiler is fast at.

Inside a loop, XLA hands a convolution to its fast library only if its axes stand in the canonical
order: pictures [batch, space, channels], kernels [space, inputs, outputs]. JAX's own gradients are
in other orders, and become naive loops (jax-ml/jax#12868). Here the gradients are convolutions in
the canonical order too, and barriers keep XLA from folding the transposes into them.
"""

import jax
import jax.numpy as jnp
from jax import lax


def _part_size(x) -> int:
    """Return how many pictures [batch, …] to convolve at a time, so that they stay in the cache."""
    count = x.shape[0]
    if x.nbytes < _LARGE_BYTES:
        return count
    size = max(size for size in range(1, _PART + 1) if count % size == 0)
    return size if size >= _LEAST_PART else count


# 256 pictures of 84 × 84 took 4 times as long at once as 32 at a time, on one core.
_LARGE_BYTES, _PART, _LEAST_PART = 4_000_000, 32, 8


def _split(x, size):
    return x.reshape(x.shape[0] // size, size, *x.shape[1:])


def _convolve(x, kernel, **settings):
    """Convolve x [batch, space, inputs] with a kernel [space, inputs, outputs], in parts."""
    size = _part_size(x)
    if size == x.shape[0]:
        return _convolve_at_once(x, kernel, **settings)
    y = lax.map(lambda part: _convolve_at_once(part, kernel, **settings), _split(x, size))
    return y.reshape(x.shape[0], *y.shape[2:])


def _convolve_at_once(
    x, kernel, *, stride, padding, lhs_dilation, dilation, groups=1, batch_groups=1
):
    n = x.ndim - 2
    picture = (0, n + 1, *range(1, n + 1))
    numbers = lax.ConvDimensionNumbers(picture, (n + 1, n, *range(n)), picture)
    x, kernel = lax.optimization_barrier((x, kernel))
    result = lax.conv_general_dilated(
        x,
        kernel,
        window_strides=stride,
        padding=padding,
        lhs_dilation=lhs_dilation,
        rhs_dilation=dilation,
        dimension_numbers=numbers,
        feature_group_count=groups,
        batch_group_count=batch_groups,
    )
    return lax.optimization_barrier(result)


def _channels_last(x):
    return jnp.moveaxis(x, 1, -1)


def _channels_first(x):
    return jnp.moveaxis(x, -1, 1)


def _forward(x, weight, stride, padding, dilation, groups):
    """Convolve x [batch, inputs, space] with a weight [outputs, inputs / groups, space]."""
    kernel = jnp.moveaxis(weight, (0, 1), (-1, -2))
    sides = [(p, p) for p in padding]
    ones = (1,) * len(stride)
    y = _convolve(
        _channels_last(x),
        kernel,
        stride=stride,
        padding=sides,
        lhs_dilation=ones,
        dilation=dilation,
        groups=groups,
    )
    return _channels_first(y)


def _input_gradient(gradient, weight, space, stride, padding, dilation, groups):
    """Return the gradient with respect to inputs whose spatial sizes are `space`.

    dX = gradient, spread by the stride, convolved with the mirrored kernel
    """
    outputs, inputs, *size = weight.shape
    n = len(size)
    kernel = weight.reshape(groups, outputs // groups, inputs, *size)
    kernel = jnp.moveaxis(jnp.flip(kernel, range(3, n + 3)), (1, 0, 2), (n, n + 1, n + 2))
    kernel = kernel.reshape(*size, outputs // groups, groups * inputs)
    sides = []
    for length, k, g, s, p, d in zip(
        space, size, gradient.shape[2:], stride, padding, dilation, strict=True
    ):
        reach, low = d * (k - 1), d * (k - 1) - p
        sides.append((low, length - ((g - 1) * s + 1) - low + reach))
    ones = (1,) * n
    x = _convolve(
        _channels_last(gradient),
        kernel,
        stride=ones,
        padding=sides,
        lhs_dilation=stride,
        dilation=dilation,
        groups=groups,
    )
    return _channels_first(x)


def _weight_gradient(x, gradient, space, *settings):
    """Return the gradient with respect to a weight whose spatial sizes are `space`, in parts."""
    size = _part_size(x)
    if size == x.shape[0]:
        return _weight_gradient_at_once(x, gradient, space, *settings)

    def add(total, part):
        some_x, some_gradient = part
        return total + _weight_gradient_at_once(some_x, some_gradient, space, *settings), None

    parts, gradients = _split(x, size), _split(gradient, size)
    first = _weight_gradient_at_once(parts[0], gradients[0], space, *settings)
    return lax.scan(add, first, (parts[1:], gradients[1:]))[0]


def _weight_gradient_at_once(x, gradient, space, stride, padding, dilation, groups):
    """Sum over the batch, which takes the place of the channels.

    dW = x convolved with the gradient, spread by the stride
    """
    pictures = jnp.moveaxis(x, 0, -1)  # [inputs, space, batch]
    kernel = jnp.moveaxis(gradient, (0, 1), (-2, -1))  # [space, batch, outputs]
    sides = [
        (p, (k - 1) * d + (g - 1) * s + 1 - length - p)
        for length, k, g, s, p, d in zip(
            x.shape[2:], space, gradient.shape[2:], stride, padding, dilation, strict=True
        )
    ]
    weight = _convolve_at_once(
        pictures,
        kernel,
        stride=dilation,
        padding=sides,
        lhs_dilation=(1,) * len(space),
        dilation=stride,
        batch_groups=groups,
    )  # [inputs / groups, space, outputs]
    return jnp.moveaxis(weight, -1, 0)


def _fill(values, n):
    """Return one value for each spatial axis; PyTorch may give one for all."""
    return tuple(values) * n if len(values) == 1 else tuple(values)


def _convolution(
    x, weight, bias, stride, padding, dilation, transposed, output_padding, groups
) -> jax.Array:
    n = x.ndim - 2
    stride, padding, dilation, extra = (
        _fill(values, n) for values in (stride, padding, dilation, output_padding)
    )
    if transposed:
        space = [
            (length - 1) * s - 2 * p + d * (k - 1) + more + 1
            for length, k, s, p, d, more in zip(
                x.shape[2:], weight.shape[2:], stride, padding, dilation, extra, strict=True
            )
        ]
        y = _input_gradient(x, weight, space, stride, padding, dilation, groups)
    else:
        y = _forward(x, weight, stride, padding, dilation, groups)
    return y if bias is None else y + bias.reshape(-1, *(1,) * n)


def _convolution_backward(
    gradient,
    x,
    weight,
    bias_sizes,
    stride,
    padding,
    dilation,
    transposed,
    output_padding,
    groups,
    output_mask,
):
    n = x.ndim - 2
    stride, padding, dilation = (_fill(values, n) for values in (stride, padding, dilation))
    settings = (stride, padding, dilation, groups)
    for_x = for_weight = for_bias = None
    if output_mask[0] and transposed:
        for_x = _forward(gradient, weight, *settings)
    elif output_mask[0]:
        for_x = _input_gradient(gradient, weight, x.shape[2:], *settings)
    if output_mask[1]:
        wide, narrow = (gradient, x) if transposed else (x, gradient)
        for_weight = _weight_gradient(wide, narrow, weight.shape[2:], *settings)
    if output_mask[2]:
        for_bias = jnp.sum(gradient, (0, *range(2, n + 2)))
    return for_x, for_weight, for_bias


OPERATORS = {
    "aten.convolution.default": _convolution,
    "aten.convolution_backward.default": _convolution_backward,
}
