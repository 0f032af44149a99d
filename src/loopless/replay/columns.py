"""Named arrays with common leading axes, on NumPy or PyTorch, and what may be written into them.

PyTorch is imported only for columns that live in it.
"""

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np


class NumPyStore:
    """NumPy arrays in memory."""

    name = "numpy"
    place = "numpy"

    def __init__(self, device=None) -> None:
        if device is not None and str(device) != "cpu":
            raise ValueError(
                f'device={device!r} needs library="torch"; NumPy arrays live in memory.'
            )

    def dtype(self, name: str) -> np.dtype:
        dtype = np.dtype(name)
        if dtype.kind not in "biufc":
            raise TypeError(f"{name} is no number")
        return dtype

    def zeros(self, shape, dtype) -> Any:
        return np.zeros(shape, dtype)

    def array(self, host: np.ndarray) -> Any:
        return host

    def host(self, array) -> np.ndarray:
        return array

    def copy(self, array) -> Any:
        return array.copy()

    def take(self, array, indices, axis: int) -> Any:
        return np.take(array, indices, axis)

    def adopt(self, value, dtype) -> Any:
        """A checked value as an array of `dtype`; overflow is an error."""
        if not isinstance(value, np.ndarray):  # a tensor; NumPy has no bfloat16
            value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).cpu().numpy()
        if value.dtype == dtype:
            return value
        with np.errstate(over="raise"):
            return value.astype(dtype)

    def free_bytes(self) -> int | None:
        return free_memory_bytes()


class TorchStore:
    """PyTorch tensors on one device, without gradients."""

    name = "torch"

    def __init__(self, device=None) -> None:
        import torch

        self.torch = torch
        self.device = torch.device("cpu" if device is None else device)
        self.place = f"torch on {self.device}"

    def dtype(self, name: str) -> Any:
        dtype = getattr(self.torch, name, None)
        if not isinstance(dtype, self.torch.dtype):
            raise TypeError(f"PyTorch has no {name}")
        return dtype

    def zeros(self, shape, dtype) -> Any:
        return self.torch.zeros(shape, dtype=dtype, device=self.device)

    def array(self, host: np.ndarray) -> Any:
        return self.torch.from_numpy(host).to(self.device)

    def host(self, array) -> np.ndarray:
        return array.cpu().numpy()

    def copy(self, array) -> Any:
        return array.clone()

    def take(self, array, indices, axis: int) -> Any:
        return array.index_select(axis, indices)

    def adopt(self, value, dtype) -> Any:
        """A checked value as a tensor of `dtype` here; overflow of a host array is an error."""
        if isinstance(value, np.ndarray):
            # PyTorch takes no negative strides and no swapped bytes, warns of read-only memory,
            # and lets numbers overflow: NumPy casts, where it knows the dtype
            name = dtype_name(dtype)
            name = value.dtype.name if name == "bfloat16" else name
            with np.errstate(over="raise"):
                value = self.torch.from_numpy(np.require(value, name, ["C", "W"]))
        return value.to(device=self.device, dtype=dtype)

    def free_bytes(self) -> int | None:
        if self.device.type == "cuda":
            return self.torch.cuda.mem_get_info(self.device)[0]
        return free_memory_bytes() if self.device.type == "cpu" else None


STORES = {"numpy": NumPyStore, "torch": TorchStore}


@dataclass(frozen=True)
class Column:
    """One array [steps, envs, *shape]."""

    shape: tuple[int, ...]
    dtype_name: str
    casting: str  # what may be written: "lossless" casts, any real "number", or a "flag"
    data: Any


