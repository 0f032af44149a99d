"""What an action picks from a row of values, on PyTorch tensors and JAX arrays.

NumPy's words for it are compiled, in `numba_actions`. Neither library is imported here: an array
of theirs exists only if its owner was. Tests: `tests/kernels/test_q_learning_*.py`.
"""

from typing import Any

from loopless.arrays.library import Library


def taken(library: Library, values, actions) -> Any:
    """values[..., actions] of values [..., A] and integer actions [...].

    Nothing is read back to look at the actions. One out of range is PyTorch's own error (on a GPU
    its device-side assert) and NaN in JAX.
    """
    if library.name == "torch":
        return values.gather(-1, actions.long().unsqueeze(-1)).squeeze(-1)
    xp = library.xp
    if actions.dtype.itemsize < 4:
        actions = actions.astype(xp.int32)  # A need not fit into a byte
    # JAX's indexing wraps −1, and may read 2³² as 0
    count = values.shape[-1]
    actions = xp.where((actions < 0) | (actions >= count), count, actions)
    return xp.take_along_axis(values, actions[..., None], -1, mode="fill")[..., 0]


def constant(library: Library, x) -> Any:
    """`x` without derivatives of any mode; None and numbers as they are."""
    if not hasattr(x, "dtype"):
        return x
    if library.name == "torch":
        return x.detach()
    from jax import lax

    return lax.stop_gradient(x)
