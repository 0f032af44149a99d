"""Where the data of a host buffer are: in memory (here), or in mapped files (`memmap`).

A buffer asks a storage for its arrays once, announces which rows it is about to overwrite, and,
if it is in files, says what state a flush makes permanent. Before anything is allocated,
`check_bytes_fit` compares the bytes with what is free.
"""

import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from loopless import process
from loopless.refusals import check_choice, refuse
from loopless.replay.fields import Field

CACHE_LINE = 64  # bytes


class Memory:
    """Arrays in memory, gone with the process."""

    in_files = False
    closed = False
    place = ""

    def free_bytes(self) -> int | None:
        return process.free_memory_bytes()

    def allocate(self, name: str, rows: int, width: int) -> np.ndarray:
        """Return `rows`·`width` bytes, all 0, aligned to a cache line."""
        block = np.zeros(rows * width + CACHE_LINE, np.uint8)
        first = -block.ctypes.data % CACHE_LINE
        return block[first : first + rows * width]

    def before_write(self, first: int, count: int) -> None:
        """Do nothing before `count` rows from `first` on are overwritten; `MemMap` saves them."""

    def flush(self, kind: str, settings, state, used: int) -> None:
        raise RuntimeError(
            f'{kind}.flush: the buffer is in memory. Use save(path), or storage="memmap".'
        )

    def close(self) -> None:
        """Do nothing: no file is open."""


def choose_storage(where: str, storage, path) -> Any:
    """Return the storage that the arguments `storage` and `path` of a constructor ask for."""
    if not isinstance(storage, str) and storage is not None:
        return storage  # of a buffer that is opened again
    problems = check_choice("storage", storage, ("memory", "memmap"))
    if not problems and (storage == "memmap") != (path is not None):
        problems.append(
            'storage="memmap" needs path, a new folder'
            if path is None
            else f'path={path!r} is for storage="memmap"'
        )
    refuse(where, problems)
    if storage == "memory":
        return Memory()
    from loopless.replay.storage.memmap import MemMap  # needs a Unix

    return MemMap(where, path, new=True)


def check_bytes_fit(
    where: str,
    extent: str,
    rows: int,
    fields: Mapping[str, Field],
    library,
    advice: str,
    *,
    storage: Any = None,
) -> int:
    """Return the bytes of `rows` rows of all `fields`; raise if not as many are free.

    `extent` describes the rows for the caller, such as "1,000 steps × 8 envs". They go to
    `storage`, by default the memory of `library`. From a gigabyte up the size is printed to stderr:
    the system provides memory only when it is first written, and may run out of it hours later.
    """
    total, free = count_bytes(rows, fields, library), (storage or library).free_bytes()
    if free is not None and total > free:
        parts = {name: count_bytes(rows, {name: f}, library) for name, f in fields.items()}
        largest = max(parts, key=lambda name: parts[name])
        raise ValueError(
            f"{where}: {extent} need {readable_bytes(total)}, of which {largest} "
            f"{fields[largest]} takes {readable_bytes(parts[largest])}; {readable_bytes(free)} is "
            f"free. {advice}"
        )
    if total >= 10**9:
        print(f"{where}: {extent} take {readable_bytes(total)}.", file=sys.stderr)
    return total


def count_bytes(rows: int, fields: Mapping[str, Field], library) -> int:
    """Return the bytes of `rows` rows of all `fields`."""
    return rows * sum(
        math.prod(field.shape) * library.dtype(field.dtype).itemsize for field in fields.values()
    )


def readable_bytes(count: int) -> str:
    """Return 12_345_678 as "12.3 MB"."""
    power = min(4, (len(str(count)) - 1) // 3)
    return f"{count:,} bytes" if power == 0 else f"{count / 1000**power:,.1f} {'_kMGT'[power]}B"
