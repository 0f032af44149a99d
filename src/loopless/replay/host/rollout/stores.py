"""Where a buffer's arrays live, NumPy or PyTorch: the few things that each does in its own way.

PyTorch is imported only for a store that lives in it. Imports `memory` only. Tests:
`tests/replay/test_rollout_writes.py`; all other tests of buffers run on both stores.
"""

from typing import Any

import numpy as np

from loopless.replay.storage import size as memory


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
        """Whether `value` is an array that can be written as it is."""
        native = value.__class__ is np.ndarray or isinstance(value, np.generic)
        return native and value.dtype == dtype

    def adopt(self, value, dtype: str) -> Any:
        """A checked value as an array of `dtype`; overflow is an error."""
        if not isinstance(value, np.ndarray):  # a tensor; NumPy has no bfloat16
            value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).cpu().numpy()
        with np.errstate(over="raise"):
            return value.astype(dtype, copy=False)

    def free_bytes(self) -> int | None:
        return memory.free_memory_bytes()


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
        """Whether `value` is an array that can be written as it is."""
        return (
            value.__class__ is self.torch.Tensor
            and value.dtype is getattr(self.torch, dtype)
            and value.device == self.device
            and not value.requires_grad
        )

    def adopt(self, value, dtype: str) -> Any:
        """A checked value as a tensor of `dtype` here; overflow of a host array is an error."""
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
        return memory.free_memory_bytes() if self.device.type == "cpu" else None


STORES = {"numpy": NumPyStore, "torch": TorchStore}
