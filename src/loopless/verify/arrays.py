"""Make the arrays that a user's function wants: of the right library, in the right layout.

`library_names` says which library a function uses, from the names in its code. PyTorch and JAX are
imported only for a function that uses them. A `Layout` brings a case's arrays ([T, B] with time
first, or [B]) into the shape that a function wants, and its answers back. With a layout that is
`split`, the function is called once for each column or sample.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

NAMES = {"numpy": "NumPy", "torch": "PyTorch", "jax": "JAX"}

# --- libraries


def python_function(function: Callable) -> Callable:
    """Return the Python function inside partials, compiled functions and callable objects."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "py_func", function)  # Numba's
    function = inspect.unwrap(function)
    if not isinstance(function, types.FunctionType | types.MethodType) and callable(function):
        return type(function).__call__
    return function


def names_in(code: types.CodeType) -> tuple[set[str], set[str]]:
    """Return the names and the strings in a function's code, inner functions included."""
    names = {*code.co_names, *code.co_varnames, *code.co_freevars}
    strings = {x for x in code.co_consts if isinstance(x, str)}
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            more_names, more_strings = names_in(inner)
            names, strings = names | more_names, strings | more_strings
    return names, strings


def library_names(function: Callable) -> tuple[str, ...]:
    """Return the libraries that a function mentions, the likeliest first; NumPy if none."""
    mentioned: list[str] = []
    _collect(python_function(function), mentioned, set())
    if mentioned:
        return tuple(name for name in ("jax", "torch", "numpy") if name in mentioned)
    # It only calls methods of its arguments: try NumPy, then what its module imports.
    around = getattr(python_function(function), "__globals__", {}).values()
    roots = [x.__name__.split(".")[0] for x in around if isinstance(x, types.ModuleType)]
    return ("numpy", *(name for name in ("torch", "jax") if name in roots))


def _collect(function: Any, mentioned: list[str], visited: set[int], depth: int = 3) -> None:
    code = getattr(function, "__code__", None)
    if code is None or id(code) in visited:
        return
    visited.add(id(code))
    scope = dict(getattr(function, "__globals__", {}))
    annotations = " ".join(str(x) for x in getattr(function, "__annotations__", {}).values())
    mentioned += [name for name in NAMES if f"{name}." in annotations]
    names, _ = names_in(code)
    for name in names:
        value = scope.get(name)
        home = value.__name__ if isinstance(value, types.ModuleType) else ""
        root = home or getattr(value, "__module__", None) or ""
        root = root.split(".")[0]
        if root in NAMES:
            mentioned.append(root)
        elif depth and callable(value) and not isinstance(value, type):
            _collect(python_function(value), mentioned, visited, depth - 1)
        if name in NAMES:  # imported inside of the function
            mentioned.append(name)


def to_library(library: str, x: Any, dtype: str, gradient: bool = False) -> Any:
    """Convert a NumPy array to the library's, floats in `dtype`; return anything else as it is."""
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
    """Return any library's array, list or number as NumPy."""
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        if str(x.dtype) in ("torch.bfloat16", "torch.float16"):
            x = x.float()
        return x.numpy()
    if isinstance(x, list | tuple):
        return np.array([to_numpy(item) for item in x])
    return np.asarray(x)


def outputs(result: Any) -> list[tuple[str | None, Any]]:
    """Split a function's result into its outputs, with names where it has any."""
    if isinstance(result, Mapping):
        return [(str(name), x) for name, x in result.items()]
    if hasattr(result, "_asdict"):
        return list(result._asdict().items())
    if isinstance(result, tuple):
        return [(None, x) for x in result]
    if hasattr(result, "__dataclass_fields__"):
        return [(name, getattr(result, name)) for name in result.__dataclass_fields__]
    return [(None, result)]


def wait(result: Any) -> Any:
    """Return the result once it is computed: JAX returns arrays that are not ready yet."""
    for _, x in outputs(result):
        if hasattr(x, "block_until_ready"):
            x.block_until_ready()
    return result


