"""Draw transitions of a ring, walk along n-step windows, and copy fields out.

All indices are drawn first, then each field is gathered in a loop of its own, so that cache
misses overlap. Transitions are rows of bytes here, whatever their dtypes, so that one compiled
kernel serves every declaration of fields. Called by `replay.host.ring` and `replay.sampling`; loop
twin: `reference.replay`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportPrivateImportUsage=false

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from loopless.compiled.jit import jit
from loopless.compiled.random import below, bits


@intrinsic
def copy_bytes(typing_context, target, i, source, j, width):
    """Do target[i : i + width] = source[j : j + width], of uint8 arrays that do not overlap."""

    def codegen(context, builder, signature, args):
        to = context.make_array(signature.args[0])(context, builder, args[0]).data
        of = context.make_array(signature.args[2])(context, builder, args[2]).data
        to, of = builder.gep(to, [args[1]]), builder.gep(of, [args[3]])
        cgutils.raw_memcpy(builder, to, of, args[4], 1)
        return context.get_dummy_value()

    return types.void(target, i, source, j, width), codegen


@jit(contract=False)
def gather(target, start, source, stride, offset, width, indices):
    """Copy `width` bytes at `offset` of each row `indices[k]` to target[start + k·width]."""
    n, start = np.uint64(indices.size), np.uint64(start)
    stride, offset, size = np.uint64(stride), np.uint64(offset), np.uint64(width)
    # A width that is known when compiling is one or two machine instructions, not a call.
    if width == 1:
        for k in range(n):
            target[start + k] = source[np.uint64(indices[k]) * stride + offset]
    elif width == 4:
        for k in range(n):
            row = np.uint64(indices[k]) * stride + offset
            copy_bytes(target, start + k * np.uint64(4), source, row, np.uint64(4))
    elif width == 8:
        for k in range(n):
            row = np.uint64(indices[k]) * stride + offset
            copy_bytes(target, start + k * np.uint64(8), source, row, np.uint64(8))
    elif width == 16:
        for k in range(n):
            row = np.uint64(indices[k]) * stride + offset
            copy_bytes(target, start + k * np.uint64(16), source, row, np.uint64(16))
    else:
        for k in range(n):
            row = np.uint64(indices[k]) * stride + offset
            copy_bytes(target, start + k * size, source, row, size)


@jit(contract=False)
def gather_all(block, count, rows, stride, table):
    """Gather the small fields of `count` rows into `block`.

    `block` begins with arrays of `count` indices. A line of `table` is one field: its place and
    width within a row, its place in `block`, and the number of the array of indices it follows.
    """
    for f in range(table.shape[0]):
        first = table[f, 3] * count * 8
        indices = block[first : first + count * 8].view(np.int64)
        gather(block, table[f, 2], rows, stride, table[f, 0], table[f, 1], indices)


@jit(contract=False)
def draw(random, size, head, capacity, batch, newest, indices):
    """Draw `indices` of `size` rows uniformly; the last `newest` of each batch are the newest."""
    key, counter, n = random[0], random[1], np.uint64(indices.size)
    for k in range(n):
        indices[k] = np.int64(below(bits(key, counter + k), np.uint64(size)))
    random[1] = counter + n
    if newest:
        for end in range(batch, indices.size + 1, batch):
            for age in range(1, newest + 1):
                indices[end - age] = (head - age + capacity) % capacity


@jit(contract=False)
def sample(random, size, head, capacity, batch, newest, block, count, rows, stride, table):
    """Do `draw` and `gather_all` in one call."""
    draw(random, size, head, capacity, batch, newest, block[: count * 8].view(np.int64))
    gather_all(block, count, rows, stride, table)


@jit(contract=False)
def walk(indices, last, sums, discounts, rewards, terminated, truncated, head, envs, steps, gamma):
    """Compute R = Σ_{k<h} γ^k r_k and γ^h over the window from each index on.

    A window has up to `steps` transitions, and ends with one that terminated or was truncated, or
    with the newest of its stream; `last` is its last one. Consecutive transitions of a stream
    stand `envs` slots apart.
    """
    capacity = rewards.size
    for k in range(indices.size):
        row = indices[k]
        newer = (head - 1 - row + capacity) % capacity  # transitions written after this one
        total, discount = np.float64(rewards[row]), gamma
        for _ in range(1, steps):
            if terminated[row] or truncated[row] or newer < envs:
                break
            newer -= envs
            row += envs
            if row >= capacity:
                row -= capacity
            total += discount * np.float64(rewards[row])
            discount *= gamma
        last[k] = row
        sums[k] = total
        discounts[k] = discount
