"""Conversions from what code bases store to what estimators need. Loop twins: `reference.rollouts`.

The estimators want post-step flags and the value of each row's true successor. `successor_values`
makes the latter from stored values, whatever the autoreset mode; `unlag` turns flags (and rewards)
that are stored one row late into post-step ones; `valid_mask` makes a mask of lengths.
"""

import numpy as np

from loopless.arrays import checks, scan
from loopless.arrays.dispatch import as_numpy_on_cpu
from loopless.arrays.library import NUMPY
from loopless.arrays.scan.recipe import row_numbers

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
    time_axis=0,
):
    """Return the value of each row's true successor, and which rows are experience at all.

    `values` is [T, ...] and `last_values` [...], the value of the observation after the window; or
    `values` is [T+1, ...] and `last_values` None. Terminated rows come back 0.

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
    if last_values is None:
        _check_one_row_more(function, values, terminated, axis)
        values, following = _rows(values, axis, None, -1), _rows(values, axis, 1, None)
    else:
        last_values = _row(arguments, "last_values", last_values, axis)
        arguments.floating("last_values", last_values)
        wide = library.promote(values.dtype, last_values.dtype)
        following = _shifted(
            library, library.cast(values, wide), library.cast(last_values, wide), axis
        )
    arguments.first = values  # without the row that comes after the window
    terminated = arguments.flag("terminated", terminated)
    truncated = arguments.flag("truncated", truncated)
    if autoreset == "next_step":
        if previous_end is None:
            previous_end = _rows(terminated, axis, 0, 1) & False
        else:
            previous_end = _row(arguments, "previous_end", previous_end, axis)
            previous_end = arguments.boolean("previous_end", previous_end)
        return _next_step(library, following, terminated, truncated, previous_end, axis)
    truncated = truncated & ~terminated
    if final_values is not None:
        arguments.floats({"values": values, "final_values": final_values})
        following = xp.where(truncated, final_values, following)
    elif library is NUMPY:
        if truncated.any():
            raise ValueError(
                f"{function}: {int(truncated.sum())} rows are truncated, and final_values is None. "
                f"Pass the value of each final observation, or autoreset='next_step'."
            )
    else:
        following = xp.where(truncated, float("nan"), following)
    return xp.where(terminated, 0, following), terminated | True


def _next_step(library, following, terminated, truncated, previous_end, axis):
    # An end makes the row after it a dummy, whose own flags do not count. Gymnasium never sets
    # them; if they are set all the same, every other row of a run of flags is a dummy.
    xp = library.xp
    end = terminated | truncated
    shifted = _rows(xp.concatenate([previous_end, end], axis), axis, None, end.shape[axis])
    one = library.cast(shifted, xp.float32)
    # dummy_t = shifted_t ∧ ¬dummy_{t−1}: as numbers, d_t = s_t − s_t·d_{t−1}
    dummy = scan.affine(library, -one, one, None, reverse=False, axis=axis) > 0.5
    return xp.where(terminated & ~dummy, 0, following), ~dummy


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


def _check_one_row_more(function, values, flags, axis: int) -> None:
    shape, received = tuple(getattr(flags, "shape", ())), tuple(values.shape)
    if len(shape) == len(received) and received[axis] != shape[axis] + 1:
        raise ValueError(
            f"{function}: values has shape {received} and the flags {shape}; with last_values=None "
            f"values must have T + 1 rows, one more than the flags. Else pass last_values."
        )


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