# --- layouts

OVER_TIME = ("rows", "flags", "rows+1")
ENDS = ("last", "last_flag", "last_count")
SAMPLES = ("vector", "vector_flags", "actions")


@dataclass(frozen=True)
class Layout:
    """How arrays are passed (`put`) and answers read (`get`).

    The last argument of `put` says whether the last row keeps its time axis.
    """

    name: str
    words: str
    put: Callable[[str, np.ndarray, bool], Any]
    get: Callable[[str, np.ndarray], np.ndarray] = lambda kind, y: y
    split: bool = False
    lists: bool = False


def _put_time(kind, x, keep):
    return x[None] if keep and kind in ENDS else x


def _put_batch(kind, x, keep):
    if kind in OVER_TIME:
        return np.ascontiguousarray(x.T)
    return x[:, None] if keep and kind in ENDS else x


def _get_batch(kind, y):
    return y.T if kind == "rows" and y.ndim == 2 else y


def _put_trailing(kind, x, keep):
    if kind in OVER_TIME:
        return np.ascontiguousarray(x.T)[..., None]
    return x[:, None] if kind in ENDS and not keep else x


def _get_trailing(kind, y):
    return y[..., 0].T if kind == "rows" and y.ndim == 3 and y.shape[-1] == 1 else y


def _put_single(kind, x, keep):
    """Pass one column or sample, which arrives here without its batch axis."""
    if kind in (*ENDS, *SAMPLES):
        return np.reshape(x, (1,)) if keep else x.item()
    return x


def _put_list(kind, x, keep):
    x = _put_single(kind, x, keep)
    return x.tolist() if isinstance(x, np.ndarray) else x


def _put_column(kind, x, keep):
    return x[:, None] if kind in SAMPLES else x


def _get_column(kind, y):
    return y[:, 0] if kind == "vector" and y.ndim == 2 and y.shape[1] == 1 else y


TIME = Layout("time", "[T, B] arrays", _put_time)
OF_TIME = (
    TIME,
    Layout("batch", "[B, T] arrays", _put_batch, _get_batch),
    Layout("trailing", "[B, T, 1] arrays", _put_trailing, _get_trailing),
    Layout("single", "one environment at a time", _put_single, split=True),
    Layout("lists", "lists, one environment at a time", _put_list, split=True, lists=True),
)
OF_ROWS = (
    Layout("rows", "[B] arrays", lambda kind, x, keep: x),
    Layout("columns", "[B, 1] arrays", _put_column, _get_column),
    Layout("sample", "one sample at a time", _put_single, split=True),
)
LAYOUTS = {layout.name: layout for layout in (*OF_TIME, *OF_ROWS)}


def split(arguments: Mapping[str, tuple[str, Any]]) -> list[dict[str, tuple[str, Any]]]:
    """Split arguments (kind, array) into the arguments for each column, or for each sample."""
    kind, x = next((k, x) for k, x in arguments.values() if k not in ("number", "integer"))
    count = np.shape(x)[1 if kind in OVER_TIME else 0]
    return [
        {name: (kind, _part(kind, x, i)) for name, (kind, x) in arguments.items()}
        for i in range(count)
    ]


def _part(kind: str, x: Any, index: int) -> Any:
    if not isinstance(x, np.ndarray):
        return x
    if kind in OVER_TIME:
        return x[:, index]
    return x[index] if kind in (*ENDS, *SAMPLES, "matrix") else x


def join(kind: str, pieces: list[np.ndarray]) -> np.ndarray:
    """Join the answers for all columns or samples into one array."""
    if kind == "rows":
        return np.stack(pieces, axis=1)
    if kind == "scalar":
        return np.mean(np.array(pieces), axis=0)
    return np.concatenate([np.reshape(piece, (1,)) for piece in pieces])
