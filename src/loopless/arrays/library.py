"""Which library an array belongs to, and the few questions that each library answers differently.

PyTorch and JAX are never imported here: an array of theirs exists only if its owner imported them.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
NUMBER = (float, int)


class NumPy:
    name = "numpy"
    xp: Any = np

    def is_float(self, x) -> bool:
        """Return whether x has half, single or double precision."""
        return x.dtype.char in "efd"

    def wide(self, dtype):
        """Return the dtype to accumulate in: float64 for float64, else float32."""
        return _DOUBLE if dtype.char == "d" else _SINGLE

    def kind(self, x) -> str:
        """Return f for floating, b for boolean, i for integer, another letter for the rest."""
        kind = x.dtype.kind
        return "i" if kind == "u" else kind

    def promote(self, x, y):
        return np.promote_types(x, y)

    def at_most(self, x, bound: float):
        """Return min(x, bound), NaN where x is NaN."""
        return np.minimum(x, x.dtype.type(bound))

    def cast(self, x, dtype):
        return x.astype(dtype, copy=False)

    def same_device(self, x, y) -> bool:
        return True

    def is_dense(self, x) -> bool:
        """Return whether x has a value in memory for each of its entries."""
        return True

    def constant(self, x):
        """Return x without derivatives of any kind; None and numbers as they are."""
        return x


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

    def is_dense(self, x) -> bool:
        return x.layout is self.xp.strided and x.device.type != "meta"

    def constant(self, x):
        return x.detach() if hasattr(x, "dtype") else x


class JAX:
    name = "jax"

    def __init__(self) -> None:
        self.jax = sys.modules["jax"]
        self.xp = self.jax.numpy

    def is_float(self, x) -> bool:
        return x.dtype.name in ("float32", "float64", "float16", "bfloat16")

    def wide(self, dtype):
        return _DOUBLE if dtype == _DOUBLE else _SINGLE

    def kind(self, x) -> str:
        if self.xp.issubdtype(x.dtype, self.xp.floating):
            return "f"  # the kind of ml_dtypes' bfloat16 is V
        return "i" if x.dtype.kind == "u" else x.dtype.kind

    def promote(self, x, y):
        return self.xp.promote_types(x, y)

    def at_most(self, x, bound: float):
        return self.xp.minimum(x, bound)

    def cast(self, x, dtype):
        return x.astype(dtype)

    def same_device(self, x, y) -> bool:
        return True  # XLA places arrays itself, and raises its own error where it cannot

    def is_dense(self, x) -> bool:
        return True

    def constant(self, x):
        return self.jax.lax.stop_gradient(x) if hasattr(x, "dtype") else x


Library = NumPy | PyTorch | JAX
NUMPY = NumPy()
_others: dict[str, Library] = {}


def library_of(x) -> Library | None:
    """Return the library that `x` is an array of, or None."""
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


def typed(library: Library, x, dtype, like) -> Any:
    """Return a number or an array in this dtype; for PyTorch a number becomes a 0-d tensor."""
    if isinstance(x, np.generic):
        x = x.item()
    if not isinstance(x, NUMBER):
        return library.cast(x, dtype)
    if library.name == "torch":
        return like.new_full((), x, dtype=dtype)
    return dtype.type(x)


def compiled_once(library: Library, function: Callable, static: tuple[int, ...]) -> Callable:
    """Return `function` as one program if the library compiles (JAX), else as it is.

    `static` are the positions of arguments that are no arrays. Outside jit a call is then one
    dispatch instead of thirty.
    """
    return jax_program(function, static) if library.name == "jax" else function


@functools.cache
def jax_program(function: Callable, static: tuple[int, ...]) -> Callable:
    """Return `function` as one compiled JAX program, the same one for the same arguments."""
    return sys.modules["jax"].jit(function, static_argnums=static, inline=True)
