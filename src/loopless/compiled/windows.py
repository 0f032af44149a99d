"""Sliding windows of affine maps on NumPy arrays, compiled by Numba: O(T) for any window.

The same blocks as in `kernels.windows`, walked once: while the maps of a block are composed from
its left, each row completes the window that began n−1 rows before, in the tail of the block to the
left; then the tails of this block are composed from its right, into scratch memory. Layout, tiles
and cuts are those of `compiled.scan`. Imported on the first call only, by `arrays.scan.numpy`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false

import functools

import numpy as np
from numba.extending import register_jitable

from loopless.compiled.jit import jit
from loopless.compiled.scan import at, row_of, select, tile_like

WIDTH = 256  # columns walked side by side: scratch is 2·n·WIDTH numbers


@functools.cache
def composed(maps, Row):
    """Return the kernel of `maps(where, row, last)` → a, b, c: a step is x ↦ a·x + b, its end is c.

    out[t] = f_t(f_{t+1}(… c_{t+n−1})), or up to the last row if the window reaches past it.
    """
    compiled_maps = register_jitable(maps)

    @register_jitable
    def step(valid, fields, steps, inner, t, i):
        """Return a, b and c of row t at the flat index i; all 0 where it is not valid."""
        j = i + np.uint64(inner if t + 1 < steps else 0)
        last = (t + 1 == steps) | (not at(valid, j))
        a, b, c = compiled_maps(select, Row(*row_of(fields, i)), last)
        keep = at(valid, i)
        return select(keep, a, 0), select(keep, b, 0), select(keep, c, 0)

    @jit()
    def kernel(outer, steps, inner, n, valid, fields, out, tail_a, tail_b):
        head_a, head_b, whole = tile_like(out), tile_like(out), tile_like(out)
        for o in range(outer):
            for start in range(0, inner, WIDTH):
                width = np.uint64(min(WIDTH, inner - start))
                origin = o * steps * inner + start
                for first in range(0, steps, n):
                    end = min(first + n, steps)
                    for k in range(width):
                        head_a[k], head_b[k] = 1, 0
                    for t in range(first, end):
                        base = np.uint64(origin + t * inner)
                        for k in range(width):
                            a, b, c = step(valid, fields, steps, inner, t, base + k)
                            product, total = head_a[k], head_b[k]
                            whole[k] = total + select(product == 0, 0, product * c)
                            head_b[k] = total + select(product == 0, 0, product * b)
                            head_a[k] = product * a
                        began = t - n + 1
                        # At the end of time all windows still open are complete.
                        closing = first if t + 1 == steps else began + 1
                        for s in range(max(began, first - n + 1, 0), min(closing, first)):
                            into = np.uint64(origin + s * inner)
                            tail = np.uint64((s - (first - n)) * WIDTH)
                            for k in range(width):
                                product = tail_a[tail + k]
                                passed = select(product == 0, 0, product * whole[k])
                                out[into + k] = tail_b[tail + k] + passed
                        if began == first:
                            into = np.uint64(origin + first * inner)
                            for k in range(width):
                                out[into + k] = whole[k]
                    for s in range(end - first):
                        t = end - 1 - s
                        base = np.uint64(origin + t * inner)
                        tail = np.uint64((t - first) * WIDTH)
                        later = np.uint64((t - first + (1 if s > 0 else 0)) * WIDTH)
                        for k in range(width):
                            a, b, _c = step(valid, fields, steps, inner, t, base + k)
                            onward = select(s == 0, 0, tail_b[later + k])
                            tail_b[tail + k] = b + select(a == 0, 0, a * onward)
                            beyond = select(s == 0, 1, tail_a[later + k])
                            tail_a[tail + k] = a * beyond
                    if end == steps:
                        # Windows that reach past the last row, which is an end: their tails alone.
                        for t in range(first if end - first < n else first + 1, end):
                            base = np.uint64(origin + t * inner)
                            tail = np.uint64((t - first) * WIDTH)
                            for k in range(width):
                                out[base + k] = tail_b[tail + k]
                for t in range(steps):
                    base = np.uint64(origin + t * inner)
                    for k in range(width):
                        out[base + k] = select(at(valid, base + k), out[base + k], 0)

    return kernel
