"""A file of what was flushed and then overwritten, so that a crash can be undone.

Rows are saved in blocks. Before the first write to a block since the last flush, its old bytes are
appended here and forced to the disk. If a record is cut off, its block was therefore never
overwritten, and reading stops there. `memmap` uses it.
"""

import contextlib
import os
import zlib
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from loopless.files.atomic import synchronize

BLOCK = 1 << 20  # bytes, about
HEAD = np.dtype([("flush", "<i8"), ("array", "<i8"), ("start", "<i8"), ("size", "<i8"),
                 ("check", "<i8")])  # fmt: skip


class Journal:
    """The journal in the file `path` for arrays of bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.arrays: list[tuple[np.ndarray, int]] = []  # bytes, and how many a row takes
        self._flush = self._rows = 0
        self._block = 1
        self._saved = np.zeros(0, bool)  # for each block, whether it is saved
        self._file: BinaryIO | None = None

    def watch(self, array: np.ndarray, width: int) -> None:
        """Add an array whose rows have `width` bytes."""
        self.arrays.append((array, width))

    def begin(self, flush: int, used: int) -> None:
        """Start anew: flush number `flush` made the first `used` rows permanent."""
        self.close()
        self.path.unlink(missing_ok=True)
        self._flush, self._rows = flush, used
        self._block = max(1, BLOCK // max(1, sum(width for _, width in self.arrays)))
        self._saved = np.zeros(-(-used // self._block), bool)

    def close(self) -> None:
        """Close the file and leave it as it is."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def before_write(self, first: int, count: int) -> None:
        """Save the blocks of rows `first` to `first + count` that are not saved yet."""
        if first >= self._rows or count == 0:
            return
        low, high = first // self._block, -(-min(first + count, self._rows) // self._block)
        if self._saved[low:high].all():
            return
        blocks = low + np.flatnonzero(~self._saved[low:high])
        runs = np.split(blocks, np.flatnonzero(np.diff(blocks) > 1) + 1)
        self._append([(int(run[0]) * self._block, int(run[-1] + 1) * self._block) for run in runs])
        self._saved[blocks] = True

    def roll_back(self, flush: int) -> None:
        """Put back what was overwritten since flush number `flush`."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            for head, data in iter(partial(_next_record, file, flush), None):
                array, _width = self.arrays[head["array"]]
                array[head["start"] : head["start"] + head["size"]] = data

    def _append(self, runs: list[tuple[int, int]]) -> None:
        """Save these rows of every array; if that fails, the file is as before."""
        if self._file is None:
            self._file = self.path.open("ab")
            synchronize(self.path.parent)
        end = self.path.stat().st_size
        try:
            for (start, stop), (number, (array, width)) in product(runs, enumerate(self.arrays)):
                data = array[start * width : min(stop, self._rows) * width]
                head = np.zeros((), HEAD)
                head["flush"], head["array"] = self._flush, number
                head["start"], head["size"] = start * width, data.size
                head["check"] = _check(head, data)
                self._file.write(head.tobytes())
                self._file.write(data.data)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None
            os.truncate(self.path, end)
            raise


def _next_record(file: BinaryIO, flush: int) -> Any:
    """Return the next (head, data) of this flush; None if there is no complete one."""
    text = file.read(HEAD.itemsize)
    if len(text) < HEAD.itemsize:
        return None
    head = np.frombuffer(text, HEAD)[0]
    if head["flush"] != flush or head["size"] < 0:
        return None
    data = np.frombuffer(file.read(min(head["size"], os.fstat(file.fileno()).st_size)), np.uint8)
    return (head, data) if _check(head, data) == head["check"] else None


def _check(head, data: np.ndarray) -> int:
    """Return the checksum of a record without its last field, the checksum."""
    return zlib.crc32(data.data, zlib.crc32(head.tobytes()[: -HEAD["check"].itemsize]))
