"""The declaration of a buffer: named fields, each of a shape and a dtype.

Every buffer reads its `fields` argument here. Nested dicts become flat names, "outer/inner", and
dtypes of NumPy, PyTorch or strings become names. What may be written into a field is in `casts`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Field:
    """The shape and dtype of one field of a transition, and what may be written there.

    casting: "exact" takes this dtype only, "lossless" what casts to it without loss, "number" any
    real number, "flag" booleans and integers 0 and 1.
    """

    shape: tuple[int, ...]
    dtype: str
    casting: str = "lossless"

    def __str__(self) -> str:
        return f"{self.shape} {self.dtype}"


def parse_fields(
    where: str, declared, library, reserved: Collection[str] = ()
) -> tuple[dict[str, Field], list[str]]:
    """Return the fields of {"name": (shape, dtype), ...} by flat name, and what is wrong with them.

    `library` (see `casts`) knows which dtypes exist; `reserved` names belong to the buffer.
    """
    if not isinstance(declared, Mapping):
        raise TypeError(f"{where}: fields must map names to (shape, dtype); received {declared!r}.")
    fields, problems = {}, []
    for name, pair in flatten(where, declared).items():
        try:
            fields[name] = field = parse_field(pair, library)
        except (TypeError, ValueError) as error:
            problems.append(f"{name} is {pair!r}, not (shape, dtype) ({error})")
            continue
        if top_name(name) in reserved:
            problems.append(f"{name} is a name that the buffer uses itself (choose another)")
        if any(size < 0 for size in field.shape):
            problems.append(f"{name} has shape {field.shape}, with a negative size")
    return fields, problems


def parse_field(pair, library) -> Field:
    """Return the field of (shape, dtype); TypeError or ValueError if `library` cannot hold it."""
    shape, dtype = pair
    shape = tuple(map(int, shape)) if isinstance(shape, tuple | list) else (int(shape),)
    name = dtype_name(dtype)
    if name.startswith(("str", "bytes", "object", "void", "datetime", "timedelta")):
        raise TypeError(
            "only numbers are stored; store a number for each text or object, such as its place in "
            "a list of your own"
        )
    library.dtype(name)
    return Field(shape, name)


def declaration(fields: Mapping[str, Field]) -> dict[str, Any]:
    """Return `fields` as a caller would declare them, the inverse of `parse_fields`."""
    return unflatten({name: (field.shape, field.dtype) for name, field in fields.items()})


@lru_cache
def dtype_name(dtype) -> str:
    """Return the name of a NumPy dtype, a PyTorch dtype, or a string."""
    text = str(dtype)
    if text.startswith("torch.") or text == "bfloat16":
        return text.removeprefix("torch.")
    if dtype is None:  # which NumPy reads as float64
        raise TypeError("the dtype is missing")
    return np.dtype(dtype).name


def flatten(where: str, tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return {"a": {"b": x}} as {"a/b": x}."""
    flat = {}
    for name, value in tree.items():
        if "/" in name:
            raise ValueError(f'{where}: the name {prefix}{name} contains "/". Nest dicts instead.')
        if isinstance(value, Mapping):
            flat |= flatten(where, value, f"{prefix}{name}/")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return {"a/b": x} as {"a": {"b": x}}."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *outer, last = name.split("/")
        branch = tree
        for part in outer:
            branch = branch.setdefault(part, {})
        branch[last] = value
    return tree


def top_name(name: str) -> str:
    """Return the outermost part of a flat name: "obs" of "obs/image"."""
    return name.partition("/")[0]