class Columns(dict[str, Column]):
    """Columns by flat name, allocated together, with one cursor for each env.

    `specs` maps names to (shape, dtype name, casting); the name of a nested field is
    "outer/inner". `owner` is whom errors speak of.
    """

    def __init__(self, owner: str, steps: int, envs: int, specs, store) -> None:
        super().__init__()
        self.owner, self.steps, self.envs, self.store = owner, steps, envs, store
        parts = {
            name: steps * envs * math.prod(shape) * store.dtype(dtype).itemsize
            for name, (shape, dtype, _) in specs.items()
        }
        self.nbytes = sum(parts.values())
        free = store.free_bytes()
        if free is not None and self.nbytes > free:
            largest = max(parts, key=lambda name: parts[name])
            shape, dtype, _ = specs[largest]
            raise ValueError(
                f"{owner}: {steps:,} steps × {envs:,} envs need {readable_bytes(self.nbytes)}, of "
                f"which {largest} {shape} {dtype} takes {readable_bytes(parts[largest])}; "
                f"{readable_bytes(free)} is free. Use fewer steps or envs, or smaller dtypes."
            )
        for name, (shape, dtype, casting) in specs.items():
            data = store.zeros((steps, envs, *shape), store.dtype(dtype))
            self[name] = Column(shape, dtype, casting, data)
        self.lengths = np.zeros(envs, np.int64)
        self.stale = np.zeros(envs, np.int64)  # rows below it may hold an earlier rollout's data
        self.changes = 0

    @property
    def rows(self) -> int:
        """The length of the longest column."""
        return int(self.lengths.max())

    def filled(self, name: str) -> Any:
        """A view of column `name` as far as any env has rows, 0 below the cursors."""
        self.scrub()
        return self[name].data[: self.rows]

    def scrub(self) -> None:
        """Zero what an earlier, longer rollout left below the cursors.

        Done when something is read, not when it is added: a step costs nothing, and a buffer
        that is filled again needs no scrubbing at all.
        """
        if (self.stale > self.lengths).any():
            rows = np.arange(self.steps)[:, None]
            left = self.store.array((rows >= self.lengths) & (rows < self.stale))
            for column in self.values():
                column.data[left] = 0
        self.stale[:] = 0

    def forget(self, chosen) -> None:
        """Rewind the cursors of the `chosen` envs."""
        self.stale[chosen] = np.maximum(self.stale[chosen], self.lengths[chosen])
        self.lengths[chosen] = 0

    def choose(self, function: str, env, envs=None) -> tuple[Any, tuple[int, ...]]:
        """An index over envs, and the leading shape of arrays with an entry for each."""
        if env is None and envs is None:
            return slice(None), (self.envs,)
        if env is not None and envs is not None:
            raise ValueError(f"{self.owner}.{function}: pass env or envs, not both.")
        received, axes = (env, 0) if envs is None else (envs, 1)
        chosen = np.asarray(received)
        if chosen.size == 0:
            chosen = chosen.astype(np.int64)  # NumPy takes [] for floats
        if (
            chosen.dtype.kind not in "iu"
            or chosen.ndim != axes
            or not ((chosen >= 0) & (chosen < self.envs)).all()
            or np.unique(chosen).size != chosen.size
        ):
            wanted = ("env is one index", "envs are distinct indices [k]")[axes]
            raise ValueError(
                f"{self.owner}.{function}: {wanted}, from 0 to {self.envs - 1}; "
                f"received {received!r}."
            )
        return (chosen.astype(np.int64), chosen.shape) if axes else (int(chosen), ())

    def cells(self, steps: np.ndarray, chosen) -> Any:
        """The index of row `steps[i]` of env `chosen[i]`: a plain one where that will do."""
        if isinstance(chosen, int):
            return int(steps), chosen
        if isinstance(chosen, slice):
            if (steps == steps[0]).all():
                return int(steps[0])
            chosen = np.arange(self.envs)
        return self.store.array(steps.copy()), self.store.array(chosen)

    def convert(self, name: str, value, leading: tuple[int, ...], casting: str = "", as_="") -> Any:
        """`value` as an array [*leading, ...] that can be written into column `name`.

        Raises ValueError or TypeError with a sentence that starts with the name, or with `as_`.
        """
        column, called = self[name], as_ or name
        torch = sys.modules.get("torch")
        try:
            tensor = torch is not None and isinstance(value, torch.Tensor)
            array = value.detach() if tensor else np.asarray(value)
        except ValueError:
            raise ValueError(f"{called} is no array: its rows differ in length") from None
        wanted = (*leading, *column.shape)
        if tuple(array.shape) != wanted:
            raise ValueError(f"{called} has shape {tuple(array.shape)}, expected {wanted}")
        source = dtype_name(array.dtype)
        if source != column.dtype_name:
            number = type(value) in (int, float)  # a bare Python number takes the column's dtype
            _check_cast(called, array, source, column.dtype_name, casting or column.casting, number)
        try:
            return self.store.adopt(array, column.data.dtype)
        except FloatingPointError:
            raise ValueError(
                f"{called} holds numbers too large for {column.dtype_name} (scale them, or choose "
                f"a wider dtype)"
            ) from None

    def convert_all(
        self, function: str, given, leading, casting="", wrong: Iterable[str] = (), note=""
    ) -> dict[str, Any]:
        """`convert` each of `given`; one error that lists everything `wrong` with them."""
        errors: list[Exception] = [ValueError(text) for text in wrong]
        arrays = {}
        for name, value in given.items():
            try:
                arrays[name] = self.convert(name, value, leading, casting)
            except (TypeError, ValueError) as error:
                errors.append(error)
        if errors:
            kind = TypeError if all(isinstance(e, TypeError) for e in errors) else ValueError
            raise kind(f"{self.owner}.{function}: {'; '.join(map(str, errors))}. {note}")
        return arrays

    def draw(self, data, axis: int, batches, changes: int) -> Iterator[dict[str, Any]]:
        """Gather each of `batches`, indices along `axis`, from every array of `data`.

        An error once the columns have changed more than `changes` times.
        """
        self.scrub()
        for batch in batches:
            if changes != self.changes:
                raise RuntimeError(
                    f"{self.owner}: rows were added, cleared or estimated anew while batches were "
                    f"drawn. Ask for new batches after that."
                )
            indices = self.store.array(batch)
            yield unflatten(
                {name: self.store.take(array, indices, axis) for name, array in data.items()}
            )


