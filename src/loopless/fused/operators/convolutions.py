"""PyTorch's convolutions and their gradients, by the functions that our own networks use.

PyTorch has the channels first, and the canonical form of `nets.convolution` has them last.
"""

import jax
import jax.numpy as jnp

from loopless.nets.convolution import Window, convolve, input_gradient, kernel_gradient


def _channels_last(x):
    return jnp.moveaxis(x, 1, -1)


def _channels_first(x):
    return jnp.moveaxis(x, -1, 1)


def _kernel(weight):
    """Return a weight [outputs, inputs, *size] as a kernel [*size, inputs, outputs]."""
    return jnp.moveaxis(weight, (0, 1), (-1, -2))


def _window(n, stride, padding, dilation, groups) -> Window:
    stride, padding, dilation = (_fill(values, n) for values in (stride, padding, dilation))
    return Window(stride, tuple((p, p) for p in padding), dilation, groups)


def _forward(x, weight, window):
    return _channels_first(convolve(_channels_last(x), _kernel(weight), window))


def _input_gradient(gradient, weight, space, window):
    args = _channels_last(gradient), _kernel(weight), tuple(space), window
    return _channels_first(input_gradient(*args))


def _weight_gradient(x, gradient, size, window):
    kernel = kernel_gradient(_channels_last(x), _channels_last(gradient), tuple(size), window)
    return jnp.moveaxis(kernel, (-1, -2), (0, 1))


def _fill(values, n):
    """Return one value for each spatial axis; PyTorch may give one for all."""
    return tuple(values) * n if len(values) == 1 else tuple(values)


def _convolution(
    x, weight, bias, stride, padding, dilation, transposed, output_padding, groups
) -> jax.Array:
    n = x.ndim - 2
    window = _window(n, stride, padding, dilation, groups)
    if transposed:
        space = [
            (length - 1) * s - 2 * p + d * (k - 1) + more + 1
            for length, k, s, (p, _), d, more in zip(
                x.shape[2:], weight.shape[2:], window.stride, window.padding, window.dilation,
                _fill(output_padding, n), strict=True,
            )
        ]  # fmt: skip
        y = _input_gradient(x, weight, space, window)
    else:
        y = _forward(x, weight, window)
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
    window = _window(n, stride, padding, dilation, groups)
    for_x = for_weight = for_bias = None
    if output_mask[0] and transposed:
        for_x = _forward(gradient, weight, window)
    elif output_mask[0]:
        for_x = _input_gradient(gradient, weight, x.shape[2:], window)
    if output_mask[1]:
        wide, narrow = (gradient, x) if transposed else (x, gradient)
        for_weight = _weight_gradient(wide, narrow, weight.shape[2:], window)
    if output_mask[2]:
        for_bias = jnp.sum(gradient, (0, *range(2, n + 2)))
    return for_x, for_weight, for_bias


OPERATORS = {
    "aten.convolution.default": _convolution,
    "aten.convolution_backward.default": _convolution_backward,
}
