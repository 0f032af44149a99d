"""NumPy, PyTorch and JAX as a function under judgement wants them: to its arrays, and back.

PyTorch and JAX are imported only for a function that uses them. `evidence` says which one that is,
from the names in its code. Imports NumPy. Tests: `tests/verify/test_plans.py`.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

NAMES = {"numpy": "NumPy", "torch": "PyTorch", "jax": "JAX"}


def plain(function: Callable) -> Callable:
    """The Python function inside of partials, compilers and callable objects."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "py_func", function)  # numba's
    function = inspect.unwrap(function)
    if not isinstance(function, types.FunctionType | types.MethodType) and callable(function):
        return type(function).__call__
    return function


def names_in(code: types.CodeType) -> tuple[set[str], set[str]]:
    """Names and strings that a function's code mentions, inner functions included."""
    names = {*code.co_names, *code.co_varnames, *code.co_freevars}
    strings = {x for x in code.co_consts if isinstance(x, str)}
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            more_names, more_strings = names_in(inner)
            names, strings = names | more_names, strings | more_strings
    return names, strings


def evidence(function: Callable) -> tuple[str, ...]:
    """The libraries that a function mentions, the likeliest first; NumPy if it mentions none."""
    found: list[str] = []
    _collect(plain(function), found, set())
    if found:
        return tuple(name for name in ("jax", "torch", "numpy") if name in found)
    # Nothing but methods of its arguments: then plain numbers, or what the file imports.
    around = getattr(plain(function), "__globals__", {}).values()
    roots = [x.__name__.split(".")[0] for x in around if isinstance(x, types.ModuleType)]
    return ("numpy", *(name for name in ("torch", "jax") if name in roots))


def _collect(function: Any, found: list[str], seen: set[int], depth: int = 3) -> None:
    code = getattr(function, "__code__", None)
    if code is None or id(code) in seen:
        return
    seen.add(id(code))
    known = dict(getattr(function, "__globals__", {}))
    annotations = " ".join(str(x) for x in getattr(function, "__annotations__", {}).values())
    found += [name for name in NAMES if f"{name}." in annotations]
    names, _ = names_in(code)
    for name in names:
        value = known.get(name)
        home = value.__name__ if isinstance(value, types.ModuleType) else ""
        root = home or getattr(value, "__module__", None) or ""
        root = root.split(".")[0]
        if root in NAMES:
            found.append(root)
        elif depth and callable(value) and not isinstance(value, type):
            _collect(plain(value), found, seen, depth - 1)
        if name in NAMES:  # imported inside of the function
            found.append(name)


def array(library: str, x: Any, dtype: str, gradient: bool = False) -> Any:
    """A NumPy array as the library's own, floats in `dtype`; anything else as it is."""
    if not isinstance(x, np.ndarray):
        return x
    x = x.astype(dtype) if x.dtype.kind == "f" else x.copy()
    if library == "torch":
        import torch

        tensor = torch.from_numpy(np.ascontiguousarray(x)).reshape(x.shape)
        return tensor.requires_grad_() if gradient and tensor.is_floating_point() else tensor
    if library == "jax":
        import jax.numpy as jnp

        return jnp.asarray(x)
    return x


def to_numpy(x: Any) -> np.ndarray:
    """Any library's array, list or number as NumPy."""
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        if str(x.dtype) in ("torch.bfloat16", "torch.float16"):
            x = x.float()
        return x.numpy()
    if isinstance(x, list | tuple):
        return np.array([to_numpy(one) for one in x])
    return np.asarray(x)


def outputs(result: Any) -> list[tuple[str | None, Any]]:
    """What a function gave back, one by one, with names where it has given any."""
    if isinstance(result, Mapping):
        return [(str(name), x) for name, x in result.items()]
    if hasattr(result, "_asdict"):
        return list(result._asdict().items())
    if isinstance(result, tuple):
        return [(None, x) for x in result]
    if hasattr(result, "__dataclass_fields__"):
        return [(name, getattr(result, name)) for name in result.__dataclass_fields__]
    return [(None, result)]


def waited(result: Any) -> Any:
    """The result when it is there: JAX gives back arrays that are not computed yet."""
    for _, x in outputs(result):
        if hasattr(x, "block_until_ready"):
            x.block_until_ready()
    return result
