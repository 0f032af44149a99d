"""Keeping next observations aside and finding them again, compiled by Numba.

`place` says for each slot where aside its row's next observation is; −1 stands for the
observation `envs` slots further on. Imported on first use only, because Numba's import is slow;
imports `numba_ring`. Twin: `reference/replay.py`. Tests: `tests/replay/test_successors.py`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportPrivateImportUsage=false

import numpy as np

from loopless.compiled.jit import jit
from loopless.compiled.ring import copy_bytes


@jit(contract=False)
def compare(same, aside, width, place, first, older, envs, nexts, observations):
    """Clear `same` where row k is not what the row before it in its stream said would follow.

    Row k goes to slot first + k; the row before it is another of these, or one aside.
    """
    for k in range(same.size):
        if k + older < envs:  # its stream has no row before it
            same[k] = False
        if same[k]:
            told, start = nexts, (k - envs) * width
            if k < envs:
                told, start = aside, place[(first + k - envs + place.size) % place.size] * width
            for byte in range(width):
                if told[np.uint64(start + byte)] != observations[np.uint64(k * width + byte)]:
                    same[k] = False
                    break


@jit(contract=False)
def unfollowed(same, envs):
    """Which rows are followed by none of these, or by one that is not the `same`."""
    wanted = np.ones(same.size, np.bool_)
    for k in range(same.size - envs):
        wanted[k] = not same[k + envs]
    return wanted


@jit(contract=False)
def exchange(same, wanted, place, free, left, first, envs):
    """Free the places no longer needed, take those `wanted`; how many are left free."""
    for k in range(min(envs, same.size)):
        if same[k]:
            before = (first + k - envs + place.size) % place.size
            free[left] = place[before]
            left += 1
            place[before] = -1
    for k in range(wanted.size):
        slot = (first + k) % place.size
        if place[slot] >= 0:  # the overwritten row's
            free[left] = place[slot]
            left += 1
            place[slot] = -1
    for k in range(wanted.size):
        if wanted[k]:
            left -= 1
            place[(first + k) % place.size] = free[left]
    return left


@jit(contract=False)
def put(aside, width, wanted, place, first, rows):
    """Write the rows that are `wanted` to their places."""
    size = np.uint64(width)
    for k in range(wanted.size):
        if wanted[k]:
            to = np.uint64(place[(first + k) % place.size]) * size
            copy_bytes(aside, to, rows, np.uint64(k) * size, size)


@jit(contract=False)
def gather(target, aside, width, place, envs, source, stride, offset, indices):
    """Copy the next observation of each row `indices[k]` to target[k·width]."""
    size = np.uint64(width)
    for k in range(indices.size):
        slot = indices[k]
        to, kept = np.uint64(k) * size, place[slot]
        if kept >= 0:
            copy_bytes(target, to, aside, np.uint64(kept) * size, size)
        else:
            following = slot + envs
            following -= place.size if following >= place.size else 0
            copy_bytes(target, to, source, np.uint64(following * stride + offset), size)
