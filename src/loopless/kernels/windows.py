"""Sliding windows of composed affine maps: the O(T) algorithm under `n_step_returns`.

Time is cut into blocks of n rows. A window of n rows is the tail of one block and the head of the
next, so that composing each block from its left and from its right once (van Herk's trick) gives
every window. Nothing is divided or subtracted, so that γ near 1 and long episodes lose no digits.
On NumPy arrays the same is done by `compiled.scan`.
"""

from collections import namedtuple

from loopless.arrays import scan
from loopless.arrays.library import NUMPY, typed
from loopless.arrays.scan import numpy as numpy_scan
from loopless.arrays.scan.recipe import last_rows, row_before, row_numbers, rows_ahead

_Row = namedtuple("_Row", "rewards next_values terminated truncated gamma")


def _maps(where, row, last):
    """Return one step as the map G ↦ a·G + b, and as the constant c if the window stops there."""
    end = row.terminated | row.truncated | last
    c = row.rewards + row.gamma * where(row.terminated, 0, row.next_values)
    return where(end, 0, row.gamma), where(end, c, row.rewards), c


def n_step(library, dtype, axis, rewards, next_values, terminated, truncated, gamma, n, valid):
    """Return the n-step returns of checked arrays, as `kernels.returns.n_step_returns` says."""
    if library is NUMPY:
        floats, flags = (rewards, next_values), (terminated, truncated)
        return numpy_scan.compose_windows(
            _maps, _Row, dtype, axis, floats, flags, (gamma,), n, valid
        )
    xp = library.xp
    where = xp.where
    wide = library.wide(dtype)
    steps = rewards.shape[axis]
    n = min(n, max(steps, 1))
    rewards, next_values = library.cast(rewards, wide), library.cast(next_values, wide)
    gamma = typed(library, gamma, wide, rewards)
    if valid is not None:
        rewards, next_values = where(valid, rewards, 0), where(valid, next_values, 0)
    last = last_rows(library, rewards, axis, valid)
    a, b, c = _maps(where, _Row(rewards, next_values, terminated, truncated, gamma), last)
    if valid is not None:
        a, b, c = where(valid, a, 0), where(valid, b, 0), where(valid, c, 0)

    def along(a, b, reverse):
        return scan.affine(library, a, b, None, reverse=reverse, axis=axis)

    def times(product, x):
        # A product of 0 means that an end lies between: not even NaN or infinity passes it.
        return product * where((product == 0) & ~xp.isfinite(x), 0, x)

    row = row_numbers(library, rewards, axis, steps)
    starts = row % n == 0
    ends = (row + 1) % n == 0
    # Tails: f_t ∘ … ∘ f_{block's last row}, as a product and a sum.
    inside = where(ends, 0, a)
    product = along(inside, where(ends, a, 0), True)
    total = along(inside, b, True)
    # Heads: f_{block's first row} ∘ … ∘ f_{t−1}, applied to the constant c_t.
    one = typed(library, 1.0, wide, rewards)
    before = where(starts, 0, row_before(xp, a, axis))
    head_product = along(before, where(starts, one, 0 * a), False)
    summand = row_before(xp, times(head_product, b), axis)
    head_total = along(where(starts, 0, one + 0 * a), where(starts, 0, summand), False)
    head = head_total + times(head_product, c)

    ahead = rows_ahead(xp, head, axis, n - 1)
    out = where(starts, ahead, total + times(product, ahead))
    if valid is not None:
        out = where(valid, out, 0)
    return library.cast(out, dtype)
