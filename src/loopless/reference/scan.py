"""First-order affine recurrences, one scalar at a time, and the walk over columns they share."""

import numpy as np
from numpy.lib.array_utils import normalize_axis_index


def columns(shape, time_axis):
    """Walk the columns of an array: its index without time, and the T row indices in time order."""
    axis = normalize_axis_index(time_axis, len(shape))
    for batch in np.ndindex(*shape[:axis], *shape[axis + 1 :]):
        yield batch, [(*batch[:axis], t, *batch[axis:]) for t in range(shape[axis])]


def batch_shape(shape, time_axis):
    """The shape without its time axis."""
    axis = normalize_axis_index(time_axis, len(shape))
    return (*shape[:axis], *shape[axis + 1 :])


def numbers(x, shape):
    """`x` broadcast to `shape`, as Python floats: NumPy's own scalars warn where inf meets inf."""
    return np.broadcast_to(np.asarray(x).astype(np.float64), shape).astype(object)


def affine_scan(a, b, init=None, *, reverse=True, time_axis=0):
    """The affine recurrence, last row first or (`reverse=False`) first row first.

        reverse:  x_t = a_t x_{t+1} + b_t          x_T = init
        forward:  x_t = a_t x_{t−1} + b_t          x_{−1} = init

    `a` broadcasts to the shape of `b`; `init` (0 if None) to that shape without its time axis.
    Where a_t is exactly 0 the recurrence is cut: x_t = b_t, whatever the neighbour holds.
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
    """The backward pass of `affine_scan`: gradients of Σ_t cotangent_t x_t.

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
