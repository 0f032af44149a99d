"""The arguments of `kernels.policy_gradient`, and their checks."""

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from loopless.arrays import checks
from loopless.arrays.library import NUMBER

_NUMPY_NUMBER = (np.number, np.ndarray)  # as a tuple: torch.compile cannot trace a union


class Batch(NamedTuple):
    """The arguments of either loss; the plain one has no old log-probabilities and no clips."""

    log_probs: Any
    old_log_probs: Any
    advantages: Any
    values: Any
    returns: Any
    entropies: Any
    old_values: Any
    valid: Any
    clip: Any
    value_coefficient: Any
    entropy_coefficient: Any
    value_clip: Any


_NUMBERS = "clip", "value_coefficient", "entropy_coefficient", "value_clip"


def check(function: str, batch: Batch):
    """Return the library, the dtype of the results, and the batch as the formulas want it."""
    arrays = {name: x for name, x in batch._asdict().items() if name not in (*_NUMBERS, "valid")}
    valid = batch.valid
    required = ["value_coefficient", "entropy_coefficient"]
    if function == "ppo_loss":
        required.append("clip")
    else:
        del arrays["old_log_probs"]
    if batch.value_clip is None:
        del arrays["old_values"]
    elif batch.old_values is None:
        raise ValueError(
            f"{function}: value_clip={batch.value_clip} needs old_values. Pass the values that the "
            f"policy predicted during the rollout, or leave value_clip out."
        )
    arguments = checks.Arguments(function, "log_probs", batch.log_probs)
    shape = batch.log_probs.shape
    everything = arrays if valid is None else arrays | {"valid": valid}
    for name, x in everything.items():
        arguments.alike(name, x)
    other = {name: tuple(x.shape) for name, x in everything.items() if x.shape != shape}
    if other:
        listed = " and ".join([f"{name} has shape {x}" for name, x in other.items()])
        raise ValueError(
            f"{function}: {listed}; all arrays must have the shape of log_probs, {tuple(shape)}. "
            f"Nothing is broadcast or squeezed here."
        )
    dtypes = [arguments.floating(name, x) for name, x in arrays.items()]
    dtype = functools.reduce(arguments.library.promote, dtypes)
    checked = {
        name: check_number(arguments, name, x)
        for name, x in batch._asdict().items()
        if name in _NUMBERS and (x is not None or name in required)
    }
    if valid is not None:
        checked["valid"] = arguments.boolean("valid", valid)
    return arguments.library, dtype, batch._replace(**checked)


def check_number(arguments: checks.Arguments, name: str, x) -> Any:
    """Return `x`, a number of at least 0 or a 0-d array; only NumPy's value is checked."""
    function = arguments.function
    if isinstance(x, _NUMPY_NUMBER) and x.ndim == 0:
        x = x.item()
    if isinstance(x, NUMBER):
        x = checks.real(function, name, x)
        may_be_infinite = name in ("clip", "value_clip")  # to clip nothing
        if not x >= 0 or (x == math.inf and not may_be_infinite):
            bound = "at least 0" if may_be_infinite else "finite and at least 0"
            raise ValueError(f"{function}: {name} must be {bound}; received {x}.")
        return x
    arguments.alike(name, x)
    if x.ndim:
        raise ValueError(
            f"{function}: {name} has shape {tuple(x.shape)}; it must be one number for all "
            f"entries, a 0-d array at most."
        )
    if arguments.library.kind(x) not in "fi":
        raise TypeError(f"{function}: {name} has dtype {x.dtype}; it must be a number.")
    return x
