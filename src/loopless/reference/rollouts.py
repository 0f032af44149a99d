"""Conversions of a recorded rollout to the arrays that the estimators take, one step at a time."""

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from loopless.reference.scan import batch_shape, columns


def successor_values(
    values,
    last_values,
    terminated,
    truncated,
    *,
    final_values=None,
    autoreset="same_step",
    previous_end=None,
    valid=None,
    time_axis=0,
):
    """Return the value of each step's true successor, and which rows are real steps.

    `values` is [T, ...] with `last_values` [...] the value of the state after the last row, or
    [T + 1, ...] with `last_values` None. Terminated steps get 0, and win over truncated. With
    [T, ...] and None the last row's flag must make its successor known. Rows with `valid` false
    are padding, and `last_values` follow the last valid row of a column.

        same_step:  V(s'_t) = final_values_t    where truncated: row t+1 is already the new episode
                    V(s'_t) = values_{t+1}      elsewhere; every row is valid
        next_step:  V(s'_t) = values_{t+1}      everywhere: row t+1 is the final observation
                    valid_t = row t−1 did not end an episode

    In next_step mode the invalid rows are dummies (final observation → reset); their flags count
    as false. `previous_end` [...] tells whether the row before row 0 ended, false if None.
    `final_values` is read in same_step mode alone, where truncated and not terminated.
    """
    if autoreset not in ("same_step", "next_step"):
        raise ValueError(
            f"successor_values: unknown autoreset {autoreset!r}; choose same_step or next_step."
        )
    shape = np.shape(terminated)
    terminated = np.asarray(terminated).astype(bool)
    truncated = np.asarray(truncated).astype(bool)
    values = np.asarray(values).astype(np.float64)
    if last_values is not None:
        last_values = np.broadcast_to(
            np.asarray(last_values).astype(np.float64), batch_shape(shape, time_axis)
        )
    previous_end = np.broadcast_to(
        np.asarray(False if previous_end is None else previous_end).astype(bool),
        batch_shape(shape, time_axis),
    )
    if final_values is not None:
        final_values = np.asarray(final_values).astype(np.float64)
    _check_shapes(values, last_values, truncated, final_values, shape, time_axis)

    next_values = np.zeros(shape)
    real = np.ones(shape, bool) if valid is None else np.asarray(valid).astype(bool)
    steps = real.copy()
    value_columns = [rows for _, rows in columns(values.shape, time_axis)]
    for (batch, rows), value_rows in zip(columns(shape, time_axis), value_columns, strict=True):
        ended_before = bool(previous_end[batch])
        for t, i in enumerate(rows):
            if not real[i]:
                ended_before = False
                continue
            is_last = t + 1 == len(rows) or not real[rows[t + 1]]
            following = None
            if is_last and last_values is not None:
                following = last_values[batch]
            elif t + 1 < len(value_rows) and (not is_last or len(value_rows) > len(rows)):
                following = values[value_rows[t + 1]]
            if autoreset == "same_step":
                if not terminated[i] and truncated[i]:
                    if final_values is None:
                        raise ValueError(
                            f"successor_values: row {i} is truncated but final_values is None. "
                            "Pass the values of the final observations, or "
                            'autoreset="next_step" if the rows hold them.'
                        )
                    following = final_values[i]
            elif ended_before:  # a dummy row
                steps[i] = False
                next_values[i] = 0.0 if following is None else following
                ended_before = False
                continue
            else:
                ended_before = bool(terminated[i] or truncated[i])
            if terminated[i]:
                following = 0.0
            if following is None:
                raise ValueError(f"successor_values: no value is known for what follows row {i}.")
            next_values[i] = following
    return next_values, steps


def unlag(x, last, *, time_axis=0):
    """Undo a storage that is one step late: row t of the result is row t + 1 of `x`.

    The last row of the result is `last`, which has the shape of `x` without its time axis. The
    dtype is that of `x`.
    """
    x = np.asarray(x)
    last = np.broadcast_to(np.asarray(last), batch_shape(x.shape, time_axis))
    result = np.empty_like(x)
    for batch, rows in columns(x.shape, time_axis):
        for t, i in enumerate(rows):
            if t + 1 < len(rows):
                result[i] = x[rows[t + 1]]
            else:
                result[i] = last[batch]
    return result


def valid_mask(lengths, steps, *, time_axis=0):
    """Return which rows of ragged columns exist: true where t < length.

    The result has the shape of `lengths` with an axis of `steps` put in at `time_axis`.
    """
    lengths = np.asarray(lengths)
    axis = normalize_axis_index(time_axis, lengths.ndim + 1)
    result = np.zeros((*lengths.shape[:axis], steps, *lengths.shape[axis:]), dtype=bool)
    for batch, rows in columns(result.shape, time_axis):
        for t, i in enumerate(rows):
            result[i] = t < lengths[batch]
    return result


def _check_shapes(values, last_values, truncated, final_values, shape, time_axis):
    axis = normalize_axis_index(time_axis, len(shape))
    rows = shape[axis] + (last_values is None)
    expected = (*shape[:axis], rows, *shape[axis + 1 :])
    if values.shape != expected and (last_values is not None or values.shape != shape):
        raise ValueError(
            f"successor_values: values has shape {values.shape}, expected {expected}: T rows with "
            "last_values, T + 1 rows without."
        )
    if truncated.shape != shape:
        raise ValueError(
            f"successor_values: truncated has shape {truncated.shape}, terminated {shape}."
        )
    if final_values is not None and final_values.shape != shape:
        raise ValueError(
            f"successor_values: final_values has shape {final_values.shape}, terminated {shape}."
        )
