"""Keep next observations aside and find them again, for `replay.host.packed.Successors`.

For each slot, `place` holds the index in `aside` of its transition's next observation, or −1 if
that is the observation stored `envs` slots further on.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportPrivateImportUsage=false

import numpy as np

from loopless.compiled.jit import jit
from loopless.compiled.ring import copy_bytes


@jit(contract=False)
def compare(same, aside, width, place, first, older, envs, nexts, observations):
    """Clear same[k] where observation k is not the next observation of the transition before it.

    Transition k goes to slot first + k; the one before it in its stream is another of these, or
    has its next observation in `aside`.
    """
    for k in range(same.size):
        if k + older < envs:  # its stream has no transition before it
            same[k] = False
        if same[k]:
            earlier, start = nexts, (k - envs) * width
            if k < envs:
                earlier, start = aside, place[(first + k - envs + place.size) % place.size] * width
            for byte in range(width):
                if earlier[np.uint64(start + byte)] != observations[np.uint64(k * width + byte)]:
                    same[k] = False
                    break


@jit(contract=False)
def unfollowed(same, envs):
    """Return which transitions need a place aside: their successor is not here, or not `same`."""
    needed = np.ones(same.size, np.bool_)
    for k in range(same.size - envs):
        needed[k] = not same[k + envs]
    return needed


@jit(contract=False)
def exchange(same, needed, place, free, left, first, envs):
    """Free places no longer needed, take one for each `needed`; return how many are free."""
    for k in range(min(envs, same.size)):
        if same[k]:
            before = (first + k - envs + place.size) % place.size
            free[left] = place[before]
            left += 1
            place[before] = -1
    for k in range(needed.size):
        slot = (first + k) % place.size
        if place[slot] >= 0:  # of the transition that is overwritten
            free[left] = place[slot]
            left += 1
            place[slot] = -1
    for k in range(needed.size):
        if needed[k]:
            left -= 1
            place[(first + k) % place.size] = free[left]
    return left


@jit(contract=False)
def put(aside, width, needed, place, first, rows):
    """Write the next observations that are `needed` to their places in `aside`."""
    size = np.uint64(width)
    for k in range(needed.size):
        if needed[k]:
            to = np.uint64(place[(first + k) % place.size]) * size
            copy_bytes(aside, to, rows, np.uint64(k) * size, size)


@jit(contract=False)
def gather(target, aside, width, place, envs, source, stride, offset, indices):
    """Copy the next observation of each transition `indices[k]` to target[k·width]."""
    size = np.uint64(width)
    for k in range(indices.size):
        slot = indices[k]
        to, aside_at = np.uint64(k) * size, place[slot]
        if aside_at >= 0:
            copy_bytes(target, to, aside, np.uint64(aside_at) * size, size)
        else:
            following = slot + envs
            following -= place.size if following >= place.size else 0
            copy_bytes(target, to, source, np.uint64(following * stride + offset), size)
