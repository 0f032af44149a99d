"""What `kernels.policy_gradient` asks of its arguments; the rest of it reads as the maths.

Shapes, dtypes, libraries and devices are looked at always; numbers where they are Python's or
NumPy's; rows never. Tests: `tests/kernels/test_policy_gradient_refusals.py`.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from loopless.arrays import checks
from loopless.arrays.library import NUMBER, Library

_BOOL = np.dtype(np.bool_)
_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
MOST = {_SINGLE: float(np.finfo(_SINGLE).max), _DOUBLE: float(np.finfo(_DOUBLE).max)}
_FLOAT_OR_INT = frozenset({float, int})
_NUMPY_NUMBER = (np.number, np.ndarray)


class Rows(NamedTuple):
    """The arrays of either loss; a plain one has no old log-probabilities."""

    log_probs: Any
    old_log_probs: Any
    advantages: Any
    values: Any
    returns: Any
    entropies: Any
    old_values: Any
    valid: Any


class Numbers(NamedTuple):
    """The numbers of either loss; a plain one has no clips."""

    clip: Any
    value_coefficient: Any
    entropy_coefficient: Any
    value_clip: Any


def plain(function: str, rows: Rows, numbers: Numbers) -> bool:
    """Whether all is right, and NumPy arrays as one would wish them: then nothing else is asked.

    Small batches spend their time in checks; here the common case is told at once.
    """
    log_probs, old_log_probs, advantages, values, returns, entropies, old_values, valid = rows
    if log_probs.__class__ is not np.ndarray or log_probs.dtype not in MOST:
        return False
    clip, value_coefficient, entropy_coefficient, value_clip = numbers
    shape, dtype = log_probs.shape, log_probs.dtype
    if function == "ppo_loss":
        if not _is(old_log_probs, dtype, shape):
            return False
        if clip.__class__ not in _FLOAT_OR_INT or not clip >= 0:
            return False
        if value_clip is not None:
            if value_clip.__class__ not in _FLOAT_OR_INT or not value_clip >= 0:
                return False
            if not _is(old_values, dtype, shape):
                return False
    return (
        _is(advantages, dtype, shape)
        and _is(values, dtype, shape)
        and _is(returns, dtype, shape)
        and _is(entropies, dtype, shape)
        and (valid is None or _is(valid, _BOOL, shape))
        and value_coefficient.__class__ in _FLOAT_OR_INT
        and 0 <= value_coefficient < math.inf
        and entropy_coefficient.__class__ in _FLOAT_OR_INT
        and 0 <= entropy_coefficient < math.inf
    )


def _is(x, dtype, shape) -> bool:
    return x.__class__ is np.ndarray and x.dtype is dtype and x.shape == shape


def of_loss(function: str, rows: Rows, numbers: Numbers) -> tuple[Library, Any, Rows, Numbers]:
    """The library, the dtype of the results, and flags and numbers as the formulae want them."""
    named, valid = rows._asdict(), rows.valid
    del named["valid"]
    if function != "ppo_loss":
        del named["old_log_probs"]
    if numbers.value_clip is None:
        del named["old_values"]
    elif rows.old_values is None:
        raise ValueError(
            f"{function}: value_clip={numbers.value_clip} was given without old_values, which it "
            f"is measured from. Pass the values that the rollout was made with, or drop value_clip."
        )
    first = rows.log_probs
    library = checks.library_or_refuse(function, "log_probs", first)
    arrays = named if valid is None else named | {"valid": valid}
    for name, x in arrays.items():
        _alike(function, name, x, library, first)
    _of_one_shape(function, arrays)
    dtype = first.dtype
    for name, x in named.items():
        if not library.is_float(x):
            raise TypeError(
                f"{function}: {name} has dtype {x.dtype}; it must be float16, bfloat16, float32 or "
                f"float64."
            )
        dtype = library.promote(dtype, x.dtype)
    if valid is not None:
        rows = rows._replace(valid=checks.boolean(function, "valid", valid, library))
    given = {
        name: _number(function, name, x, library, first)
        for name, x in numbers._asdict().items()
        if x is not None or name in _needed(function)
    }
    return library, dtype, rows, numbers._replace(**given)


def _needed(function: str) -> tuple[str, ...]:
    always = "value_coefficient", "entropy_coefficient"
    return ("clip", *always) if function == "ppo_loss" else always


def _alike(function, name, x, library: Library, first) -> None:
    if x.__class__ is not first.__class__:
        checks.same_library(function, name, x, library)
    if not library.same_device(x, first):
        raise checks.devices_differ(function, name, x.device, "log_probs", first.device)


def _of_one_shape(function, named) -> None:
    shape = tuple(named["log_probs"].shape)
    wrong = {name: tuple(x.shape) for name, x in named.items() if tuple(x.shape) != shape}
    if wrong:
        listed = " and ".join([f"{name} has shape {x}" for name, x in wrong.items()])
        raise ValueError(
            f"{function}: {listed}; all arrays must have the shape of log_probs, {shape}. Nothing "
            f"is broadcast or squeezed here."
        )


def _number(function, name, x, library: Library, first) -> Any:
    """`x` if it is a number of at least 0, or a 0-d array, whose value is NumPy's alone to see."""
    if isinstance(x, _NUMPY_NUMBER) and x.ndim == 0:
        x = x.item()
    if isinstance(x, bool):
        raise TypeError(f"{function}: {name} is a bool; it must be a number.")
    if isinstance(x, NUMBER):
        infinite = name in ("clip", "value_clip")  # these may be, to clip nothing
        if not x >= 0 or (x == math.inf and not infinite):
            bound = "at least 0" if infinite else "finite and at least 0"
            raise ValueError(f"{function}: {name} must be {bound}; received {x}.")
        return x
    _alike(function, name, x, library, first)
    if x.ndim:
        raise ValueError(
            f"{function}: {name} has shape {tuple(x.shape)}; it must be one number for all rows, "
            f"a 0-d array at most."
        )
    if library.kind(x) not in "fi":
        raise TypeError(f"{function}: {name} has dtype {x.dtype}; it must be a number.")
    return x
