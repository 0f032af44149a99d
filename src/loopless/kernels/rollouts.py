"""Conversions from what code bases store to what estimators need. Loop twins: `reference.rollouts`.

The estimators want post-step flags and the value of each row's true successor. `successor_values`
makes the latter from stored values, whatever the autoreset mode; `unlag` turns flags (and rewards)
that are stored one row late into post-step ones; `valid_mask` makes a mask of lengths.
"""

import numpy as np

from loopless.arrays import checks, scan
from loopless.arrays.dispatch import as_numpy_on_cpu
from loopless.arrays.library import NUMPY
from loopless.arrays.scan.recipe import last_rows, row_numbers

AUTORESETS = ("same_step", "next_step")


@as_numpy_on_cpu
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
    """Return the value of each row's true successor, and which rows are experience at all.

    `values` is [T, ...] and `last_values` [...], the value of the observation after the window; or
    `values` is [T+1, ...] and `last_values` None. With [T, ...] and None, each column's last row
    must have a flag that makes its successor known: terminated, or in same_step mode truncated.
    Where that cannot be looked at, the successor of another last row is NaN. Terminated rows come
    back 0. Rows with `valid` false are padding: they come back 0, and the last row of a column is
    its last valid one.

    same_step: the row after an end already belongs to the next episode, so that a truncated row
    needs V(final observation) from `final_values` [T, ...], which is read nowhere else. Without it
    a truncated row is an error where values can be looked at (NumPy arrays, tensors on the CPU
    that need no gradient) and NaN elsewhere. Every row is valid. (Gymnasium's SAME_STEP, and
    DISABLED with a masked reset.)

    next_step: the row after an end holds the final observation and a reset; its action was
    ignored. So the next row's value is right even at a truncation, and that next row is not valid.
    `previous_end` [...] says which columns ended in the window before. (Gymnasium's NEXT_STEP.)

    Returns (next_values, valid). Loop twin: `reference.rollouts.successor_values`.
    """
    function = "successor_values"
    checks.choice(function, "autoreset", autoreset, AUTORESETS)
    arguments = checks.Arguments(function, "values", values)
    library = arguments.library
    arguments.floats({"values": values})
    xp = library.xp
    axis = arguments.time_axis(time_axis)
    rows_more = last_values is None and _has_one_row_more(function, values, terminated, axis)
    following = values
    if rows_more:
        values, following = _rows(values, axis, None, -1), _rows(values, axis, 1, None)
    arguments.first = values  # without the row that comes after the window
    terminated = arguments.flag("terminated", terminated)
    truncated = arguments.flag("truncated", truncated)
    if valid is not None:
        valid = arguments.flag("valid", valid)
        terminated, truncated = terminated & valid, truncated & valid
    if not rows_more:
        following = _following(arguments, values, last_values, valid, axis)
    last = unknown = None
    if last_values is None and not rows_more:
        last = last_rows(library, values, axis, valid)
        unknown = last & ~terminated
        unknown = unknown if valid is None else unknown & valid
    if autoreset == "next_step":
        if previous_end is None:
            previous_end = _rows(terminated, axis, 0, 1) & False
        else:
            previous_end = _row(arguments, "previous_end", previous_end, axis)
            previous_end = arguments.boolean("previous_end", previous_end)
        dummy = _dummies(library, terminated | truncated, previous_end, axis)
        next_values, steps = xp.where(terminated & ~dummy, 0, following), ~dummy
        if last is not None and unknown is not None:
            next_values, unknown = xp.where(last & dummy, 0, next_values), unknown & ~dummy
    else:
        next_values = _same_step(arguments, values, following, terminated, truncated, final_values)
        steps = terminated | True
        unknown = None if unknown is None else unknown & ~truncated
    if unknown is not None and library is NUMPY and unknown.any():
        raise ValueError(
            f"{function}: {int(unknown.sum())} columns end without a flag that makes their last "
            f"successor known, and last_values is None. Pass the value of the observation after "
            f"the window."
        )
    if valid is not None:
        next_values, steps = xp.where(valid, next_values, 0), steps & valid
    return next_values, steps


def _following(arguments: checks.Arguments, values, last_values, valid, axis: int):
    """Return the next row's value at each row, and `last_values` or NaN at each column's last."""
    library = arguments.library
    if last_values is None:
        last = _rows(values, axis, 0, 1) * float("nan")
    else:
        last = _row(arguments, "last_values", last_values, axis)
        arguments.floating("last_values", last)
        wide = library.promote(values.dtype, last.dtype)
        values, last = library.cast(values, wide), library.cast(last, wide)
    following = _shifted(library, values, last, axis)
    if valid is None:
        return following
    return library.xp.where(last_rows(library, values, axis, valid), last, following)


