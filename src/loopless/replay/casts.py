"""Check the shape and dtype of what is written into a field, then cast it.

Nothing is rounded, wrapped or broadcast behind the caller's back, and one error lists everything
that is wrong with a call. `NumPyLibrary` and `TorchLibrary` do what differs between the two array
libraries that host buffers can live in; JAX's counterpart is `device.layout.JaxLibrary`. PyTorch
is imported only for a buffer that lives in it.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from loopless import process
from loopless.refusals import refuse
from loopless.replay.fields import Field, dtype_name


def convert_all(
    where: str,
    values: Mapping[str, Any],
    fields: Mapping[str, Field],
    leading: tuple[int, ...],
    library,
    *,
    problems: Sequence[str] = (),
    note: str = "",
) -> dict[str, Any]:
    """Return `values` as arrays [*leading, *shape] of `library`, or raise one error.

    The error also lists the `problems` that the caller has already found.
    """
    arrays: dict[str, Any] = {}
    listed: list[str | Exception] = [*problems]
    for name, value in values.items():
        try:
            arrays[name] = convert(name, value, fields[name], leading, library)
        except (TypeError, ValueError) as error:
            listed.append(error)
    refuse(where, listed, note=note)
    return arrays


def convert(name: str, value, field: Field, leading: tuple[int, ...], library) -> Any:
    """Return `value` as an array that `field` can take as it is; errors begin with `name`."""
    expected = (*leading, *field.shape)
    if library.holds(value, field.dtype) and value.shape == expected:  # the usual case, made cheap
        return value
    torch = sys.modules.get("torch")
    tensor = torch is not None and isinstance(value, torch.Tensor)
    try:
        array = value.detach() if tensor else np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} is not an array: its parts differ in length") from None
    if array.shape != expected:
        raise ValueError(f"{name} has shape {tuple(array.shape)}, expected {expected}")
    source = dtype_name(array.dtype)
    if source != field.dtype:
        _check_cast(name, array, source, field, bare=type(value) in (int, float))
    try:
        return library.adopt(array, field.dtype)
    except FloatingPointError:
        raise ValueError(
            f"{name} contains numbers too large for {field.dtype} (scale them, or choose a wider "
            f"dtype)"
        ) from None


def leading_shape(flat: Mapping[str, Any], fields: Mapping[str, Field]) -> tuple[int, ...]:
    """Return (n,) if the first field in `flat` has one axis more than declared, else ()."""
    name = next((name for name in fields if name in flat), None)
    if name is None:
        return ()
    try:
        shape = np.shape(flat[name])
    except ValueError:  # ragged: the conversion will say so
        return ()
    return shape[:1] if len(shape) == len(fields[name].shape) + 1 else ()


def _check_cast(name: str, array, source: str, field: Field, bare: bool) -> None:
    """Raise if `field` does not take the dtype `source`; a `bare` Python number has no dtype."""
    kind, wanted = _kind(source), field.dtype
    on_host = isinstance(array, np.ndarray) or array.device.type == "cpu"
    if field.casting == "flag" or (field.casting == "lossless" and wanted == "bool"):
        if kind not in "iuf":
            raise TypeError(
                f"{name} has dtype {source}; flags are booleans, or 0 and 1 as integers or floats"
            )
        if on_host and not bool(((array == 0) | (array == 1)).all()):
            raise ValueError(
                f"{name} contains numbers other than 0 and 1 (pass {name} != 0 if that is what you "
                f"mean)"
            )
        return
    if field.casting == "number":
        if kind in "iuf":
            return
        wanted = "a number"
    elif field.casting == "lossless":
        if _is_lossless(source, field.dtype) or (bare and _kind(field.dtype) in "fc"):
            return
        if bare and kind in "iu" and _kind(field.dtype) in "iu":
            limits = np.iinfo(field.dtype)
            if limits.min <= int(array) <= limits.max:
                return
            raise ValueError(f"{name} is {int(array)}, which {field.dtype} cannot hold")
        if kind == "f" and _kind(field.dtype) in "iu" and on_host:  # such as actions
            _check_whole(name, array, field.dtype)
            return
    raise TypeError(f"{name} has dtype {source}, expected {wanted} (convert it, or declare it)")


def _check_whole(name: str, array, wanted: str) -> None:
    """Refuse floats that an integer dtype does not hold exactly."""
    limits = np.iinfo(wanted)
    most = min(limits.max, 2**53)  # beyond it a float64 skips integers
    fits = (array == array.round()) & (array >= max(limits.min, -most)) & (array <= most)
    if not bool(fits.all()):
        other = array[~fits].reshape(-1)[0].item()
        raise ValueError(f"{name} contains {other}, which {wanted} cannot hold")


def _kind(dtype_name: str) -> str:
    if dtype_name.startswith(("bfloat", "float")):  # NumPy lacks some of PyTorch's dtypes
        return "f"
    try:
        return np.dtype(dtype_name).kind
    except TypeError:  # such as "str96"
        return "V"


@lru_cache
def _is_lossless(source: str, target: str) -> bool:
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


class NumPyLibrary:
    """NumPy arrays in the host's memory."""

    name = "numpy"
    place = "numpy"

    def __init__(self, device=None) -> None:
        if device is not None and str(device) != "cpu":
            raise ValueError(
                f'device={device!r} needs library="torch"; NumPy arrays are on the CPU.'
            )

    def dtype(self, name: str) -> np.dtype:
        dtype = np.dtype(name)
        if dtype.kind not in "biufc":
            raise TypeError(f"{name} is not a dtype of numbers")
        return dtype

    def zeros(self, shape, dtype: str) -> Any:
        return np.zeros(shape, dtype)

    def array(self, host: np.ndarray) -> Any:
        return host

    def host(self, array) -> np.ndarray:
        return array

    def copy(self, array) -> Any:
        return array.copy()

    def take(self, array, indices, axis: int) -> Any:
        return np.take(array, indices, axis)

    def holds(self, value, dtype: str) -> bool:
        """Return whether `value` is an array that can be written as it is."""
        native = value.__class__ is np.ndarray or isinstance(value, np.generic)
        return native and value.dtype == dtype

    def adopt(self, value, dtype: str) -> Any:
        """Return a checked value as an array of `dtype`; overflow is an error."""
        if not isinstance(value, np.ndarray):  # a tensor; NumPy has no bfloat16
            value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).cpu().numpy()
        with np.errstate(over="raise"):
            return value.astype(dtype, copy=False)

    def free_bytes(self) -> int | None:
        return process.free_memory_bytes()


