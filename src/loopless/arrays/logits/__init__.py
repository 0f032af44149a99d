"""Rows of logits over a vocabulary, in any of the three libraries.

A loss of such rows needs little of each: the largest entries, the log-sum-exp, the entropy, a few
single logits. Its derivative is dense, but two numbers a row and a few tokens describe it. So
kernels compute on [..., few] arrays only, and what goes over the whole vocabulary is done here, in
chunks of rows: beside the gradient no further array of the logits' size is made.

`numpy.py` calls compiled code, for NumPy arrays and for PyTorch tensors in eager execution on the
CPU; `torch.py` and `jax.py` do the same in their library's operations, for everything else. Neither
is imported before an array of its library is there.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from loopless.arrays import dispatch
from loopless.arrays.dispatch import on_host
from loopless.arrays.library import NUMPY, Library
from loopless.arrays.logits import numpy as host
from loopless.arrays.logits.numpy import Difference, Slope, Survey

__all__ = ["Difference", "Slope", "Survey", "divergence", "survey", "take", "with_slope"]


def survey(library: Library, logits, k: int, rate, floor: float, counted, refuse: Callable):
    """Return the survey of logits [..., V], in float32 or float64.

    On the host, the first counted row that is no distribution (NaN, +inf, or nothing above −inf)
    raises refuse(position); elsewhere such rows come out NaN. The results of rows that are not
    counted may be anything.
    """
    views = on_host(library, logits, counted)
    if views is None:
        return Survey._make(_engine(library).survey(logits, k, rate, floor))
    fields, unsound = host.survey(views[0], k, rate, floor, views[1])
    if unsound >= 0:
        raise refuse(np.unravel_index(unsound, tuple(logits.shape[:-1])))
    return Survey._make(_from_host(library, x) for x in fields)


def divergence(library: Library, logits, slope: Difference):
    """Return Σ q (log q − log π) of each row [...]."""
    views = on_host(library, logits, *slope)
    if views is None:
        return _engine(library).divergence(logits, slope)
    return _from_host(library, host.divergence(views[0], slope._make(views[1:])))


def take(library: Library, logits, tokens, dtype):
    """Return logits[..., tokens] of tokens [..., w]; in JAX NaN where there is no such token."""
    if library is NUMPY:
        return np.take_along_axis(logits, tokens, -1).astype(dtype, copy=False)
    if library.name == "torch":
        return logits.gather(-1, tokens).to(dtype)
    return _engine(library).take(logits, tokens).astype(dtype)


def with_slope(library: Library, loss, logits, slope: Slope | Difference, floor: float = 0.0):
    """Return `loss`, a scalar, with the derivative by `logits` that the slope describes."""
    if library is NUMPY:
        return loss
    if library.name == "torch" and not (logits.requires_grad or dispatch.is_traced(library.xp)):
        return loss
    return _engine(library).with_slope(loss, logits, slope, floor)


def _engine(library: Library) -> Any:
    if library.name == "torch":
        from loopless.arrays.logits import torch as engine
    else:
        from loopless.arrays.logits import jax as engine
    return engine


def _from_host(library: Library, x):
    """Return an array of `numpy.py` as one of the library."""
    return x if library is NUMPY else library.xp.from_numpy(np.ascontiguousarray(x))
