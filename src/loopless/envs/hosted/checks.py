"""What environments may return from `step` and `reset`, checked at every step.

An assignment to a NumPy array would take almost anything: it spreads a single number over a whole
observation, wraps 300.7 to 44 for bytes, and reads "False" as true. The loops compare the types of
what they receive with the usual ones, which costs about a tenth of a microsecond, and call the
functions here for whatever is unusual. These return a sound value, or raise EnvFault with the
environment, its step, and what was expected.
"""

from collections.abc import Collection
from typing import Any

import numpy as np

from loopless.envs import EnvFault
from loopless.envs.spaces import Box

# The types that need no further look.
INTEGERS = frozenset({int, *(np.dtype(code).type for code in "bhilqBHILQ")})
NUMBERS = INTEGERS | {float, np.float64, np.float32, np.float16}
FLAGS = frozenset({bool, np.bool_})


def place(name: str, env: Any, step: int) -> str:
    """Return which environment is meant, and at which of its steps, for the start of a sentence."""
    when = "when it was reset" if step < 0 else f"at its step {step}, counted from 0,"
    return f"envs: {name}: environment {env} gave {when}"


def read_observation(where: str, obs: Any, shape: tuple[int, ...], space: Box) -> np.ndarray:
    """Return an observation, or [envs, ...] of them, as an array that `space` can hold.

    Every kind of number becomes float32; bytes are taken only from what cannot wrap.
    """
    try:
        array = np.asarray(obs)
    except (ValueError, TypeError) as error:
        raise EnvFault(f"{where} an observation that is no array: {error}. {_DO}") from None
    if array.shape != shape:
        raise EnvFault(
            f"{where} an observation of shape {array.shape}; its observation_space says {shape}. "
            f"{_DO}"
        )
    casting = "safe" if space.dtype == "uint8" else "same_kind"
    if np.can_cast(array.dtype, space.dtype, casting):
        return array
    if not hasattr(obs, "dtype") and array.dtype.kind == "i" and _are_bytes(array):
        return array  # a list of integers from 0 to 255
    raise EnvFault(
        f"{where} an observation of {array.dtype} numbers; its observation_space holds "
        f"{space.dtype}, which would change them. {_DO}"
    )


def read_number(where: str, obs: Any, known: Collection[int]) -> int:
    """Return a Discrete observation as an integer, which must be one of the `known`."""
    number = _scalar(obs)
    if number is None or number.dtype.kind not in "iu" or int(number) not in known:
        raise EnvFault(
            f"{where} the observation {_show(obs)}; its observation_space has the integers from "
            f"{min(known)} to {max(known)}. {_DO}"
        )
    return int(number)


def read_reward(where: str, reward: Any) -> float:
    """Return a reward as a float."""
    array = None if isinstance(reward, str | bytes | None) else _scalar(reward)
    if array is None or array.dtype.kind not in "buif":
        raise EnvFault(f"{where} the reward {_show(reward)}; one real number is expected. {_DO}")
    return float(array)


def read_flag(where: str, name: str, flag: Any) -> bool:
    """Return a flag as a bool; 0 and 1 are taken for False and True."""
    array = None if isinstance(flag, str | bytes | None) else _scalar(flag)
    if array is None or array.dtype.kind not in "buif" or array.item() not in (0, 1):
        raise EnvFault(f"{where} {name} = {_show(flag)}; True or False is expected. {_DO}")
    return bool(array)


def read_column(where: str, name: str, values: Any, envs: int, kinds: str) -> np.ndarray:
    """Return the rewards or flags of a vector environment as an array [envs] of those `kinds`."""
    array = np.asarray(values)
    if array.shape != (envs,) or array.dtype.kind not in kinds:
        wanted = "bool" if kinds == "b" else "real numbers"
        raise EnvFault(
            f"{where} {name} of {array.dtype} and shape {array.shape}; {wanted} of shape ({envs},) "
            f"are expected. {_DO}"
        )
    return array


_DO = "Correct the environment."


def _scalar(value: Any) -> np.ndarray | None:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):
        return None
    return array if array.shape == () else None


def _are_bytes(array: np.ndarray) -> bool:
    return array.size == 0 or (array.min() >= 0 and array.max() <= 255)


def _show(value: Any) -> str:
    text = repr(value)
    kind = type(value).__name__
    return f"{text if len(text) <= 80 else text[:80] + '…'} ({kind})"
