"""Which library an array belongs to, and the few questions that each answers in its own words.

PyTorch and JAX are never imported here: an array of theirs exists only if its owner was.
"""

import sys
from typing import Any

import numpy as np

_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
NUMBER = (float, int)


class NumPy:
    name = "numpy"
    xp: Any = np

    def is_float(self, x) -> bool:
        """Whether the scan can work on it: half, single or double precision."""
        return x.dtype.char in "efd"

    def wide(self, dtype):
        """The dtype to accumulate in."""
        return _DOUBLE if dtype.char == "d" else _SINGLE

    def kind(self, x) -> str:
        """f for floating, b for boolean, i for integers, anything else for the rest."""
        kind = x.dtype.kind
        return "i" if kind == "u" else kind

    def promote(self, x, y):
        return np.promote_types(x, y)

    def at_most(self, x, bound: float):
        """min(x, bound), NaN where x is NaN."""
        return np.minimum(x, x.dtype.type(bound))

    def cast(self, x, dtype):
        return x.astype(dtype, copy=False)

    def same_device(self, x, y) -> bool:
        return True


class PyTorch:
    name = "torch"

    def __init__(self) -> None:
        self.xp = torch = sys.modules["torch"]
        self._floats = (torch.float32, torch.float64, torch.float16, torch.bfloat16)

    def is_float(self, x) -> bool:
        return x.dtype in self._floats

    def wide(self, dtype):
        return dtype if dtype == self.xp.float64 else self.xp.float32

    def kind(self, x) -> str:
        if x.dtype.is_floating_point:
            return "f"
        if x.dtype == self.xp.bool:
            return "b"
        return "c" if x.dtype.is_complex else "i"

    def promote(self, x, y):
        return self.xp.promote_types(x, y)

    def at_most(self, x, bound: float):
        return x.clamp(max=bound)

    def cast(self, x, dtype):
        return x.to(dtype)

    def same_device(self, x, y) -> bool:
        return (x.is_cpu and y.is_cpu) or x.device == y.device


class JAX:
    name = "jax"

    def __init__(self) -> None:
        self.xp = sys.modules["jax"].numpy

    def is_float(self, x) -> bool:
        return x.dtype.name in ("float32", "float64", "float16", "bfloat16")

    def wide(self, dtype):
        return _DOUBLE if dtype == _DOUBLE else _SINGLE

    def kind(self, x) -> str:
        if self.xp.issubdtype(x.dtype, self.xp.floating):
            return "f"  # ml_dtypes' bfloat16 says kind V of itself
        return "i" if x.dtype.kind == "u" else x.dtype.kind

    def promote(self, x, y):
        return self.xp.promote_types(x, y)

    def at_most(self, x, bound: float):
        return self.xp.minimum(x, bound)

    def cast(self, x, dtype):
        return x.astype(dtype)

    def same_device(self, x, y) -> bool:
        return True  # XLA places arrays itself, and says so itself where it cannot


Library = NumPy | PyTorch | JAX
NUMPY = NumPy()
_others: dict[str, Library] = {}


def library_of(x) -> Library | None:
    """The library that `x` is an array of, or None."""
    if isinstance(x, np.ndarray):
        # Masks would be dropped silently, and a matrix never becomes flat.
        return None if isinstance(x, np.ma.MaskedArray | np.matrix) else NUMPY
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return _others.get("torch") or _others.setdefault("torch", PyTorch())
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(x, jax.Array):
        return _others.get("jax") or _others.setdefault("jax", JAX())
    return None
