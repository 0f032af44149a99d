"""Two ways to draw by weight: the sum tree of the prioritized buffer, and alias tables.

A tree of L leaves, a power of two, is a float64 array of 2L: the root at 1, the children of node
k at 2k and 2k + 1, leaf i at L + i. Every parent is the sum of its two children as they are now,
recomputed level by level: nothing drifts, and writing a leaf twice does no harm. Loop twin:
`reference.replay`.

An alias table (Walker 1977) draws one of V items in one look: item r is drawn first, evenly, then
kept with the probability that stands beside it, and else replaced by its alias. The episodic
buffer has a table for each row, whose items are starts; tables are not updated but made anew.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# pyright: reportPrivateImportUsage=false

import numpy as np
from numba.extending import register_jitable

from loopless.compiled.jit import jit
from loopless.compiled.random import bits, unit

_ONE = np.uint64(1)
FINE, UNFILLED, NO_PRIORITY = 0, 1, 2  # what `update` answers


@jit(contract=False)
def fill(tree, start, count, priority):
    """Give `count` neighboring leaves from `start` on one priority."""
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

    Return FINE, or what is wrong and where; then nothing was written. Priority 0 stays 0 for any
    `alpha`.
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
        distinct, previous = np.uint64(0), np.uint64(0)
        for k in range(n):
            node = nodes[k] >> _ONE
            if node != previous:  # stratified draws come sorted: neighbors share parents
                tree[node] = tree[node << _ONE] + tree[(node << _ONE) + _ONE]
                nodes[distinct] = node
                distinct += _ONE
                previous = node
        n = distinct
    return FINE, np.uint64(0)


@jit(contract=False)
def descend(tree, targets, indices):
    """Find the leaf i with Σ_{j<i} p_j ≤ target < Σ_{j≤i} p_j, for each target.

    The whole batch goes down level by level, so that its cache misses overlap. Right is taken
    only where the right subtree holds something, so that no leaf of priority 0 is found: rounding,
    or a target of the whole sum and more, ends at the last leaf that is not 0. `targets` are
    overwritten.
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
    """Draw one leaf in each of `batch` equal parts of the sum, and compute importance weights.

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
    """Set the priorities of the first leaves, 0 for the others, and all sums."""
    leaves = np.uint64(tree.size // 2)
    tree[leaves:] = 0.0
    tree[leaves : leaves + np.uint64(priorities.size)] = priorities
    for node in range(leaves - _ONE, np.uint64(0), -1):
        tree[node] = tree[2 * node] + tree[2 * node + 1]


@register_jitable
def wrap(place, size):
    """Return a place in [0, 2·size) modulo `size`, without a division."""
    return place - (size if place >= size else np.uint64(0))


@register_jitable
def next_item(r, rich, aliases, first, count):
    """Return the next item after r: with more than its share if `rich`, else one without alias."""
    r += 1
    while r < count:
        place = wrap(np.uint64(first + r), np.uint64(len(aliases)))
        if (aliases[place, 0] > 1) == rich and (rich or aliases[place, 1] == r):
            break
        r += 1
    return r


@jit()
def balance(weights, pairs, before, aliases, totals):
    """Make the alias tables of rows whose starts are drawn by `weights` [steps], and their sums.

    Starts number before[e] to before[e + 1] of row e stand in the ring `pairs` [size, (step, ·)];
    aliases[place] is the chance to keep a start, and the start of its row to take instead.
    """
    size = np.uint64(len(pairs))
    for row in range(before.size - 1):
        first, count = before[row] % len(pairs), before[row + 1] - before[row]
        total = 0.0
        for r in range(count):
            place = wrap(np.uint64(first + r), size)
            aliases[place, 0] = weights[pairs[place, 0]]
            aliases[place, 1] = r  # an item without another as its alias is always kept
            total += aliases[place, 0]
        totals[row] = total
        for r in range(count):  # in units of an even share, total / V
            aliases[wrap(np.uint64(first + r), size), 0] *= count / total if total else 0.0
        # An item with too little is filled up by the next with too much, and if that leaves the
        # giver with too little, it comes next. No item of weight 0 is left over: in the end all
        # that is missing is a rounding error.
        poor = next_item(-1, False, aliases, first, count)
        rich = next_item(-1, True, aliases, first, count)
        r = poor
        while r < count and rich < count:
            here = wrap(np.uint64(first + r), size)
            there = wrap(np.uint64(first + rich), size)
            aliases[here, 1] = rich
            aliases[there, 0] -= 1 - aliases[here, 0]
            if aliases[there, 0] > 1:
                r = poor = next_item(poor, False, aliases, first, count)
            else:
                r, rich = rich, next_item(rich, True, aliases, first, count)
