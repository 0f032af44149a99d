"""Rows of logits over a vocabulary, in any of the three libraries: surveyed, picked from, sloped.

A loss of such rows needs little of each: the largest entries, the log-sum-exp, the entropy, a few
picked logits. Its derivative is dense, but told by two numbers a row and a few picked tokens. So a
kernel computes on [..., few] arrays only, and what goes over the whole vocabulary stands here, in
chunks of rows: no further array of the logits' size comes to be beside their gradient.

Roads: `numpy_vocabulary` (Numba) for NumPy arrays and for PyTorch tensors of plain eager execution
on the CPU, `torch_vocabulary` and `jax_vocabulary` for the rest. Imports NumPy only, until an array
of another library is there. Tests: `tests/arrays/test_vocabulary.py`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from loopless.arrays import dispatch as tensors
from loopless.arrays.library import NUMPY, Library, library_of
from loopless.arrays.logits import numpy as numpy_vocabulary


class Survey(NamedTuple):
    """What there is to know of rows [..., V]; π is the softmax of the row times `rate`."""

    top: Any  # [..., k], the tokens of the largest entries, largest first
    peak: Any  # [...], the largest entry
    log_total: Any  # [...], log Σ e^((x − peak)·rate)
    entropy: Any  # [...], −Σ π log(π + floor)
    mean: Any  # [...], Σ π h, h being what a slope says it is


class Slope(NamedTuple):
    """The derivative of a loss by rows of logits: π_j (α + β h_j) − `less` at the tokens.

    h = log π, or with a floor log(π + floor) + π/(π + floor). 0 where a row is not counted.
    """

    peak: Any
    log_total: Any
    alpha: Any  # [...]
    beta: Any  # [...]
    tokens: Any  # [..., w]; a token may stand there twice
    less: Any  # [..., w]
    counted: Any  # [...] or None for all
    rate: Any


class Apart(NamedTuple):
    """The derivative of a divergence between rows: α (π_j − q_j), q being of the other rows."""

    peak: Any
    log_total: Any
    others: Any  # [..., V]
    other_peak: Any
    other_log_total: Any
    alpha: Any  # [...]
    counted: Any  # [...] or None for all
    rate: Any


def host(library: Library, *arrays) -> list | None:
    """The arrays as NumPy's, if they lie in plain sight; None where nothing may be looked at."""
    if library is NUMPY:
        return list(arrays)
    if library.name != "torch" or tensors.is_traced(library.xp):
        return None
    return tensors.numpy_views(library.xp, arrays)


def survey(library: Library, logits, k: int, rate, floor: float, counted, refuse: Callable):
    """The survey of logits [..., V], in float32 or float64.

    Where values are seen, the first counted row that is no distribution (NaN, +inf, or nothing
    above −inf) raises refuse(row). Elsewhere it is what comes of it, NaN. Rows that are not
    counted come back with anything.
    """
    seen = host(library, logits, counted)
    if seen is not None:
        found, wrong = numpy_vocabulary.survey(seen[0], k, rate, floor, seen[1])
        if wrong >= 0:
            raise refuse(np.unravel_index(wrong, tuple(logits.shape[:-1])))
        return Survey._make(back(library, x) for x in found)
    if library.name == "torch":
        from loopless.arrays.logits import torch as rows
    else:
        from loopless.arrays.logits import jax as rows
    return Survey._make(rows.survey(logits, k, rate, floor))


def divergence(library: Library, logits, slope: Apart):
    """Σ q (log q − log π) of each row [...]."""
    seen = host(library, logits, *slope)
    if seen is not None:
        return back(library, numpy_vocabulary.divergence(seen[0], slope._make(seen[1:])))
    if library.name == "torch":
        from loopless.arrays.logits import torch as rows
    else:
        from loopless.arrays.logits import jax as rows
    return rows.divergence(logits, slope)


def picked(library: Library, logits, tokens, dtype):
    """logits[..., tokens] of tokens [..., w]; in JAX NaN where there is no such token."""
    if library is NUMPY:
        return np.take_along_axis(logits, tokens, -1).astype(dtype, copy=False)
    if library.name == "torch":
        return logits.gather(-1, tokens).to(dtype)
    from loopless.arrays.logits import jax as jax_vocabulary

    return jax_vocabulary.picked(logits, tokens).astype(dtype)


def sloped(library: Library, loss, logits, slope, floor: float = 0.0):
    """`loss`, a number, with the derivative by `logits` that the slope tells."""
    if library is NUMPY:
        return loss
    if library.name == "torch":
        if not (logits.requires_grad or tensors.is_traced(library.xp)):
            return loss
        from loopless.arrays.logits import torch as torch_vocabulary

        return torch_vocabulary.sloped(loss, logits, slope, floor)
    from loopless.arrays.logits import jax as jax_vocabulary

    return jax_vocabulary.sloped(floor, logits, loss, slope)


def is_wanted(library: Library, logits) -> bool:
    """Whether a gradient by the logits can be asked for, where values are seen."""
    return library is not NUMPY and logits.requires_grad and library.xp.is_grad_enabled()


def written(loss, logits, gradient):
    """`loss`, a number, with this derivative by `logits`, which are PyTorch's."""
    from loopless.arrays.logits import torch as torch_vocabulary

    return torch_vocabulary.written(loss, logits, gradient)


def host_gradient(logits, slope, floor: float):
    """The slope written out, an array like the logits, where values are seen; else None."""
    library = library_of(logits)
    seen = None if library is None else host(library, logits, *slope)
    if library is None or seen is None:
        return None
    return back(library, numpy_vocabulary.gradient(seen[0], slope._make(seen[1:]), floor))


def back(library: Library, x):
    """What `host` showed, or what was made of it, as the library's own; numbers as they are."""
    if library is NUMPY or not isinstance(x, np.ndarray | np.generic):
        return x
    return library.xp.from_numpy(np.asarray(x))