class TorchLibrary:
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

    def zeros(self, shape, dtype: str) -> Any:
        return self.torch.zeros(shape, dtype=self.dtype(dtype), device=self.device)

    def array(self, host: np.ndarray) -> Any:
        return self.torch.from_numpy(host).to(self.device)

    def host(self, array) -> np.ndarray:
        return array.cpu().numpy()

    def copy(self, array) -> Any:
        return array.clone()

    def take(self, array, indices, axis: int) -> Any:
        return array.index_select(axis, indices)

    def holds(self, value, dtype: str) -> bool:
        """Return whether `value` is a tensor that can be written as it is."""
        return (
            value.__class__ is self.torch.Tensor
            and value.dtype is getattr(self.torch, dtype)
            and value.device == self.device
            and not value.requires_grad
        )

    def adopt(self, value, dtype: str) -> Any:
        """Return a checked value as a tensor of `dtype`; overflow of a host array is an error."""
        if isinstance(value, np.ndarray):
            # PyTorch takes no negative strides and no swapped bytes, warns of read-only memory,
            # and lets numbers overflow: NumPy casts, where it knows the dtype
            name = value.dtype.name if dtype == "bfloat16" else dtype
            with np.errstate(over="raise"):
                value = self.torch.from_numpy(np.require(value, name, ["C", "W"]))
        return value.to(device=self.device, dtype=self.dtype(dtype))

    def free_bytes(self) -> int | None:
        if self.device.type == "cuda":
            return self.torch.cuda.mem_get_info(self.device)[0]
        return process.free_memory_bytes() if self.device.type == "cpu" else None


NUMPY = NumPyLibrary()
LIBRARIES = {"numpy": NumPyLibrary, "torch": TorchLibrary}
