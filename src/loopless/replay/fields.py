"""What a buffer stores: named fields of a shape and a dtype, however the caller spells them.

Every buffer reads its declaration here. Nested dicts become flat names, "outer/inner", and dtypes
of NumPy, PyTorch or strings become names. Imports NumPy only; PyTorch's dtypes are known by name.
Tests: `tests/replay/test_rollout_refusals.py`, through the buffers.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Field:
    """What each row holds under one name, and what may be written there.

    casting: "exact" takes the very dtype, "lossless" what casts to it without loss, "number" any
    real number, "flag" booleans and integers 0 and 1.
    """

    shape: tuple[int, ...]
    dtype: str
    casting: str = "lossless"

    def __str__(self) -> str:
        return f"{self.shape} {self.dtype}"


def parse_fields(
    where: str, declared, store, reserved: Collection[str] = ()
) -> tuple[dict[str, Field], list[str]]:
    """The fields of {"name": (shape, dtype), ...} by flat name, and what is wrong with them."""
    if not isinstance(declared, Mapping):
        raise TypeError(f"{where}: fields maps names to (shape, dtype); received {declared!r}.")
    fields, problems = {}, []
    for name, pair in flatten(where, declared).items():
        try:
            fields[name] = field = parse_field(pair, store)
        except (TypeError, ValueError) as error:
            problems.append(f"{name} is {pair!r}, not (shape, dtype) ({error})")
            continue
        if name.split("/")[0] in reserved:
            problems.append(f"{name} is a name of the buffer's own (choose another)")
        if any(size < 0 for size in field.shape):
            problems.append(f"{name} has shape {field.shape}, with a negative size")
    return fields, problems


def parse_field(pair, store) -> Field:
    """The field of (shape, dtype); TypeError or ValueError if `store` cannot hold it."""
    shape, dtype = pair
    shape = tuple(map(int, shape)) if isinstance(shape, tuple | list) else (int(shape),)
    name = dtype_name(dtype)
    store.dtype(name)
    return Field(shape, name)


@lru_cache
def dtype_name(dtype) -> str:
    """The name of a NumPy dtype, a PyTorch dtype, or a string."""
    text = str(dtype)
    if text.startswith("torch.") or text == "bfloat16":
        return text.removeprefix("torch.")
    if dtype is None:  # which NumPy reads as float64
        raise TypeError("no dtype is given")
    return np.dtype(dtype).name


def flatten(where: str, tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": x}} as {"a/b": x}."""
    flat = {}
    for name, value in tree.items():
        if "/" in name:
            raise ValueError(f'{where}: the name {prefix}{name} holds a "/"; nest dicts for that.')
        if isinstance(value, Mapping):
            flat |= flatten(where, value, f"{prefix}{name}/")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """{"a/b": x} as {"a": {"b": x}}."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *outer, last = name.split("/")
        branch = tree
        for part in outer:
            branch = branch.setdefault(part, {})
        branch[last] = value
    return tree
