"""PyTorch's rules for the dtype of a result, which differ from those of JAX.

Every operator of the tables beside this file names its dtype: neither a Python number nor JAX's
default dtype may decide one.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

DTYPES = {
    torch.float64: np.dtype(np.float64),
    torch.float32: np.dtype(np.float32),
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: np.dtype(jnp.bfloat16),
    torch.int64: np.dtype(np.int64),
    torch.int32: np.dtype(np.int32),
    torch.int16: np.dtype(np.int16),
    torch.int8: np.dtype(np.int8),
    torch.uint8: np.dtype(np.uint8),
    torch.bool: np.dtype(np.bool_),
}
TORCH_DTYPES = {dtype: torch_dtype for torch_dtype, dtype in DTYPES.items()}


def default_dtype() -> np.dtype:
    """Return the dtype that PyTorch gives to floating results of integers."""
    return DTYPES[torch.get_default_dtype()]


def dtype_or(dtype: torch.dtype | None, default) -> np.dtype:
    """Return the dtype that an operator asks for by its `dtype` argument, or the default."""
    return np.dtype(default) if dtype is None else DTYPES[dtype]


def is_floating(x) -> bool:
    """Return whether an array holds floating-point numbers."""
    return jnp.issubdtype(x.dtype, jnp.floating)


def floating(x: jax.Array) -> jax.Array:
    """Return an array as floating-point numbers: integers and booleans take the default dtype."""
    return x if is_floating(x) else x.astype(default_dtype())


def common_dtype(*operands) -> np.dtype:
    """Return the dtype in which PyTorch combines arrays and Python numbers.

    Arrays with axes decide. An array without axes counts only if its kind (boolean, integer,
    floating) is higher than theirs, and a Python number only if its kind is higher still.
    """
    arrays = [x for x in operands if isinstance(x, jax.Array)]
    with_axes = [TORCH_DTYPES[x.dtype] for x in arrays if x.ndim]
    without_axes = [TORCH_DTYPES[x.dtype] for x in arrays if not x.ndim]
    numbers = [_dtype_of_number(x) for x in operands if isinstance(x, bool | int | float)]
    result = None
    for dtypes in (with_axes, without_axes, numbers):
        for dtype in dtypes[1:]:
            dtypes[0] = torch.promote_types(dtypes[0], dtype)
        if dtypes and (result is None or _kind(dtypes[0]) > _kind(result)):
            result = dtypes[0]
    if result is None:
        raise TypeError("operands must hold an array or a number")
    return DTYPES[result]


def _dtype_of_number(x: bool | int | float) -> torch.dtype:
    if isinstance(x, bool):
        return torch.bool
    return torch.int64 if isinstance(x, int) else torch.get_default_dtype()


def _kind(dtype: torch.dtype) -> int:
    return 2 if dtype.is_floating_point else int(dtype is not torch.bool)


def promote(*operands) -> list[Any]:
    """Return operands as arrays of their common dtype. None stays None."""
    dtype = common_dtype(*operands)
    return [None if x is None else jnp.asarray(x, dtype) for x in operands]
