"""How kernels check their arguments: one object for each call, which every kernel uses.

Shapes, dtypes, libraries and devices are always checked. Values are looked at only where that is
free: Python numbers and NumPy arrays, and flags and actions of tensors on the CPU, never a traced
array. Wrong types raise
TypeError, wrong values ValueError; a message says what was wrong, what was received, what to do.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from loopless.arrays.dispatch import on_host
from loopless.arrays.library import NUMBER, NUMPY, Library, library_of

_NUMPY_NUMBER = (np.number, np.ndarray)
_BOOL = np.dtype(np.bool_)
LONGEST = 2**31 - 1  # of an axis
_FLOATS = "it must be float16, bfloat16, float32 or float64."


def choice(function: str, name: str, x: str, options: tuple[str, ...]) -> None:
    """Refuse what is not one of `options`."""
    if x not in options:
        raise ValueError(
            f"{function}: {name}={x!r} is unknown; choose one of {', '.join(options)}."
        )


def integer(function: str, name: str, x, low: float = -math.inf, high: float = math.inf) -> int:
    """Return `x` as a Python integer from `low` to `high`."""
    try:
        if isinstance(x, bool):
            raise TypeError
        x = operator.index(x)
    except TypeError:
        raise TypeError(f"{function}: {name} must be a whole number; received {x!r}.") from None
    if x < low:
        raise ValueError(f"{function}: {name} must be at least {low}; received {x}.")
    if x > high:
        raise ValueError(f"{function}: {name} must be at most {high:,}; received {_short(x)}.")
    return x


def real(function: str, name: str, x) -> float:
    """Return `x` as a Python number; its value is the caller's to check."""
    if isinstance(x, np.number):
        x = x.item()
    if isinstance(x, bool) or not isinstance(x, NUMBER):
        raise TypeError(f"{function}: {name} is a {type(x).__name__}; it must be a number.")
    return as_float(function, name, x)


def as_float(function: str, name: str, x: float) -> float:
    """Return a Python number as a float; ValueError for an integer that is beyond all floats."""
    try:
        return float(x)
    except OverflowError:
        raise ValueError(f"{function}: {name} is {_short(x)}, which no float holds.") from None


def flag(function: str, name: str, x) -> bool:
    """Return `x`, which must be True or False."""
    if not isinstance(x, bool | np.bool_):
        raise TypeError(f"{function}: {name} must be True or False; received {x!r}.")
    return bool(x)


def _short(x: Any) -> str:
    return f"{x:,}" if abs(x) < 10**30 else f"an integer of {x.bit_length():,} bits"


def positive(function: str, name: str, x) -> float:
    """Return `x` as a Python number above 0, which may be infinite."""
    x = real(function, name, x)
    if not x > 0:
        raise ValueError(f"{function}: {name} must be positive; received {x}.")
    return x


def is_scalar_array(x) -> bool:
    """Return whether `x` is a 0-d array of JAX: a number that a compiled program may take."""
    library = library_of(x)
    return library is not None and library.name == "jax" and x.ndim == 0


def is_array(x, dtype: np.dtype, shape: tuple[int, ...]) -> bool:
    """Return whether `x` is a plain NumPy array of exactly this dtype and shape.

    For the fast paths of the common case, since small batches spend their time in checks. The dtype
    is compared by identity, so that it must be one of NumPy's own objects.
    """
    return x.__class__ is np.ndarray and x.dtype is dtype and x.shape == shape


