"""Alias tables (Walker 1977): a weighted draw in one look, made in one sweep over the weights.

Of V items, item r is drawn first, evenly, then kept with the probability that stands beside it,
and else replaced by its alias. Here an item is a start, and each row has a table of its own, in a
ring. Imported when steps are weighed, because importing Numba is slow. Tests:
`tests/replay/test_episodic_weights.py`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false

import numpy as np
from numba.extending import register_jitable

from loopless.compiled.jit import jit


@register_jitable
def around(place, size):
    """A place in [0, 2·size) as one of a ring."""
    return place - (size if place >= size else np.uint64(0))


@register_jitable
def next_item(r, rich, aliases, first, count):
    """The next item after r that has more than its share, if `rich`; else one yet untouched."""
    r += 1
    while r < count:
        place = around(np.uint64(first + r), np.uint64(len(aliases)))
        if (aliases[place, 0] > 1) == rich and (rich or aliases[place, 1] == r):
            break
        r += 1
    return r


@jit()
def balance(weights, pairs, before, aliases, totals):
    """The tables of rows whose starts are drawn by `weights` [steps], and what they sum up to.

    Starts number before[e] to before[e + 1] of row e lie in the ring `pairs` [size, (step, ·)];
    aliases[place] is the chance to keep a start, and the start of its row to take instead.
    """
    size = np.uint64(len(pairs))
    for row in range(before.size - 1):
        first, count = before[row] % len(pairs), before[row + 1] - before[row]
        total = 0.0
        for r in range(count):
            place = around(np.uint64(first + r), size)
            aliases[place, 0] = weights[pairs[place, 0]]
            aliases[place, 1] = r  # who is left without another is kept in any case
            total += aliases[place, 0]
        totals[row] = total
        for r in range(count):  # in units of an even share, total / V
            aliases[around(np.uint64(first + r), size), 0] *= count / total if total else 0.0
        # Who has too little is filled up by the next who has too much, and if that leaves the
        # giver with too little, it comes next. None of weight 0 is left over: in the end what
        # all lack together is a rounding error.
        poor = next_item(-1, False, aliases, first, count)
        rich = next_item(-1, True, aliases, first, count)
        r = poor
        while r < count and rich < count:
            here = around(np.uint64(first + r), size)
            there = around(np.uint64(first + rich), size)
            aliases[here, 1] = rich
            aliases[there, 0] -= 1 - aliases[here, 0]
            if aliases[there, 0] > 1:
                r = poor = next_item(poor, False, aliases, first, count)
            else:
                r, rich = rich, next_item(rich, True, aliases, first, count)
