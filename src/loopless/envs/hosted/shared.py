"""What a process and its environment workers agree on: commands, and a block in shared memory.

The memory has no name, so that nothing is left behind however processes end. Imports NumPy.
Used by `workers.py` and `worker.py`; tests: `tests/envs/test_workers.py`.
"""

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import IO

import numpy as np

from loopless.envs.hosted.blocks import Block, layout
from loopless.envs.masks import width
from loopless.envs.spaces import Box, Space

RESET, STEP = b"reset ", b"step"
DONE, MASKED = b"done", b"masked"  # an answer to a reset says whether there are masks


@contextmanager
def anonymous_memory(envs: int, obs: Box, actions: Space) -> Iterator[int]:
    """A file descriptor of memory for a block of one step, to be mapped while this lasts."""
    arrays = layout(1, envs, obs, actions, width(actions)).values()
    sizes = (np.dtype(dtype).itemsize * int(np.prod(shape)) for shape, dtype in arrays)
    with _nameless_file() as memory:
        memory.truncate(sum(map(_aligned, sizes)))
        yield memory.fileno()


def _nameless_file() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("loopless-envs"), "r+b")
    return TemporaryFile()


def shared_block(memory: int, envs: int, obs: Box, actions: Space) -> Block:
    """A block of one step over the file descriptor `memory`, the same in every process.

    It has room for masks, because who makes it has reset nothing yet and does not know of any.
    """
    mapped, used = mmap.mmap(memory, 0), 0

    def allocate(shape: tuple, dtype: str) -> np.ndarray:
        nonlocal used
        array = np.ndarray(shape, dtype, mapped, used)
        used += _aligned(array.nbytes)
        return array

    return Block(1, envs, obs, actions, allocate, masks=width(actions))


def _aligned(size: int) -> int:
    return -(-size // 64) * 64
