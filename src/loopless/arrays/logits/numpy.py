"""Rows of logits on NumPy arrays: memory for the results, and calls of `compiled.logits`.

Logits of float32 and float64 are read in place, whatever slice of a larger array they are; others
are converted a chunk of rows at a time. The records that all three libraries use stand here too.
"""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from loopless.arrays.dispatch import empty
from loopless.arrays.library import NUMPY

CHUNK = 1 << 20  # numbers converted at a time


class Survey(NamedTuple):
    """What a loss needs of rows [..., V]; π is the softmax of the row times `rate`."""

    top: Any  # [..., k], the tokens of the largest entries, largest first
    peak: Any  # [...], the largest entry
    log_total: Any  # [...], log Σ e^((x − peak)·rate)
    entropy: Any  # [...], −Σ π log(π + floor)
    mean: Any  # [...], Σ π h, for the h of `Slope`


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


class Difference(NamedTuple):
    """The derivative of a divergence between rows: α (π_j − q_j), where q belongs to other rows."""

    peak: Any
    log_total: Any
    others: Any  # [..., V]
    other_peak: Any
    other_log_total: Any
    alpha: Any  # [...]
    counted: Any  # [...] or None for all
    rate: Any


def survey(logits, k: int, rate, floor, counted) -> tuple[Survey, int]:
    """Return the survey, and the first counted row that is no distribution, or −1."""
    shape, size, wide = logits.shape[:-1], logits.shape[-1], NUMPY.wide(logits.dtype)
    count, first_unsound = math.prod(shape), -1
    top, numbers = np.empty((k, count), np.int64), np.empty((4, count), wide)
    for rows, memory, starts in _pieces(logits, wide):
        part, entries = np.empty((k, starts.size), np.int64), np.empty((k, starts.size), wide)
        summary = np.empty((3, starts.size), wide)
        mask = None if counted is None else counted.ravel()[rows]
        call = memory, starts, size, wide.type(rate)
        unsound = _kernels().survey(*call, mask, part, entries, summary)
        means = -summary[-1]
        if floor:
            _kernels().floored_sums(*call, wide.type(floor), mask, summary, means)
        top[:, rows], numbers[:3, rows], numbers[3, rows] = part, summary, means
        if unsound >= 0 and first_unsound < 0:
            first_unsound = rows.start + unsound
    return Survey(top.T.reshape(*shape, k), *numbers.reshape(4, *shape)), first_unsound


def gradient(logits, slope: Slope | Difference, floor) -> np.ndarray:
    """Return the derivative that the slope describes, [..., V], in the logits' own dtype."""
    shape, wide, size = logits.shape[:-1], NUMPY.wide(logits.dtype), logits.shape[-1]
    out = empty((math.prod(shape), size), logits.dtype)
    for rows, call, part, others in _calls(logits, slope, wide):
        here = out[rows] if wide == logits.dtype else np.empty((call[1].size, size), wide)
        row = part["counted"], part["peak"], part["log_total"], part["alpha"]
        if others is None:
            tokens, less = (np.ascontiguousarray(part[name].T) for name in ("tokens", "less"))
            _kernels().slopes(*call, wide.type(floor), *row, part["beta"], tokens, less, here)
        else:
            _kernels().differences(*call, *row, others, here)
        if wide != logits.dtype:
            out[rows] = here
    return out.reshape(logits.shape)


def divergence(logits, slope: Difference) -> np.ndarray:
    """Return Σ q (log q − log π) of each row."""
    shape, wide = logits.shape[:-1], NUMPY.wide(logits.dtype)
    out = np.empty(math.prod(shape), wide)
    for rows, call, part, others in _calls(logits, slope, wide):
        row = part["counted"], part["peak"], part["log_total"]
        _kernels().divergences(*call, *row, others, out[rows])
    return out.reshape(shape)


