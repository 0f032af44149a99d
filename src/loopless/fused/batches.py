"""Batches and other arguments: trees of dicts, lists and tuples, taken apart and put together.

The leaves of a tree are tensors, NumPy arrays, numbers and modules. The order of a dict's keys is
kept, because a loss may iterate over it; jax.tree_util would sort them.
"""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import torch

from loopless.fused.blame import FuseError, name_of, user_line

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_PLAIN = frozenset({torch.Tensor, np.ndarray, torch.nn.Parameter})
_LEAVES: set[type] = set()  # types that have been met in a tuple and are no containers
_KINDS = frozenset(np.dtype(kind) for kind in "?bhilqBHILQefdg")  # that need no conversion


def flatten(tree: Any) -> tuple[list, Any]:
    """Return the leaves of a tree in order, and its structure, which can be compared and hashed."""
    if tree.__class__ in _PLAIN:
        return [tree], None
    if isinstance(tree, dict):
        leaves = list(dict.values(tree))  # a field of a `Batch` may be called "values"
        if _PLAIN.issuperset(map(type, leaves)):
            if tree.__class__ is dict:
                return leaves, tuple(tree)
            return leaves, (tree.__class__, tuple(tree), (None,) * len(leaves))
    if tree.__class__ is tuple:
        if not _LEAVES.issuperset(map(type, tree)):
            _LEAVES.update(type(x) for x in tree if not isinstance(x, dict | list | tuple))
        if _LEAVES.issuperset(map(type, tree)):
            return list(tree), (tuple, len(tree), (None,) * len(tree))
    leaves: list = []
    return leaves, _flatten(tree, leaves)


def _flatten(tree: Any, leaves: list) -> Any:
    if isinstance(tree, dict):
        parts = [_flatten(part, leaves) for part in dict.values(tree)]
        if type(tree) is dict and not any(parts):
            return tuple(tree)
        return type(tree), tuple(tree), tuple(parts)
    if isinstance(tree, list | tuple):
        return type(tree), len(tree), tuple(_flatten(part, leaves) for part in tree)
    leaves.append(tree)
    return None


def unflatten(structure: Any, leaves: Any) -> Any:
    """Return the tree that `flatten` took apart, with other leaves."""
    return _unflatten(structure, iter(leaves))


def _unflatten(structure: Any, leaves: Any) -> Any:
    if structure is None:
        return next(leaves)
    if not (len(structure) == 3 and isinstance(structure[0], type)):
        return {key: next(leaves) for key in structure}
    kind, keys, parts = structure
    values = [_unflatten(part, leaves) for part in parts]
    if issubclass(kind, dict):
        return kind(zip(keys, values, strict=True))
    return kind(*values) if hasattr(kind, "_fields") else kind(values)


def names(structure: Any, prefix: str = "batch") -> list[str]:
    """Return how each leaf is written: batch["obs"], batch[0]."""
    if structure is None:
        return [prefix]
    if not (len(structure) == 3 and isinstance(structure[0], type)):
        return [f"{prefix}[{key!r}]" for key in structure]
    kind, keys, parts = structure
    keys = keys if issubclass(kind, dict) else getattr(kind, "_fields", None) or range(keys)
    show: Callable = (lambda k: f".{k}") if hasattr(kind, "_fields") else (lambda k: f"[{k!r}]")
    pairs = zip(keys, parts, strict=True)
    return [name for key, part in pairs for name in names(part, prefix + show(key))]


def is_array(leaf: Any) -> bool:
    """Return whether a leaf is an array whose values the program reads."""
    return isinstance(leaf, torch.Tensor | np.ndarray)


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    """Return a NumPy array on a tensor's memory."""
    try:
        return tensor.numpy(force=True)
    except TypeError:
        if tensor.dtype is not torch.bfloat16:
            raise
        return tensor.detach().view(torch.int16).numpy().view(ml_dtypes.bfloat16)


def as_tensor(array: Any) -> torch.Tensor:
    """Return an array, also a read-only one or of bfloat16, as a tensor of its own memory."""
    if isinstance(array, torch.Tensor):
        return array.detach().clone()
    return wrap(np.array(array))


def wrap(array: np.ndarray) -> torch.Tensor:
    """Return a tensor on an array's memory."""
    if array.dtype == _BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def views(leaves: list, where: Callable[[], list[str]]) -> list[np.ndarray]:
    """Return NumPy arrays on the memory of a batch's leaves; numbers become arrays."""
    arrays = []
    for leaf in leaves:
        if leaf.__class__ is np.ndarray and leaf.dtype in _KINDS:
            arrays.append(leaf)
            continue
        if leaf.__class__ is torch.Tensor:
            try:
                arrays.append(leaf.numpy())
                continue
            except (TypeError, RuntimeError):  # on a device, of a half type, requires a gradient
                pass
        arrays.append(_view(leaf, len(arrays), where))
    return arrays


def _view(leaf: Any, place: int, where: Callable[[], list[str]]) -> np.ndarray:
    if isinstance(leaf, torch.Tensor):
        if not leaf.is_cpu or leaf.layout is not torch.strided:
            raise FuseError(
                f"fuse: {where()[place]} is on {leaf.device} ({leaf.layout}); "
                f"fuse takes dense tensors on the CPU ({user_line()})"
            )
        return as_numpy(leaf.resolve_conj().resolve_neg())
    if isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind in "fiub":
        array = np.asarray(leaf)
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    if isinstance(leaf, bool | int | float):
        kinds = {bool: torch.bool, int: torch.int64, float: torch.get_default_dtype()}
        return as_numpy(torch.tensor(leaf, dtype=kinds[type(leaf)]))
    raise TypeError(
        f"fuse: {where()[place]} is {name_of(leaf)}; a batch holds tensors, NumPy arrays and "
        f"numbers, in dicts, lists and tuples ({user_line()})"
    )


def count_updates(
    arrays: list[np.ndarray], indices: np.ndarray | None, where: Callable[[], list[str]]
) -> int:
    """Return K, after checking that all leaves, or the indices, agree on it."""
    for place, array in enumerate(arrays):
        if not array.ndim:
            axis = "[N, …]" if indices is not None else "[K, B, …]"
            raise ValueError(
                f"fuse: {where()[place]} is a number; many takes arrays {axis} ({user_line()})"
            )
    lengths = {len(array) for array in arrays}
    if not arrays:
        raise ValueError(f"fuse: the batch holds no arrays ({user_line()})")
    if indices is None:
        if len(lengths) > 1:
            sizes = ", ".join(f"{n} {len(a)}" for n, a in zip(where(), arrays, strict=True))
            raise ValueError(
                f"fuse: the batches differ in K, their first axis: {sizes} ({user_line()})"
            )
        if lengths == {0}:
            raise ValueError(f"fuse: K is 0; there is nothing to update ({user_line()})")
        return len(arrays[0])
    if indices.ndim != 2 or indices.dtype.kind not in "iu" or not indices.size:
        raise ValueError(
            f"fuse: indices must be whole numbers [K, B]; received {indices.dtype} {indices.shape} "
            f"({user_line()})"
        )
    if indices.min() < 0 or indices.max() >= min(lengths):
        raise ValueError(
            f"fuse: indices must be from 0 to {min(lengths) - 1}; received {indices.min()} to "
            f"{indices.max()} ({user_line()})"
        )
    return len(indices)
