"""Where the rows of a buffer on the host lie: in memory, or in files (`memmap`).

A buffer asks for its arrays once, announces which rows it is about to overwrite, and, if it lies
in files, says what state a flush makes permanent. Imports `memory` and `refusals`; `memmap` for
buffers that ask for it, because it needs a Unix. Tests: `tests/replay/test_memmap.py`.
"""

from typing import Any

import numpy as np

from loopless.refusals import check_choice, refuse
from loopless.replay.storage import size as memory

LINE = 64  # bytes in a cache line


class Memory:
    """Arrays in memory, gone with the process."""

    watched = False
    closed = False
    place = ""

    def free_bytes(self) -> int | None:
        return memory.free_memory_bytes()

    def allocate(self, name: str, rows: int, width: int) -> np.ndarray:
        """`rows`·`width` bytes, all 0, beginning with a cache line."""
        block = np.zeros(rows * width + LINE, np.uint8)
        first = -block.ctypes.data % LINE
        return block[first : first + rows * width]

    def before_write(self, first: int, count: int) -> None:
        """Rows from `first` on are about to be overwritten."""

    def flush(self, kind: str, settings, state, used: int) -> None:
        raise RuntimeError(
            f'{kind}.flush: the buffer lies in memory. Use save(path), or storage="memmap".'
        )

    def close(self) -> None:
        """Nothing is held."""


def storage_of(where: str, storage, path) -> Any:
    """What the arguments `storage` and `path` of a constructor stand for."""
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
    from loopless.replay.storage.memmap import MemMap

    return MemMap(where, path, new=True)
