"""Memory for results, used again once nobody holds it.

Fresh pages must be zeroed by the kernel of the operating system on first touch, which for large
results costs more than the scan itself. A training loop drops the last results before or soon
after it asks for the next ones, so a few blocks are kept and handed out again: a block is free
when nothing but this list refers to it, since every view of an array refers to its owner.
"""

import math
import sys
from threading import Lock

import numpy as np

SMALLEST = 1 << 17  # bytes; malloc recycles smaller blocks itself
BLOCKS = 8
BYTES = 256 << 20  # at most so much is kept

_blocks: list[np.ndarray] = []
_lock = Lock()


def _references(blocks: list[np.ndarray], place: int) -> int:
    return sys.getrefcount(blocks[place])


# Interpreters differ in how many references a call itself holds, so the count of a block that only
# its list refers to is measured, not assumed.
_FREE = _references([np.empty(1, np.uint8)], 0)
# Without the interpreter's lock a count proves nothing.
_COUNTED = getattr(sys, "_is_gil_enabled", lambda: True)()


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An uninitialised array, like `np.empty`."""
    size = math.prod(shape) * dtype.itemsize
    if not SMALLEST <= size <= BYTES // 2:
        return np.empty(shape, dtype)
    # Never waits: a fork or a signal may find the lock held by what will not go on.
    if not _COUNTED or not _lock.acquire(blocking=False):
        return np.empty(shape, dtype)
    try:
        block = _take(size)
        _blocks.append(block)
        while len(_blocks) > BLOCKS or sum(b.nbytes for b in _blocks) > BYTES:
            del _blocks[0]
    finally:
        _lock.release()
    return block.view(dtype).reshape(shape)


def _take(size: int) -> np.ndarray:
    for place in reversed(range(len(_blocks))):  # the block used last is still in the caches
        if _blocks[place].nbytes == size and _references(_blocks, place) == _FREE:
            return _blocks.pop(place)
    return np.empty(size, np.uint8)
