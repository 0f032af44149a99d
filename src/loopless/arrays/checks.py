"""What every kernel asks of its arguments, in one place.

Shapes, dtypes, libraries and devices are always checked. Values are looked at only where that is
free: Python numbers and NumPy arrays, never a tensor or a traced array.
"""

import math
import operator
from typing import Any

import numpy as np

from loopless.arrays.library import NUMBER, NUMPY, Library, library_of

_NUMPY_NUMBER = (np.number, np.ndarray)
_BOOL = np.dtype(np.bool_)


def integer(function: str, name: str, x, low: float = -math.inf) -> int:
    """`x` as a Python integer of at least `low`."""
    try:
        if isinstance(x, bool):
            raise TypeError
        x = operator.index(x)
    except TypeError:
        raise TypeError(f"{function}: {name} must be a whole number; received {x!r}.") from None
    if x < low:
        raise ValueError(f"{function}: {name} must be at least {low}; received {x}.")
    return x


def time_axis_of(
    function: str, time_axis: int, shape: tuple[int, ...], name: str = "rewards"
) -> int:
    """`time_axis` counted from the front."""
    if time_axis.__class__ is not int:
        time_axis = integer(function, "time_axis", time_axis)
    axes = len(shape)
    if axes == 0:
        raise ValueError(
            f"{function}: {name} has shape (); arrays are [T, ...], time being an axis."
        )
    if not -axes <= time_axis < axes:
        raise ValueError(
            f"{function}: time_axis={time_axis} does not exist in shape {tuple(shape)}."
        )
    return time_axis % axes


def floats(function: str, names: tuple[str, ...], arrays: tuple[Any, ...]) -> tuple[Library, Any]:
    """The library and the common floating dtype of arrays that must agree in all but precision."""
    first = arrays[0]
    library = library_or_refuse(function, names[0], first)
    shape = first.shape
    dtype = None
    for name, x in zip(names, arrays, strict=True):
        if x.__class__ is not first.__class__:
            same_library(function, name, x, library)
        if x.shape != shape:
            raise _shape_mismatch(function, name, x.shape, names[0], shape)
        if dtype is None or x.dtype != dtype:  # NumPy's float64 equals None
            if not library.is_float(x):
                raise TypeError(
                    f"{function}: {name} has dtype {x.dtype}; it must be float16, bfloat16, "
                    f"float32 or float64. Convert it first, for example to your values' dtype."
                )
            dtype = x.dtype if dtype is None else library.promote(dtype, x.dtype)
        if not library.same_device(x, first):
            raise devices_differ(function, name, x.device, names[0], first.device)
    return library, dtype


def flag(function: str, name: str, x, library: Library, like, like_name: str = "rewards"):
    """`x` as booleans of `like`'s shape. Floats are refused, integers but 0 and 1 too."""
    if x.__class__ is not like.__class__:
        same_library(function, name, x, library)
    if x.shape != like.shape:
        raise _shape_mismatch(function, name, x.shape, like_name, like.shape)
    if library is NUMPY and x.dtype == _BOOL:
        return x
    if not library.same_device(x, like):
        raise devices_differ(function, name, x.device, like_name, like.device)
    return boolean(function, name, x, library)


def boolean(function: str, name: str, x, library: Library):
    """`x` as booleans, if it holds booleans or integers 0 and 1."""
    kind = library.kind(x)
    if kind == "b":
        return x
    if kind != "i":
        raise TypeError(
            f"{function}: {name} has dtype {x.dtype}; flags are booleans, or integers 0 and 1. "
            f"Pass {name} != 0 if that is what you mean."
        )
    if library is NUMPY and x.size and not ((x == 0) | (x == 1)).all():
        wrong = x[(x != 0) & (x != 1)].flat[0]
        raise ValueError(f"{function}: {name} holds {wrong}; integer flags are 0 or 1.")
    return x != 0


