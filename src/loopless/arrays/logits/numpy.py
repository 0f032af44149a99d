"""Rows of logits on NumPy arrays: outputs allocated, memory told to the Numba kernels.

Logits of float32 and float64 are read where they lie, whatever slice of an array they are; others
are converted a chunk of rows at a time. Tests: `tests/arrays/test_vocabulary.py`.
"""

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from loopless.arrays.dispatch import empty
from loopless.arrays.library import NUMPY

CHUNK = 1 << 20  # numbers converted at a time


def survey(logits, k: int, rate, floor, counted) -> tuple[tuple[Any, ...], int]:
    """The fields of a `vocabulary.Survey`, and the first row that is no distribution, or −1."""
    shape, wide = logits.shape[:-1], NUMPY.wide(logits.dtype)
    count = math.prod(shape)
    top = np.empty((count, k), np.int64)
    numbers = np.empty((4, count), wide)
    kernel = _survey_of(count, logits.shape[-1])
    for rows, memory, starts in _pieces(logits, wide):
        wrong = kernel(
            memory,
            starts,
            logits.shape[-1],
            wide.type(rate),
            wide.type(floor),
            None if counted is None else counted.ravel()[rows],
            top[rows],
            *numbers[:, rows],
        )
        if wrong >= 0:
            return (), rows.start + wrong
    return (top.reshape(*shape, k), *numbers.reshape(4, *shape)), -1


def gradient(logits, slope, floor) -> np.ndarray:
    """A `vocabulary.Slope` or `Apart` written out, in the logits' own dtype."""
    shape, wide, size = logits.shape[:-1], NUMPY.wide(logits.dtype), logits.shape[-1]
    count = math.prod(shape)
    out = empty((count, size), logits.dtype)
    fields = _flat(slope, wide)
    others, pieces = _pieces_beside(logits, getattr(slope, "others", None), wide)
    for rows, memory, starts in pieces:
        here = out[rows] if wide == logits.dtype else np.empty((starts.size, size), wide)
        call = memory, starts, size, wide.type(slope.rate)
        part = {name: None if x is None else x[rows] for name, x in fields.items()}
        if others is None:
            _kernels().slopes(
                *call,
                wide.type(floor),
                part["counted"],
                part["peak"],
                part["log_total"],
                part["alpha"],
                part["beta"],
                part["tokens"],
                part["less"],
                here,
            )
        else:
            _kernels().differences(*call, *_apart(part), part["alpha"], _other(part, others), here)
        if wide != logits.dtype:
            out[rows] = here
    return out.reshape(logits.shape)


def divergence(logits, slope) -> np.ndarray:
    """Σ q (log q − log π) of each row, for a `vocabulary.Apart`."""
    shape, wide = logits.shape[:-1], NUMPY.wide(logits.dtype)
    out = np.empty(math.prod(shape), wide)
    fields = _flat(slope, wide)
    others, pieces = _pieces_beside(logits, slope.others, wide)
    for rows, memory, starts in pieces:
        part = {name: None if x is None else x[rows] for name, x in fields.items()}
        call = memory, starts, logits.shape[-1], wide.type(slope.rate)
        _kernels().divergences(*call, *_apart(part), _other(part, others), out[rows])
    return out.reshape(shape)


def both(kernel, x, other, fields, out, wide) -> list[int]:
    """kernel(rows of x, rows of the other, rows of the fields and of `out`), over all rows.

    Rows of logits are told as memory and starts, fields and `out` are [N, ...], the latter in its
    own dtype. The kernel returns the first rows of either that are no distribution, or −1.
    """
    others, pieces = _pieces_beside(x, other, wide)
    for rows, *own in pieces:
        here = out[rows] if out.dtype == wide else np.empty(out[rows].shape, wide)
        wrong = kernel(tuple(own), next(others)[1:], *[field[rows] for field in fields], here)
        if max(wrong) >= 0:
            return [row + rows.start if row >= 0 else row for row in wrong]
        if out.dtype != wide:
            out[rows] = here
    return [-1, -1]


def _apart(part: dict) -> tuple[Any, ...]:
    return part["counted"], part["peak"], part["log_total"]


def _other(part: dict, others: Iterator) -> tuple[Any, ...]:
    _, memory, starts = next(others)
    return memory, starts, part["other_peak"], part["other_log_total"]


def _flat(slope, wide) -> dict[str, Any]:
    """The slope's fields by row: [...] becomes [N] and [..., w] becomes [N, w]."""
    count = slope.peak.size
    found = {}
    for name, x in zip(slope._fields, slope, strict=True):
        if name not in ("rate", "others"):
            x = x if x is None or x.dtype.kind in "bi" else x.astype(wide, copy=False)
            found[name] = (
                x
                if x is None
                else np.ascontiguousarray(x.reshape(count, *x.shape[slope.peak.ndim :]))
            )
    return found


def _pieces_beside(x, other, wide) -> tuple[Any, Iterator]:
    """Pieces of the other array, if there is one, and those of x: of the same rows."""
    if other is None:
        return None, _pieces(x, wide)
    whole = _in_place(x, wide) and _in_place(other, wide)
    return _pieces(other, wide, whole), _pieces(x, wide, whole)


def _in_place(x: np.ndarray, wide) -> bool:
    """Whether rows can be read where they lie."""
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
    """Runs of rows of x [..., V]: which they are, flat memory, and where in it each row starts."""
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


def _survey_of(count: int, size: int) -> Any:
    """The faster of two ways to survey so many rows of so many tokens."""
    from loopless.compiled import short_logits as short

    return short.survey if size <= short.SHORT and count >= short.MANY else _kernels().survey


@functools.cache
def _kernels() -> Any:
    from loopless.compiled import logits as numba_vocabulary

    return numba_vocabulary