class Arguments:
    """Checks the arguments of one call of a function against its first array."""

    def __init__(self, function: str, name: str, first) -> None:
        self.function, self.name, self.first = function, name, first
        self.problems: list[Exception] = []
        self.library: Library = self._library(name, first)
        if not self.library.is_dense(first) and first.device.type != "meta":
            self.dense(name, first)  # one on the device meta is compared with the others first

    def attempt(self, check: Callable, *args, **keywords) -> Any:
        """Return the result of `check`; if it raises, remember the error for `refuse`."""
        try:
            return check(*args, **keywords)
        except (TypeError, ValueError) as problem:
            self.problems.append(problem)

    def refuse(self) -> None:
        """Raise one error that lists all problems remembered so far, if there are any."""
        problems = self.problems
        if problems:
            types = all(isinstance(problem, TypeError) for problem in problems)
            text = "; ".join(str(x).removeprefix(f"{self.function}: ") for x in problems)
            raise (TypeError if types else ValueError)(f"{self.function}: {text}")

    def time_axis(self, time_axis: int, shape: tuple[int, ...] | None = None) -> int:
        """Return `time_axis` counted from the front; `shape` is the first array's if left out."""
        if time_axis.__class__ is not int:
            time_axis = integer(self.function, "time_axis", time_axis)
        shape = self.first.shape if shape is None else shape
        axes = len(shape)
        if axes == 0:
            raise ValueError(
                f"{self.function}: {self.name} has shape (); arrays are [T, ...], time being an "
                f"axis."
            )
        if not -axes <= time_axis < axes:
            raise ValueError(
                f"{self.function}: time_axis={time_axis} does not exist in shape {tuple(shape)}."
            )
        return time_axis % axes

    def floats(self, arrays: dict[str, Any]) -> Any:
        """Return the widest dtype of floating arrays that must have the first one's shape."""
        first, library = self.first, self.library
        dtype = None
        for name, x in arrays.items():
            if x.__class__ is not first.__class__:
                self.same_library(name, x)
            if x.shape != first.shape:
                raise self._other_shape(name, x.shape)
            if dtype is None or x.dtype != dtype:  # NumPy's dtype float64 == None is true
                if not library.is_float(x):
                    raise TypeError(
                        f"{self.function}: {name} has dtype {x.dtype}; {_FLOATS} Convert it first, "
                        f"for example to your values' dtype."
                    )
                dtype = x.dtype if dtype is None else library.promote(dtype, x.dtype)
            self._same_device(name, x)
        return dtype

    def flag(self, name: str, x) -> Any:
        """Return `x` as booleans of the first array's shape."""
        if x.__class__ is not self.first.__class__:
            self.same_library(name, x)
        if x.shape != self.first.shape:
            raise self._other_shape(name, x.shape)
        if self.library is NUMPY and x.dtype == _BOOL:
            return x
        self._same_device(name, x)
        return self.boolean(name, x)

    def boolean(self, name: str, x) -> Any:
        """Return `x` as booleans, if it holds booleans, or 0 and 1 as integers or floats.

        Where values cannot be looked at, whatever is not 0 is true.
        """
        kind = self.library.kind(x)
        if kind == "b":
            return x
        if kind not in "if":
            raise TypeError(
                f"{self.function}: {name} has dtype {x.dtype}; flags are booleans, or 0 and 1 as "
                f"integers or floats."
            )
        values = on_host(self.library, x)
        if values is not None:
            wrong = (values[0] != 0) & (values[0] != 1)  # NaN is neither
            if wrong.any():
                raise ValueError(
                    f"{self.function}: {name} holds {values[0][wrong].flat[0]}; flags are 0 or 1. "
                    f"Pass {name} != 0 if that is what you mean."
                )
        return x != 0

    def number(self, name: str, x: Any, low=0.0, high=1.0) -> Any:
        """Return `x`: a number in [low, high], or an array that spreads over the first one."""
        if not isinstance(x, NUMBER) and isinstance(x, _NUMPY_NUMBER) and x.ndim == 0:
            x = x.item()
        if isinstance(x, bool):
            raise TypeError(f"{self.function}: {name} is a bool; it must be a number.")
        if isinstance(x, NUMBER):
            if not low <= x <= high:
                raise self._out_of_range(name, x, low, high)
            return x if x.__class__ is float else as_float(self.function, name, x)
        self.spreads(name, x, tuple(self.first.shape))
        if self.library is NUMPY and x.size and not (low <= x.min() and x.max() <= high):
            raise self._out_of_range(name, f"values from {x.min()} to {x.max()}", low, high)
        return x

    def spreads(self, name: str, x, shape: tuple[int, ...]) -> None:
        """Refuse all but floating arrays with one entry or all along each axis of `shape`."""
        self.same_library(name, x)
        if x.ndim:  # a 1-D array beside [T, B] data could mean either axis, so it is refused
            fits = x.ndim == len(shape) and all(
                n in (1, m) for n, m in zip(x.shape, shape, strict=True)
            )
            if not fits:
                raise ValueError(
                    f"{self.function}: {name} has shape {tuple(x.shape)}, which does not "
                    f"broadcast to {shape}. Give it one entry or the full length along each axis: "
                    f"for [T, B] data [T, 1] varies by step and [1, B] by column."
                )
        self._same_device(name, x, "the data")
        self.floating(name, x)

    def floating(self, name: str, x) -> Any:
        """Return the dtype of `x`, which must be floating."""
        if not self.library.is_float(x):
            raise TypeError(f"{self.function}: {name} has dtype {x.dtype}; {_FLOATS}")
        return x.dtype

    def actions(self, name: str, x) -> Any:
        """Return actions as integers or booleans; floats must be whole.

        Where values cannot be looked at, a float that is not whole becomes −1, which is no action.
        """
        library = self.library
        if library.kind(x) in "ib":
            return x
        if library.kind(x) != "f":
            raise TypeError(
                f"{self.function}: {name} has dtype {x.dtype}; actions are integers, or whole "
                f"numbers as floats."
            )
        xp = library.xp
        x = library.constant(x)
        if library is NUMPY or library.name == "torch":
            x = library.cast(x, xp.float64)  # holds every action; a half does not hold 2049
        values = on_host(library, x)
        whole = xp.floor(x) == x
        if values is not None:
            wrong = (np.floor(values[0]) != values[0]) | (abs(values[0]) > 2**53)
            if wrong.any():
                raise ValueError(
                    f"{self.function}: {name} holds {values[0][wrong].flat[0]}; actions are whole "
                    f"numbers."
                )
        return library.cast(xp.where(whole, x, -1), xp.int32 if library.name == "jax" else xp.int64)

    def alike(self, name: str, x, like_name: str = "") -> None:
        """Refuse what is not an array of the same library on the same device."""
        if x.__class__ is not self.first.__class__:
            self.same_library(name, x)
        self._same_device(name, x, like_name)

    def shaped(self, name: str, x, shape, like_name: str = "", like=None) -> None:
        """Refuse what `alike` refuses, and other shapes than `shape`, which follows from `like`.

        `like` is the first array if left out.
        """
        self.alike(name, x, like_name)
        if x.shape != shape:
            raise self.misshapen(name, x, tuple(shape), like_name, like)

    def misshapen(self, name: str, x, wanted, like_name: str = "", like=None) -> ValueError:
        """Return the error for an array whose shape does not follow from that of `like`."""
        shape = tuple((self.first if like is None else like).shape)
        wanted = str(wanted).replace("'", "")  # axes of any length are given as letters
        return ValueError(
            f"{self.function}: {name} has shape {tuple(x.shape)}; beside {like_name or self.name} "
            f"of shape {shape} it must be {wanted}. Nothing is broadcast or squeezed here."
        )

    def same_library(self, name: str, x) -> None:
        """Refuse what is not an array of the first array's library."""
        if self.library is NUMPY and x.__class__ is np.ndarray:
            return
        other = self._library(name, x)
        if other is not self.library:
            raise TypeError(
                f"{self.function}: {name} is a {other.name} array but the first argument is a "
                f"{self.library.name} array. Convert one of them; nothing is copied between "
                f"libraries behind your back."
            )

    def _library(self, name: str, x) -> Library:
        library = library_of(x)
        if library is None:
            raise TypeError(
                f"{self.function}: {name} is a {type(x).__name__}; pass a NumPy array, a PyTorch "
                f"tensor or a JAX array."
            )
        return library

    def dense(self, name: str, x) -> None:
        """Refuse a tensor that has no value in memory for each of its entries."""
        if not self.library.is_dense(x):
            raise TypeError(
                f"{self.function}: {name} is a sparse tensor, or one without values (on the device "
                f"meta); pass a dense one that has values."
            )

    def _same_device(self, name: str, x, like_name: str = "") -> None:
        if not self.library.same_device(x, self.first):
            raise ValueError(
                f"{self.function}: {name} is on {x.device} but {like_name or self.name} is on "
                f"{self.first.device}. Move them to one device."
            )
        self.dense(name, x)

    def _out_of_range(self, name: str, received, low: float, high: float) -> ValueError:
        bound = f"at least {low:g}" if math.isinf(high) else f"between {low:g} and {high:g}"
        return ValueError(f"{self.function}: {name} must be {bound}; received {received}.")

    def _other_shape(self, name: str, shape) -> ValueError:
        shape, wanted = tuple(shape), tuple(self.first.shape)
        hint = f"All arrays must have the shape of {self.name}."
        if sorted(shape) == sorted(wanted):
            hint = (
                "Arrays are [T, B]; for batch-major data pass all of them as [B, T] with "
                "time_axis=1."
            )
        elif len(shape) != len(wanted) and math.prod(shape) == math.prod(wanted):
            hint = f"Squeeze or reshape {name} to {wanted}."
        return ValueError(
            f"{self.function}: {name} has shape {shape} but {self.name} has shape {wanted}. {hint}"
        )