def _same_step(arguments: checks.Arguments, values, following, terminated, truncated, final_values):
    function, library = arguments.function, arguments.library
    where = library.xp.where
    truncated = truncated & ~terminated
    if final_values is not None:
        arguments.floats({"values": values, "final_values": final_values})
        following = where(truncated, final_values, following)
    elif library is NUMPY:
        if truncated.any():
            raise ValueError(
                f"{function}: {int(truncated.sum())} rows are truncated, and final_values is None. "
                f"Pass the value of each final observation, or autoreset='next_step'."
            )
    else:
        following = where(truncated, float("nan"), following)
    return where(terminated, 0, following)


def _dummies(library, end, previous_end, axis: int):
    """Return which rows follow an end: they hold a final observation, and their flags count not.

    Gymnasium never sets those; if they are set all the same, every other row of a run of flags is
    such a row.
    """
    xp = library.xp
    shifted = _rows(xp.concatenate([previous_end, end], axis), axis, None, end.shape[axis])
    one = library.cast(shifted, xp.float32)
    # dummy_t = shifted_t ∧ ¬dummy_{t−1}: as numbers, d_t = s_t − s_t·d_{t−1}
    return scan.affine(library, -one, one, None, reverse=False, axis=axis) > 0.5


@as_numpy_on_cpu
def unlag(x, last, *, time_axis=0):
    """Return `x` one row earlier: row t is row t+1 of `x`, and the final row is `last` [...].

    Episode-start flags (a row's flag says that its state began an episode) become post-step flags,
    with the flags after the window for `last`. Code that stores a transition's reward beside the
    next state unlags its rewards likewise. Loop twin: `reference.rollouts.unlag`.
    """
    function = "unlag"
    arguments = checks.Arguments(function, "x", x)
    axis = arguments.time_axis(time_axis)
    last = _row(arguments, "last", last, axis)
    if last.dtype != x.dtype:
        raise TypeError(
            f"{function}: last has dtype {last.dtype} but x has dtype {x.dtype}. Convert one of "
            f"them."
        )
    return _shifted(arguments.library, x, last, axis)


@as_numpy_on_cpu
def valid_mask(lengths, steps, *, time_axis=0):
    """Return booleans [steps, ...]: true where t < length, for `lengths` [...] of ragged columns.

    Loop twin: `reference.rollouts.valid_mask`.
    """
    function = "valid_mask"
    arguments = checks.Arguments(function, "lengths", lengths)
    library = arguments.library
    arguments.dense("lengths", lengths)
    if library.kind(lengths) != "i":
        raise TypeError(f"{function}: lengths has dtype {lengths.dtype}; lengths are integers.")
    steps = checks.integer(function, "steps", steps, low=0, high=checks.LONGEST)
    if library is NUMPY and lengths.size and not 0 <= lengths.min() <= lengths.max() <= steps:
        raise ValueError(
            f"{function}: lengths run from {lengths.min()} to {lengths.max()}; they must lie "
            f"between 0 and steps={steps}."
        )
    axis = arguments.time_axis(time_axis, (*lengths.shape, steps))
    lengths = lengths.reshape((*lengths.shape[:axis], 1, *lengths.shape[axis:]))
    return row_numbers(library, lengths, axis, steps) < lengths


def _rows(x, axis: int, start, stop):
    return x[(slice(None),) * axis + (slice(start, stop),)]


def _shifted(library, x, last, axis: int):
    later = library.xp.concatenate([x, last], axis)
    return _rows(later, axis, 1, None) if x.shape[axis] else _rows(later, axis, None, -1)


def _has_one_row_more(function, values, flags, axis: int) -> bool:
    shape, received = tuple(getattr(flags, "shape", ())), tuple(values.shape)
    if len(shape) != len(received) or received[axis] == shape[axis] + 1:
        return True
    if received[axis] != shape[axis]:
        raise ValueError(
            f"{function}: values has shape {received} and the flags {shape}; with last_values=None "
            f"values must have T + 1 rows, one more than the flags, or T. Else pass last_values."
        )
    return False


def _row(arguments: checks.Arguments, name, x, axis):
    """Return `x` with the time axis put back, of length 1, so that it fits beside the data."""
    function, like = arguments.function, arguments.first
    if arguments.library is NUMPY and isinstance(x, np.generic):
        x = np.asarray(x)  # what indexing a 1-D array gives
    arguments.alike(name, x, "the data")
    wanted = tuple(like.shape[:axis]) + tuple(like.shape[axis + 1 :])
    if tuple(x.shape) != wanted:
        raise ValueError(
            f"{function}: {name} has shape {tuple(x.shape)}; beside rows of shape "
            f"{tuple(like.shape)} with time on axis {axis} it must be {wanted}."
        )
    return x.reshape((*wanted[:axis], 1, *wanted[axis:]))
