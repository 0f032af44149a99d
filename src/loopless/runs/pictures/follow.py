"""A log that grows, read as it grows: every line once, kept as columns.

A picture every few seconds must not read a long run from its beginning each time, nor hold it as
dictionaries. Imports NumPy. Tests: `tests/runs/test_renderer.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from loopless.runs import metrics

BLOCK = 1 << 22  # bytes that are read at once
Columns = dict[str, np.ndarray]


class Log:
    """What `metrics.jsonl` says up to the last `refresh`."""

    def __init__(self, path: Path):
        self._path = Path(path)
        self._forget()

    def _forget(self) -> None:
        self._identity, self._read, self._rest = None, 0, b""
        self.train: Columns = metrics.columns([], "train")
        self.evaluations: Columns = metrics.columns([], "eval")
        self.events: list[dict[str, Any]] = []

    def refresh(self) -> Iterator[list[dict[str, Any]]]:
        """Read what is new, and yield it block by block.

        A log that was trimmed is another file, and is read from its beginning.
        """
        try:
            file = open(self._path, "rb")  # noqa: SIM115
        except FileNotFoundError:
            return
        with file:
            found = os.fstat(file.fileno())
            identity = (found.st_dev, found.st_ino)
            if identity != self._identity or found.st_size < self._read:
                self._forget()
                self._identity = identity
            file.seek(self._read)
            while block := file.read(BLOCK):
                self._read += len(block)
                # What follows the last newline is being written; it is read next time.
                *lines, self._rest = (self._rest + block).split(b"\n")
                rows = [row for row in map(metrics._row, lines) if row is not None]
                self._take(rows)
                yield rows

    def _take(self, rows: list[dict[str, Any]]) -> None:
        self.train = _joined(self.train, metrics.columns(rows, "train"))
        self.evaluations = _joined(self.evaluations, metrics.columns(rows, "eval"))
        self.events += [row for row in rows if row["kind"] == "event"]


def _joined(old: Columns, new: Columns) -> Columns:
    """The rows of both; NaN where one of them lacks a column."""
    if not len(new["step"]):
        return old
    return {name: _stacked(name, old, new) for name in {**old, **new}}


def _stacked(name: str, *parts: Columns) -> np.ndarray:
    given = [part[name] for part in parts if name in part]
    # One number a seed, if ever there was one; what does not fit is no number of these seeds.
    shape = max((array.shape[1:] for array in given), key=len)
    padded = [
        part[name]
        if name in part and part[name].shape[1:] == shape
        else np.full((len(part["step"]), *shape), np.nan)
        for part in parts
    ]
    return np.concatenate(padded)