def _check_cast(name: str, array, source: str, target: str, casting: str, number: bool) -> None:
    kind, target_kind = _kind(source), _kind(target)
    if casting == "flag":
        if kind not in "iu":
            raise TypeError(
                f"{name} has dtype {source}; flags are booleans, or integers 0 and 1 (pass "
                f"{name} != 0 if that is what you mean)"
            )
        on_host = isinstance(array, np.ndarray) or array.device.type == "cpu"
        if on_host and not bool(((array == 0) | (array == 1)).all()):
            raise ValueError(f"{name} holds integers other than 0 and 1")
        return
    if casting == "number" and kind in "iuf":
        return
    if number and casting == "lossless":
        if target_kind in "fc":
            return
        if kind in "iu" and target_kind in "iu":
            limits = np.iinfo(target)
            if limits.min <= int(array) <= limits.max:
                return
            raise ValueError(f"{name} is {int(array)}, which {target} cannot hold")
    if casting != "lossless" or not _lossless(source, target):
        wanted = "a number" if casting == "number" else target
        raise TypeError(f"{name} has dtype {source}, expected {wanted} (convert it, or declare it)")


def _kind(dtype_name: str) -> str:
    if dtype_name.startswith(("bfloat", "float")):  # NumPy does not know all of PyTorch's
        return "f"
    try:
        return np.dtype(dtype_name).kind
    except TypeError:  # "str96" and its like
        return "V"


@lru_cache
def _lossless(source: str, target: str) -> bool:
    if source == target:
        return True
    if target == "bfloat16":
        return source in ("bool", "int8", "uint8")
    if source == "bfloat16":
        return target in ("float32", "float64")
    try:
        old, new = np.dtype(source), np.dtype(target)
    except TypeError:
        return False
    # NumPy calls int64 → float64 safe, but it rounds beyond 2^53
    rounds = old.kind in "iu" and old.itemsize == 8 and new.kind in "fc"
    return np.can_cast(old, new) and not rounds


@lru_cache
def dtype_name(dtype) -> str:
    """The name of a NumPy dtype, a PyTorch dtype, or a string."""
    text = str(dtype)
    if text.startswith("torch.") or text == "bfloat16":
        return text.removeprefix("torch.")
    if dtype is None:  # which NumPy reads as float64
        raise TypeError("no dtype is given")
    return np.dtype(dtype).name


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": x}} as {"a/b": x}."""
    flat = {}
    for name, value in tree.items():
        if "/" in name:
            raise ValueError(f'the name {prefix}{name} holds a "/"; nest dicts for that.')
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}/")
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


def readable_bytes(count: int) -> str:
    """12_345_678 as "12.3 MB"."""
    power = min(4, (len(str(count)) - 1) // 3)
    return f"{count:,} bytes" if power == 0 else f"{count / 1000**power:,.1f} {'_kMGT'[power]}B"


def free_memory_bytes() -> int | None:
    """What Linux says a process may still take; None elsewhere."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    _, found, rest = text.partition("MemAvailable:")
    return int(rest.split()[0]) * 1024 if found else None
