"""One small interface to the three array libraries. All are required: a missing one fails tests."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

DTYPES = ("float64", "float32")
HALVES = {"numpy": ("float16",), "torch": ("float16", "bfloat16"), "jax": ("float16", "bfloat16")}


@dataclass(frozen=True)
class Backend:
    name: str

    def __repr__(self) -> str:
        return self.name

    def array(self, x, dtype: str | None = None) -> Any:
        """Convert a NumPy array to this library's, floats to `dtype` if given; else return `x`."""
        if not isinstance(x, np.ndarray):
            return x
        cast = dtype if dtype is not None and x.dtype.kind == "f" else None
        if self.name == "numpy":
            return x.astype(cast) if cast else x.copy()
        if self.name == "torch":
            tensor = torch.from_numpy(np.ascontiguousarray(x)).reshape(x.shape).clone()
            return tensor.to(getattr(torch, cast)) if cast else tensor
        return jnp.asarray(x, getattr(jnp, cast) if cast else None)

    def arguments(self, data: dict, dtype: str | None = None) -> dict:
        return {name: self.array(x, dtype) for name, x in data.items()}

    def numpy(self, x) -> np.ndarray:
        """Convert any library's array to NumPy, floats to float64."""
        if isinstance(x, torch.Tensor):
            x = x.detach()
            x = (x.double() if x.is_floating_point() else x).numpy()
        x = np.asarray(x)
        return x.astype(np.float64) if x.dtype.kind in "fV" else x

    def dtype(self, x) -> str:
        return str(x.dtype).removeprefix("torch.")

    def owns(self, x) -> bool:
        kind = {"numpy": np.ndarray, "torch": torch.Tensor, "jax": jax.Array}[self.name]
        return isinstance(x, kind)


NUMPY, TORCH, JAX = Backend("numpy"), Backend("torch"), Backend("jax")
BACKENDS = (NUMPY, TORCH, JAX)
