"""Operators that change the size of pictures: pooling, resizing, padding by repetition."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from loopless.fused.operators.dtypes import is_floating

# --- windows: each of a kernel's places is one strided slice of the picture --------------------


def _pair(values, default=None):
    values = default if default is not None and not values else values
    return (values, values) if isinstance(values, int) else (values[0], values[-1])


def _output_sizes(space, kernel, stride, padding, dilation, ceil_mode):
    sizes = []
    for n, k, s, p, d in zip(space, kernel, stride, padding, dilation, strict=True):
        size = (n + 2 * p - d * (k - 1) - 1 + (s - 1 if ceil_mode else 0)) // s + 1
        # A window that would begin in the padding at the far end does not count.
        sizes.append(size - 1 if ceil_mode and (size - 1) * s >= n + p else size)
    return sizes


def _borders(place, length, size, stride, padding, dilation):
    """Return how much lies before, and after, the elements that one place of the kernel meets."""
    first = place * dilation - padding
    return first, length - (first + (size - 1) * stride + 1)


def _windows(x, sizes, kernel, stride, padding, dilation, fill):
    """Yield, for each place of the kernel, the elements that it meets: [..., *sizes]."""
    lead = [(0, 0, 0)] * (x.ndim - 2)
    for places in itertools.product(*map(range, kernel)):
        borders = [
            _borders(*one)
            for one in zip(places, x.shape[-2:], sizes, stride, padding, dilation, strict=True)
        ]
        cut = lax.pad(x, fill, [*lead, *((-low, -high, 0) for low, high in borders)])
        yield cut[..., :: stride[0], :: stride[1]]


def _spread(parts, space, sizes, kernel, stride, padding, dilation):
    """Add up, for each place of the kernel, elements [..., *sizes] where it met them."""
    total = None
    for places, part in zip(itertools.product(*map(range, kernel)), parts, strict=True):
        borders = [
            _borders(*one)
            for one in zip(places, space, sizes, stride, padding, dilation, strict=True)
        ]
        widths = [(low, high, s - 1) for (low, high), s in zip(borders, stride, strict=True)]
        lead = [(0, 0, 0)] * (part.ndim - 2)
        spread = lax.pad(part, jnp.zeros((), part.dtype), [*lead, *widths])
        total = spread if total is None else total + spread
    return total


def _flat_positions(places, space, sizes, stride, padding, dilation):
    """Return the flat positions in the picture that one place of the kernel meets: [*sizes]."""
    rows, columns = (
        np.arange(size) * s + place * d - p
        for place, size, s, p, d in zip(places, sizes, stride, padding, dilation, strict=True)
    )
    return rows[:, None] * space[1] + columns


def _max_pool(x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False):
    kernel, padding, dilation = _pair(kernel), _pair(padding), _pair(dilation)
    stride = _pair(stride, kernel)
    sizes = _output_sizes(x.shape[-2:], kernel, stride, padding, dilation, ceil_mode)
    lowest = -jnp.inf if is_floating(x) else jnp.iinfo(x.dtype).min
    fill = jnp.asarray(lowest, x.dtype)
    windows = jnp.stack(list(_windows(x, sizes, kernel, stride, padding, dilation, fill)))
    positions = np.stack(
        [
            _flat_positions(places, x.shape[-2:], sizes, stride, padding, dilation)
            for places in itertools.product(*map(range, kernel))
        ]
    )
    best = jnp.argmax(windows, 0)
    indices = jnp.zeros(best.shape, jnp.int64)
    for place, position in enumerate(positions):
        indices = jnp.where(best == place, jnp.asarray(position, jnp.int64), indices)
    return jnp.max(windows, 0), indices


def _max_pool_backward(gradient, x, kernel, stride, padding, dilation, ceil_mode, indices):
    kernel, padding, dilation = _pair(kernel), _pair(padding), _pair(dilation)
    stride, space, sizes = _pair(stride, kernel), x.shape[-2:], gradient.shape[-2:]
    zero = jnp.zeros((), gradient.dtype)
    parts = (
        jnp.where(
            indices
            == jnp.asarray(_flat_positions(places, space, sizes, stride, padding, dilation)),
            gradient,
            zero,
        )
        for places in itertools.product(*map(range, kernel))
    )
    return _spread(parts, space, sizes, kernel, stride, padding, dilation)


def _divisors(space, sizes, kernel, stride, padding, include_pad, override, dtype):
    """Return what the sum of each window is divided by."""
    if override is not None:
        return jnp.asarray(override, dtype)
    counts = []
    for n, size, k, s, p in zip(space, sizes, kernel, stride, padding, strict=True):
        starts = np.arange(size) * s - p
        ends = np.minimum(starts + k, n + p)
        counts.append(ends - starts if include_pad else np.minimum(ends, n) - np.maximum(starts, 0))
    return jnp.asarray(counts[0][:, None] * counts[1], dtype)


def _avg_pool(
    x,
    kernel,
    stride=(),
    padding=0,
    ceil_mode=False,
    count_include_pad=True,
    divisor_override=None,
):
    kernel, padding, ones = _pair(kernel), _pair(padding), (1, 1)
    stride, space = _pair(stride, kernel), x.shape[-2:]
    sizes = _output_sizes(space, kernel, stride, padding, ones, ceil_mode)
    windows = _windows(x, sizes, kernel, stride, padding, ones, jnp.zeros((), x.dtype))
    total = sum(windows, jnp.zeros((), x.dtype))
    return total / _divisors(
        space, sizes, kernel, stride, padding, count_include_pad, divisor_override, x.dtype
    )


def _avg_pool_backward(
    gradient, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override
):
    kernel, padding, ones = _pair(kernel), _pair(padding), (1, 1)
    stride, space, sizes = _pair(stride, kernel), x.shape[-2:], gradient.shape[-2:]
    part = gradient / _divisors(
        space, sizes, kernel, stride, padding, count_include_pad, divisor_override, x.dtype
    )
    parts = itertools.repeat(part, kernel[0] * kernel[1])
    return _spread(parts, space, sizes, kernel, stride, padding, ones)


# --- matrices: each spatial axis is multiplied by a matrix [outputs, inputs] -------------------


def _resize(x, matrices):
    """Multiply the last axes of x, one for each matrix, by these."""
    for axis, matrix in zip(range(-len(matrices), 0), matrices, strict=True):
        product = jnp.matmul(jnp.moveaxis(x, axis, -1), jnp.asarray(matrix.T, x.dtype))
        x = jnp.moveaxis(product, -1, axis)
    return x


def _mean_matrix(inputs: int, outputs: int) -> np.ndarray:
    starts = np.arange(outputs) * inputs // outputs
    ends = -(-(np.arange(1, outputs + 1) * inputs) // outputs)
    places = np.arange(inputs)
    inside = (places >= starts[:, None]) & (places < ends[:, None])
    return inside / (ends - starts)[:, None]


def _adaptive_avg_pool(x, sizes):
    return _resize(x, [_mean_matrix(n, m) for n, m in zip(x.shape[-2:], sizes, strict=True)])


def _adaptive_avg_pool_backward(gradient, x):
    pairs = zip(x.shape[-2:], gradient.shape[-2:], strict=True)
    return _resize(gradient, [_mean_matrix(n, m).T for n, m in pairs])


def _one_hot(positions: np.ndarray, inputs: int) -> np.ndarray:
    return positions[:, None] == np.arange(inputs)


def _nearest_matrix(inputs: int, outputs: int, scale: float | None) -> np.ndarray:
    # PyTorch computes the positions in float32.
    ratio = np.float32(inputs / outputs if scale is None else 1 / scale)
    positions = np.floor(np.arange(outputs, dtype=np.float32) * ratio).astype(np.int64)
    return _one_hot(np.minimum(positions, inputs - 1), inputs)


def _nearest_backward(gradient, sizes, input_size, scale_h=None, scale_w=None):
    sides = zip(input_size[-2:], sizes, (scale_h, scale_w), strict=True)
    return _resize(gradient, [_nearest_matrix(*side).T for side in sides])


def _linear_matrix(inputs: int, outputs: int, corners: bool, scale: float | None) -> np.ndarray:
    places = np.arange(outputs, dtype=np.float64)
    if corners:
        positions = places * ((inputs - 1) / (outputs - 1) if outputs > 1 else 0)
    else:
        ratio = inputs / outputs if scale is None else 1 / scale
        positions = np.maximum((places + 0.5) * ratio - 0.5, 0)
    low = np.minimum(np.floor(positions).astype(np.int64), inputs - 1)
    share = (positions - low)[:, None]
    high = np.minimum(low + 1, inputs - 1)
    return _one_hot(low, inputs) * (1 - share) + _one_hot(high, inputs) * share


def _bilinear(x, sizes, align_corners, scale_h=None, scale_w=None):
    sides = zip(x.shape[-2:], sizes, (align_corners,) * 2, (scale_h, scale_w), strict=True)
    return _resize(x, [_linear_matrix(*side) for side in sides])


def _bilinear_backward(gradient, sizes, input_size, align_corners, scale_h=None, scale_w=None):
    sides = zip(input_size[-2:], sizes, (align_corners,) * 2, (scale_h, scale_w), strict=True)
    return _resize(gradient, [_linear_matrix(*side).T for side in sides])


def _replication_pad_backward(gradient, x, padding) -> jax.Array:
    """Padding by repetition reads the nearest element; `padding` begins with the last axis."""
    matrices = []
    for i in range(len(padding) // 2):
        inputs, outputs = x.shape[-1 - i], gradient.shape[-1 - i]
        positions = np.clip(np.arange(outputs) - padding[2 * i], 0, inputs - 1)
        matrices.insert(0, _one_hot(positions, inputs).T)
    return _resize(gradient, matrices)


OPERATORS = {
    "aten.max_pool2d_with_indices.default": _max_pool,
    "aten.max_pool2d_with_indices_backward.default": _max_pool_backward,
    "aten.avg_pool2d.default": _avg_pool,
    "aten.avg_pool2d_backward.default": _avg_pool_backward,
    "aten._adaptive_avg_pool2d.default": _adaptive_avg_pool,
    "aten._adaptive_avg_pool2d_backward.default": _adaptive_avg_pool_backward,
    "aten.upsample_nearest2d_backward.default": _nearest_backward,
    "aten.upsample_bilinear2d.default": _bilinear,
    "aten.upsample_bilinear2d_backward.default": _bilinear_backward,
    "aten.replication_pad1d_backward.default": _replication_pad_backward,
    "aten.replication_pad2d_backward.default": _replication_pad_backward,
}
