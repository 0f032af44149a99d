"""A block of the host as one array, so that a compiled call takes its rows as one argument.

Each array that a compiled call is given costs the same few microseconds, however small it is, and
a block has seven. Here all of them lie in one piece of memory from the start: nothing is packed,
and unpacking is part of the program. Imports NumPy, and JAX where it unpacks. Tests:
`tests/envs/test_transfer.py`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

WORD = 4  # bytes
FIELDS = (
    "all_obs", "next_obs", "action", "reward", "terminated", "truncated", "valid", "all_masks",
)  # fmt: skip


class Transfer:
    """A block of `steps` steps of `envs` (a HostedEnvs), and `own` arrays beside it, in one memory.

    own: more arrays by name, (shape, dtype) each, to be written by the caller.

        there = Transfer(envs, steps=10, own={"number": ((), "int32")})
        envs.collect(policy, 10, out=there.block)
        there.own["number"][...] = 7
        jitted(there.words)                     # where `there.unpack(words)` gives the arrays

    A call that is still running reads the same memory: write the next block into another one.
    """

    def __init__(self, envs: Any, steps: int, own: Mapping[str, tuple] | None = None) -> None:
        placed: dict[str, tuple[int, tuple, str]] = {}
        words = 0

        def reserve(name: str, shape: tuple, dtype: str) -> None:
            nonlocal words
            placed[name] = words, tuple(shape), dtype
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            words += -(-size // WORD)

        self.block = envs.block(steps)
        arrays = self.block.arrays()
        names = [name for name in FIELDS if name in arrays]
        for name in names:
            reserve(name, arrays[name].shape, str(arrays[name].dtype))
        for name, (shape, dtype) in (own or {}).items():
            reserve(name, shape, dtype)
        self.words = np.zeros(words, np.uint32)
        views = {name: self._view(*place) for name, place in placed.items()}
        for name in names:
            setattr(self.block, name, views[name])
        self.own = {name: views[name] for name in own or {}}
        self._placed = placed

    def _view(self, start: int, shape: tuple, dtype: str) -> np.ndarray:
        return np.ndarray(shape, dtype, self.words, start * WORD)

    def unpack(self, words: Any) -> dict[str, Any]:
        """The arrays by name, in a traced function; `obs` is all_obs without its last."""
        arrays = {name: _array(words, *place) for name, place in self._placed.items()}
        return arrays | {"obs": arrays["all_obs"][:-1]}


def _array(words: Any, start: int, shape: tuple, dtype: str) -> Any:
    import jax.numpy as jnp
    from jax import lax

    count, size = int(np.prod(shape)), np.dtype(dtype).itemsize
    part = words[start : start - (-count * size // WORD)]
    if size == WORD:
        return lax.bitcast_convert_type(part, jnp.dtype(dtype)).reshape(shape)
    octets = lax.bitcast_convert_type(part, jnp.uint8).reshape(-1)[:count].reshape(shape)
    return octets != 0 if dtype == "bool" else octets
