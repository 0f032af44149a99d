"""First-order affine recurrences, one scalar at a time, and what all loops over time share.

All loops share how arguments are read, and the walk backwards over the valid rows of each column.
The kernel is `kernels.scan`.
"""

import numpy as np
from numpy.lib.array_utils import normalize_axis_index


def columns(shape, time_axis):
    """Yield each column's index without time, and its T row indices in the order of time."""
    axis = normalize_axis_index(time_axis, len(shape))
    for batch in np.ndindex(*shape[:axis], *shape[axis + 1 :]):
        yield batch, [(*batch[:axis], t, *batch[axis:]) for t in range(shape[axis])]


def batch_shape(shape, time_axis):
    """Return the shape without its time axis."""
    axis = normalize_axis_index(time_axis, len(shape))
    return (*shape[:axis], *shape[axis + 1 :])


def numbers(x, shape):
    """Return `x` spread over `shape`, as Python floats: NumPy scalars warn where inf meets inf."""
    return np.broadcast_to(np.asarray(x).astype(np.float64), shape).astype(object)


def backwards(shape, terminated, truncated, valid, time_axis):
    """Yield the valid rows of each column, last to first, each with the row that follows it.

    At an end the row that follows is None.
    """
    terminated, truncated = flags(terminated, shape), flags(truncated, shape)
    valid = np.ones(shape, dtype=bool) if valid is None else flags(valid, shape)
    for _, rows in columns(shape, time_axis):
        for t in reversed(range(len(rows))):
            i = rows[t]
            if not valid[i]:
                continue
            if terminated[i] or truncated[i] or t == len(rows) - 1 or not valid[rows[t + 1]]:
                yield i, None
            else:
                yield i, rows[t + 1]


def bootstrapped(i, rewards, next_values, terminated, gamma):
    """Return r_t + γ_t V(s'_t), or r_t where terminated."""
    if terminated[i]:
        return rewards[i]
    return rewards[i] + gamma[i] * next_values[i]


def data(x, shape):
    """Return an array of exactly this shape, as Python floats."""
    if np.shape(x) != shape:
        raise ValueError(f"expected an array of shape {shape} like the rewards, got {np.shape(x)}.")
    return numbers(x, shape)


def coefficient(x, shape):
    """Return gamma or lambda_ spread over `shape`, as Python floats."""
    if np.ndim(x) not in (0, len(shape)):
        raise ValueError(
            f"gamma and lambda_ are numbers or have as many axes as rewards ({len(shape)}); "
            f"got shape {np.shape(x)}."
        )
    return numbers(x, shape)


def flags(x, shape):
    """Return booleans of exactly this shape."""
    if np.shape(x) != shape:
        raise ValueError(f"expected flags of shape {shape} like the rewards, got {np.shape(x)}.")
    return np.asarray(x).astype(bool)


def affine_scan(a, b, init=None, *, reverse=True, time_axis=0):
    """Return the affine recurrence, last row first or (`reverse=False`) first row first.

        reverse:  x_t = a_t x_{t+1} + b_t          x_T = init
        forward:  x_t = a_t x_{t−1} + b_t          x_{−1} = init

    `a` broadcasts to the shape of `b`; `init` (0 if None) to that shape without its time axis.
    Where a_t is exactly 0 the recurrence is cut: x_t = b_t, whatever the neighbor holds.
    """
    shape = np.shape(b)
    a = numbers(a, shape)
    b = numbers(b, shape)
    init = numbers(0.0 if init is None else init, batch_shape(shape, time_axis))
    result = np.zeros(shape)
    for batch, rows in columns(shape, time_axis):
        x = init[batch]
        for i in rows[::-1] if reverse else rows:
            x = b[i] if a[i] == 0 else a[i] * x + b[i]
            result[i] = x
    return result


def affine_scan_gradients(a, b, init, cotangent, *, reverse=True, time_axis=0):
    """Return the backward pass of `affine_scan`: gradients of Σ_t cotangent_t x_t.

        y_t = cotangent_t + a_{t−1} y_{t−1}        (forward scan: a_{t+1} y_{t+1})
        ∂b_t = y_t
        ∂a_t = y_t x_{t+1}                         (forward scan: y_t x_{t−1})
        ∂init = a_t y_t at the row next to init    (0 if there are no rows)

    ∂a and ∂b have the shape of `b`, ∂init that shape without its time axis, also where `a` or
    `init` were broadcast or None.
    """
    shape = np.shape(b)
    a = numbers(a, shape)
    b = numbers(b, shape)
    cotangent = numbers(cotangent, shape)
    init = numbers(0.0 if init is None else init, batch_shape(shape, time_axis))
    a_bar, b_bar, init_bar = np.zeros(shape), np.zeros(shape), np.zeros(init.shape)
    for batch, rows in columns(shape, time_axis):
        order = rows[::-1] if reverse else rows
        x = init[batch]
        x_before = {}
        for i in order:
            x_before[i] = x
            x = a[i] * x + b[i]
        passed_on = 0.0
        for i in reversed(order):
            y = cotangent[i] + passed_on
            b_bar[i] = y
            a_bar[i] = y * x_before[i]
            passed_on = a[i] * y
        # The row met last is the first of the scan: what it passes on belongs to init.
        init_bar[batch] = passed_on
    return a_bar, b_bar, init_bar