def number(function: str, name: str, x: Any, library: Library, like, low=0.0, high=1.0) -> Any:
    """`x` if it is a number in [low, high], or an array that spreads over `like`'s shape."""
    if not isinstance(x, NUMBER) and isinstance(x, _NUMPY_NUMBER) and x.ndim == 0:
        x = x.item()
    if isinstance(x, bool):
        raise TypeError(f"{function}: {name} is a bool; it must be a number.")
    if isinstance(x, NUMBER):
        if not low <= x <= high:
            raise _out_of_range(function, name, x, low, high)
        return x
    spreads(function, name, x, library, tuple(like.shape), like)
    if library is NUMPY and x.size and not (low <= x.min() and x.max() <= high):
        raise _out_of_range(function, name, f"values from {x.min()} to {x.max()}", low, high)
    return x


def spreads(function: str, name: str, x, library: Library, shape: tuple[int, ...], like) -> None:
    """Refuse what is not a floating array with one entry or the full length along each axis."""
    same_library(function, name, x, library)
    if x.ndim:  # a 1-D array beside [T, B] data could mean either axis, so it is refused
        fits = x.ndim == len(shape) and all(
            n in (1, m) for n, m in zip(x.shape, shape, strict=True)
        )
        if not fits:
            raise ValueError(
                f"{function}: {name} has shape {tuple(x.shape)}, which does not spread over "
                f"{shape}. Give it one entry or the full length along each axis: for [T, B] data "
                f"[T, 1] varies by step and [1, B] by column."
            )
    if not library.same_device(x, like):
        raise devices_differ(function, name, x.device, "the data", like.device)
    if not library.is_float(x):
        raise TypeError(
            f"{function}: {name} has dtype {x.dtype}; it must be float16, bfloat16, float32 or "
            f"float64."
        )


def library_or_refuse(function: str, name: str, x) -> Library:
    """The library of `x`, which must be an array."""
    library = library_of(x)
    if library is None:
        raise TypeError(
            f"{function}: {name} is a {type(x).__name__}; pass a NumPy array, a PyTorch tensor or "
            f"a JAX array."
        )
    return library


def same_library(function: str, name: str, x, library: Library) -> None:
    """Refuse what is not an array of `library`."""
    if library is NUMPY and x.__class__ is np.ndarray:
        return
    other = library_or_refuse(function, name, x)
    if other is not library:
        raise TypeError(
            f"{function}: {name} is a {other.name} array but the first argument is a "
            f"{library.name} array. Convert one of them; nothing is copied between libraries "
            f"behind your back."
        )


def choice(function: str, name: str, x: str, options: tuple[str, ...]) -> None:
    """Refuse what is not one of `options`."""
    if x not in options:
        raise ValueError(
            f"{function}: {name}={x!r} is unknown; choose one of {', '.join(options)}."
        )


def _out_of_range(function, name, received, low, high) -> ValueError:
    bound = f"at least {low:g}" if math.isinf(high) else f"between {low:g} and {high:g}"
    return ValueError(f"{function}: {name} must be {bound}; received {received}.")


def devices_differ(function, name, device, like_name, like_device) -> ValueError:
    return ValueError(
        f"{function}: {name} is on {device} but {like_name} is on {like_device}. "
        f"Move them to one device."
    )


def _shape_mismatch(function, name, shape, like_name, like_shape) -> ValueError:
    shape, like_shape = tuple(shape), tuple(like_shape)
    hint = f"All arrays must have the shape of {like_name}."
    if sorted(shape) == sorted(like_shape):
        hint = (
            "Arrays are [T, B]; for batch-major data pass all of them as [B, T] with time_axis=1."
        )
    elif len(shape) != len(like_shape) and math.prod(shape) == math.prod(like_shape):
        hint = f"Squeeze or reshape {name} to {like_shape}."
    return ValueError(
        f"{function}: {name} has shape {shape} but {like_name} has shape {like_shape}. {hint}"
    )
