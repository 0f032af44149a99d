"""The sum tree of a prioritized buffer, compiled by Numba.

A tree of L leaves, a power of two, is a float64 array of 2L: the root at 1, the children of node
k at 2k and 2k + 1, leaf i at L + i. Every parent is the sum of its two children as they are now,
recomputed level by level: nothing drifts, and writing a leaf twice does no harm. Imported on
first use only, because Numba's import is slow; imports `numba_random`. Twin:
`reference/replay.py`. Tests: `tests/replay/test_prioritized.py`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportPrivateImportUsage=false

import numpy as np

from loopless.compiled.jit import jit
from loopless.compiled.random import bits, unit

_ONE = np.uint64(1)
FINE, UNFILLED, NO_PRIORITY = 0, 1, 2  # what `update` says


@jit(contract=False)
def fill(tree, start, count, priority):
    """Give `count` neighbouring leaves from `start` one priority."""
    first = np.uint64(tree.size // 2 + start)
    last = first + np.uint64(count - 1)
    for node in range(first, last + _ONE):
        tree[node] = priority
    while first > _ONE:
        first, last = first >> _ONE, last >> _ONE
        for node in range(first, last + _ONE):
            tree[node] = tree[node << _ONE] + tree[(node << _ONE) + _ONE]


@jit(contract=False)
def update(tree, size, indices, priorities, alpha, most, peak):
    """Set leaves to priority^alpha, the last of a duplicate winning; `peak[0]` is the running max.

    Says what is wrong and where, before anything is written. 0 stays 0 whatever `alpha` is.
    """
    n = np.uint64(indices.size)
    nodes, raised = np.empty(n, np.uint64), np.empty(n, np.float64)
    for k in range(n):
        if indices[k] < 0 or indices[k] >= size:
            return UNFILLED, k
        p = np.float64(priorities[k])
        raised[k] = 0.0 if p == 0.0 else p**alpha
        if not (p >= 0.0 and raised[k] <= most):
            return NO_PRIORITY, k
    leaves = np.uint64(tree.size // 2)
    for k in range(n):
        nodes[k] = leaves + np.uint64(indices[k])
        tree[nodes[k]] = raised[k]
        peak[0] = max(peak[0], raised[k])
    level = leaves
    while level > _ONE and n > 0:
        level >>= _ONE
        kept, previous = np.uint64(0), np.uint64(0)
        for k in range(n):
            node = nodes[k] >> _ONE
            if node != previous:  # stratified draws come sorted: neighbours share parents
                tree[node] = tree[node << _ONE] + tree[(node << _ONE) + _ONE]
                nodes[kept] = node
                kept += _ONE
                previous = node
        n = kept
    return FINE, np.uint64(0)


@jit(contract=False)
def descend(tree, targets, indices):
    """The leaf i with Σ_{j<i} p_j ≤ target < Σ_{j≤i} p_j, for each target; never one of priority 0.

    The whole batch goes down level by level, so that its cache misses overlap. Right is taken
    only where the right subtree holds something: rounding, or a target of the whole sum and more,
    ends at the last leaf that is not 0. `targets` are used up.
    """
    n, leaves = np.uint64(targets.size), np.uint64(tree.size // 2)
    nodes = np.full(n, _ONE)
    level = _ONE
    while level < leaves:
        for k in range(n):
            left = nodes[k] << _ONE
            weight, target = tree[left], targets[k]
            right = (target >= weight) & (tree[left + _ONE] > 0.0)
            targets[k] = target - weight if right else target
            nodes[k] = left + np.uint64(right)
        level <<= _ONE
    for k in range(n):
        indices[k] = np.int64(nodes[k] - leaves)


@jit(contract=False)
def draw(tree, random, batch, beta, indices, weights):
    """Stratified draws, one in each of `batch` equal parts of the sum, and their weights.

    w_i = (N·P(i))^−β / max_j (N·P(j))^−β = (p_i / min_j p_j)^−β     within a batch
    """
    key, counter, n = random[0], random[1], np.uint64(indices.size)
    targets = np.empty(n)
    part = tree[1] / batch
    for k in range(n):
        u = 1.0 - unit(bits(key, counter + k))
        targets[k] = (np.float64(k % np.uint64(batch)) + u) * part
    random[1] = counter + n
    descend(tree, targets, indices)
    leaves = np.uint64(tree.size // 2)
    for first in range(0, indices.size, batch):
        least = np.inf
        for k in range(np.uint64(first), np.uint64(first + batch)):
            targets[k] = tree[leaves + np.uint64(indices[k])]
            least = min(least, targets[k])
        for k in range(np.uint64(first), np.uint64(first + batch)):
            weights[k] = np.float32((targets[k] / least) ** -beta)


@jit(contract=False)
def rebuild(tree, priorities):
    """Take over the priorities of the first leaves; the others are 0."""
    leaves = np.uint64(tree.size // 2)
    tree[leaves:] = 0.0
    tree[leaves : leaves + np.uint64(priorities.size)] = priorities
    for node in range(leaves - _ONE, np.uint64(0), -1):
        tree[node] = tree[2 * node] + tree[2 * node + 1]
