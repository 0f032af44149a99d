"""In which shapes functions want their arrays: time first, batch first, one environment, lists.

A layout puts a case's arrays ([T, B] with time first, or [B]) into the shape that a function wants
and reads its answers back. One that is `split` calls the function once for each column or sample.
Imports NumPy. Tests: `tests/verify/test_plans.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

OVER_TIME = ("rows", "flags", "rows+1")
ENDS = ("last", "last_flag", "last_count")
SAMPLES = ("vector", "vector_flags", "actions")


@dataclass(frozen=True)
class Layout:
    """How arrays are put and read; `keep` says whether the last row keeps its axis."""

    name: str
    words: str
    put: Callable[[str, np.ndarray, bool], Any]
    get: Callable[[str, np.ndarray], np.ndarray]
    split: bool = False
    lists: bool = False


def _time(kind, x, keep):
    return x[None] if keep and kind in ENDS else x


def _batch(kind, x, keep):
    if kind in OVER_TIME:
        return np.ascontiguousarray(x.T)
    return x[:, None] if keep and kind in ENDS else x


def _trailing(kind, x, keep):
    if kind in OVER_TIME:
        return np.ascontiguousarray(x.T)[..., None]
    return x[:, None] if kind in ENDS and not keep else x


def _one(kind, x, keep):
    """Of a single column or sample, which arrives without its batch axis."""
    if kind in (*ENDS, *SAMPLES):
        return np.reshape(x, (1,)) if keep else x.item()
    return x


def _list(kind, x, keep):
    found = _one(kind, x, keep)
    return found.tolist() if isinstance(found, np.ndarray) else found


def _column(kind, x, keep):
    return x[:, None] if kind in SAMPLES else x


def _turned(kind, y):
    return y.T if kind == "rows" and y.ndim == 2 else y


def _flattened(kind, y):
    return y[..., 0].T if kind == "rows" and y.ndim == 3 and y.shape[-1] == 1 else y


def _plain(kind, y):
    return y


def _uncolumn(kind, y):
    return y[:, 0] if kind == "vector" and y.ndim == 2 and y.shape[1] == 1 else y


TIME = Layout("time", "[T, B] arrays", _time, _plain)
BATCH = Layout("batch", "[B, T] arrays", _batch, _turned)
TRAILING = Layout("trailing", "[B, T, 1] arrays", _trailing, _flattened)
SINGLE = Layout("single", "one environment at a time", _one, _plain, split=True)
LISTS = Layout("lists", "lists, one environment at a time", _list, _plain, split=True, lists=True)
ROWS = Layout("rows", "[B] arrays", lambda kind, x, keep: x, _plain)
COLUMNS = Layout("columns", "[B, 1] arrays", _column, _uncolumn)
SAMPLE = Layout("sample", "one sample at a time", _one, _plain, split=True)

OF_TIME = (TIME, BATCH, TRAILING, SINGLE, LISTS)
OF_ROWS = (ROWS, COLUMNS, SAMPLE)
LAYOUTS = {layout.name: layout for layout in (*OF_TIME, *OF_ROWS)}


def parts(kind: str, x: Any, index: int) -> Any:
    """What of an argument belongs to one column, or to one sample."""
    if not isinstance(x, np.ndarray):
        return x
    if kind in OVER_TIME:
        return x[:, index]
    return x[index] if kind in (*ENDS, *SAMPLES, "matrix") else x


def joined(kind: str, pieces: list[np.ndarray]) -> np.ndarray:
    """The answers for all columns or samples, put together again."""
    if kind == "rows":
        return np.stack(pieces, axis=1)
    if kind == "scalar":
        return np.mean(np.array(pieces), axis=0)
    return np.concatenate([np.reshape(piece, (1,)) for piece in pieces])
