"""Drawn arrays as the caller's library wants them: NumPy's, PyTorch's or JAX's.

They are new arrays that nobody writes to again, so that tensors may share their memory. PyTorch
and JAX are imported only for callers who ask for them. Imports `refusals`. Tests:
`tests/replay/test_outputs.py`.
"""

from typing import Any

import numpy as np

from loopless.refusals import check_choice, refuse

LIBRARIES = ("numpy", "torch", "jax")


def check_library(where: str, library: str, out) -> None:
    """Refuse what is no library, or none that can be written into."""
    problems = check_choice("library", library, LIBRARIES)
    if not problems and library != "numpy" and out is not None:
        problems.append(f"out takes NumPy arrays; leave it out with library={library!r}")
    refuse(where, problems)


def as_library(library: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """`arrays` in another library: shared memory in PyTorch, narrowed to 32 bits by JAX's default.

    JAX keeps 64-bit numbers, indices among them, only with jax_enable_x64.
    """
    if library == "torch":
        import torch

        return {name: torch.from_numpy(array) for name, array in arrays.items()}
    if library == "jax":
        import jax.numpy as jnp

        return {name: jnp.asarray(array) for name, array in arrays.items()}
    return dict(arrays)