def run_over_rows(kernel: Callable, x, other, fields, out, wide) -> list[int]:
    """Call kernel(rows of x, rows of the other, rows of the fields and of `out`) over all rows.

    Rows of logits are given as memory and starts; fields and `out` are [N, ...], the latter in its
    own dtype. The kernel returns the first row of each that is no distribution, or −1, and so does
    this function.
    """
    others, pieces = _pieces_beside(x, other, wide)
    for rows, *logits in pieces:
        here = out[rows] if out.dtype == wide else np.empty(out[rows].shape, wide)
        unsound = kernel(tuple(logits), next(others)[1:], *[field[rows] for field in fields], here)
        if max(unsound) >= 0:
            return [row + rows.start if row >= 0 else row for row in unsound]
        if out.dtype != wide:
            out[rows] = here
    return [-1, -1]


def _calls(logits, slope, wide) -> Iterator[tuple]:
    """Yield runs of rows: which they are, the first arguments of a kernel, the slope's fields.

    The last item is what a kernel takes for the other rows of a `Difference`, None for a `Slope`.
    """
    fields = _flat(slope, wide)
    others, pieces = _pieces_beside(logits, getattr(slope, "others", None), wide)
    for rows, memory, starts in pieces:
        part = {name: None if x is None else x[rows] for name, x in fields.items()}
        call = memory, starts, logits.shape[-1], wide.type(slope.rate)
        other = None
        if others is not None:
            other = *next(others)[1:], part["other_peak"], part["other_log_total"]
        yield rows, call, part, other


def _flat(slope, wide) -> dict[str, Any]:
    """Return the slope's fields by row: [...] becomes [N] and [..., w] becomes [N, w]."""
    count, axes = slope.peak.size, slope.peak.ndim
    fields = {}
    for name, x in slope._asdict().items():
        if x is None:
            fields[name] = None
        elif name not in ("rate", "others"):
            x = x if x.dtype.kind in "bi" else x.astype(wide, copy=False)
            fields[name] = np.ascontiguousarray(x.reshape(count, *x.shape[axes:]))
    return fields


def _pieces_beside(x, other, wide) -> tuple[Any, Iterator]:
    """Return pieces of the other array (None without one) and of x, cut at the same rows."""
    if other is None:
        return None, _pieces(x, wide)
    whole = _in_place(x, wide) and _in_place(other, wide)
    return _pieces(other, wide, whole), _pieces(x, wide, whole)


def _in_place(x: np.ndarray, wide) -> bool:
    """Return whether rows can be read in place."""
    flags = x.flags
    return (
        x.dtype == wide
        and x.size > 0
        and flags.writeable  # Numba compiles read-only arrays anew
        and flags.aligned
        and (x.shape[-1] == 1 or x.strides[-1] == x.itemsize)
        and min(x.strides) >= 0
    )


def _pieces(
    x: np.ndarray, wide, whole: bool = True
) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Yield runs of rows of x [..., V]: which rows, flat memory, where in it each row starts."""
    *shape, size = x.shape
    count = math.prod(shape)
    item = x.itemsize
    if whole and _in_place(x, wide):
        steps = [stride // item for stride in x.strides[:-1]]
        ends = [step * (n - 1) for step, n in zip(steps, shape, strict=True)]
        memory = as_strided(x, (sum(ends) + size,), (item,))
        starts = np.zeros(shape, np.int64)
        for axis, step in enumerate(steps):
            starts += (np.arange(shape[axis]) * step).reshape([-1] + [1] * (len(shape) - axis - 1))
        yield slice(0, count), memory, starts.ravel()
        return
    length = max(1, CHUNK // size)
    for first in range(0, count, length):
        rows = slice(first, min(first + length, count))
        places = np.unravel_index(np.arange(rows.start, rows.stop), tuple(shape))
        part = np.ascontiguousarray(x[places], wide)
        yield rows, part.ravel(), np.arange(len(part)) * size


@functools.cache
def _kernels() -> Any:
    from loopless.compiled import logits

    return logits
