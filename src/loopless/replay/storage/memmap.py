"""A buffer in the files of one folder, which may be larger than memory.

    packed rows.bin, …     the arrays, mapped into memory
    buffer.safetensors     settings and state at the last flush, replaced at once (`file`)
    journal                what was overwritten since (`Journal`)
    lock                   held by the one process that writes

It needs a Unix, so it is imported only for buffers that are in files.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import shutil
import weakref
import zlib
from collections.abc import Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from loopless.files.atomic import synchronize
from loopless.replay.storage import file, memory

STATE, LOCK = "buffer.safetensors", "lock"
BLOCK = 1 << 20  # bytes of a block of rows in the journal, about
HEAD = np.dtype([("flush", "<i8"), ("array", "<i8"), ("start", "<i8"), ("size", "<i8"),
                 ("check", "<i8")])  # fmt: skip


class MemMap:
    """Arrays in the files of one folder, written by one process.

    A flush makes rows and state permanent, both or neither. What is overwritten after it is saved
    in the journal, so that whoever opens the folder after a crash finds the last flush.
    """

    in_files = True

    def __init__(self, where: str, path, *, new: bool) -> None:
        self.where, self.folder = where, Path(path)
        self.place = f" in {self.folder}"
        if new:
            self._make()
        elif not (self.folder / STATE).is_file():
            raise FileNotFoundError(f"{where}: {self.folder} holds no flushed buffer.")
        self._journal = Journal(self.folder / "journal")
        self._lock = _lock(where, self.folder / LOCK)
        self._new, self._owner = new, os.getpid()
        _OPEN.add(self)
        self._maps: dict[str, mmap.mmap] = {}
        self._flushes = 0

    def _make(self) -> None:
        try:
            self.folder.mkdir(exist_ok=True)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{self.where}: there is no folder {self.folder.parent}. Create it."
            ) from None
        if set(os.listdir(self.folder)) - {LOCK}:
            raise FileExistsError(
                f"{self.where}: {self.folder} is not empty. Reopen a buffer there with "
                f"{self.where}.open, or pass another path."
            )

    def free_bytes(self) -> int | None:
        return shutil.disk_usage(self.folder).free if self._new else None

    def allocate(self, name: str, rows: int, width: int) -> np.ndarray:
        """Return the bytes of the file `name`: new and all 0, or as they were last time."""
        path, size = self.folder / f"{name}.bin", rows * width
        if size == 0:
            return np.zeros(0, np.uint8)
        handle = os.open(path, os.O_RDWR | (os.O_CREAT | os.O_EXCL if self._new else 0), 0o644)
        try:
            if self._new:  # all of it now: a full disk would kill whoever writes to the map later
                _reserve(self.where, handle, size)
            elif os.fstat(handle).st_size != size:
                actual = os.fstat(handle).st_size
                raise ValueError(
                    f"{self.where}: {path} has {actual:,} bytes, expected {size:,}. It is damaged."
                )
            self._maps[name] = mapped = mmap.mmap(handle, size)
        finally:
            os.close(handle)
        mapped.madvise(mmap.MADV_RANDOM)  # because draws are random
        array = np.frombuffer(mapped, np.uint8)
        self._journal.watch(array, width)
        return array

    def read(self, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the settings and the state of the last flush."""
        settings, state = file.read(self.folder / STATE, kind, self.where)
        self._flushes = state.pop("flushes")
        return settings, state

    def roll_back(self, used: int) -> None:
        """Bring the rows back to the last flush, when the first `used` of them held data."""
        self._journal.roll_back(self._flushes)
        self._synchronize()
        self._journal.begin(self._flushes, used)

    def before_write(self, first: int, count: int) -> None:
        """Save the flushed content of `count` rows from `first` on, before it is overwritten."""
        if os.getpid() != self._owner:
            raise RuntimeError(
                f"{self.where}: the buffer{self.place} is written by process {self._owner}, of "
                f"which this is a fork. Add in that process."
            )
        if self._lock is None:
            raise RuntimeError(f"{self.where}: the buffer{self.place} was closed. Open it again.")
        self._journal.before_write(first, count)

    def flush(
        self, kind: str, settings: Mapping[str, Any], state: Mapping[str, Any], used: int
    ) -> None:
        """Make all rows and `state` permanent; only the first `used` rows hold something."""
        self.before_write(0, 0)
        self._synchronize()
        state = dict(state) | {"flushes": self._flushes + 1}
        file.write(self.folder / STATE, kind, settings, state)
        self._flushes += 1
        self._journal.begin(self._flushes, used)

    def close(self) -> None:
        """Release the lock, so that other processes may write."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
            self._journal.close()

    @property
    def closed(self) -> bool:
        return self._lock is None

    def __del__(self) -> None:
        if getattr(self, "_lock", None) is not None:
            self.close()

    def _synchronize(self) -> None:
        for mapped in self._maps.values():
            mapped.flush()


_OPEN: weakref.WeakSet[MemMap] = weakref.WeakSet()


def _close_in_fork() -> None:
    """Release the locks in a forked child: they belong to the parent, and end with the parent."""
    for storage in _OPEN:
        storage.close()


os.register_at_fork(after_in_child=_close_in_fork)


def _lock(where: str, path: Path) -> int:
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        owner = os.read(handle, 32).decode("ascii", "replace")
        os.close(handle)
        if problem.errno not in (errno.EAGAIN, errno.EACCES):
            raise OSError(
                problem.errno,
                f"{where}: cannot lock {path}: {problem.strerror}. Its file system may have no "
                f"locks (flock); use a folder on another disk",
            ) from None
        raise RuntimeError(
            f"{where}: {path.parent} is open in process {owner or '(unknown)'}. Close it there."
        ) from None
    os.ftruncate(handle, 0)
    os.write(handle, str(os.getpid()).encode())
    return handle


def _reserve(where: str, handle: int, size: int) -> None:
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, size)
        else:
            os.ftruncate(handle, size)
    except OSError as problem:
        if problem.errno != errno.ENOSPC:
            raise
        raise OSError(
            errno.ENOSPC, f"{where}: the disk has no room for {memory.readable_bytes(size)}"
        ) from None


class Journal:
    """A file of what was flushed and then overwritten, so that a crash can be undone.

    Rows are saved in blocks. Before the first write to a block since the last flush, its old bytes
    are appended here and forced to the disk. If a record is cut off, its block was therefore never
    overwritten, and reading stops there.
    """

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
