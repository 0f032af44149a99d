"""A recipe and its scan in one pass over the inputs, compiled by Numba: three kernels by layout.

Arrays stand for [outer, steps, inner], C-contiguous, as in `compiled.scan`. Many columns side by
side are walked in tiles (`wide`), a few one by one (`narrow`), and single columns, whose steps lie
side by side, in blocks of steps (`chained`). Arrays of PyTorch arrive as addresses, because making
a NumPy array of a tensor takes longer than the scan of a small rollout.

Imported on the first call only, by `arrays.scan.numpy`. Loop twin: `reference.returns`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportPrivateImportUsage=false

import functools

import numpy as np
from numba.extending import register_jitable

from loopless.compiled.jit import jit
from loopless.compiled.pointers import numbers_like, pointer, pointers, prefetch, results
from loopless.compiled.scan import TILE, at, row_of, select, stack_like

LINE = 16  # elements of 4 bytes in a cache line
NARROW = 4  # below so many columns side by side, SIMD pays less than its row overhead
CHAINS = 8  # columns whose steps lie side by side that are walked at once
LARGEST = 1e30  # so many times TILE is still finite in float32


@functools.cache
def fused(recipe):
    """Return three kernels of one recipe, each with coefficients, scan and readout in one pass.

    `narrow` walks columns one by one, `wide` many side by side, `chained` columns whose steps lie
    side by side (`inner` is 1); each is compiled when first called. `arrays.scan.recipe` says what
    a recipe is; here its functions get numbers. The fields in `ahead` are read one row later (the
    same row at the end of time, where `last` is true and recipes do not look). Rows with `valid`
    false come out 0 and cut the scan. The walk is backwards in time; a lagged recipe is an adjoint,
    and walks forwards.
    """
    Row = recipe.row
    coefficients = register_jitable(recipe.coefficients)
    readout = register_jitable(recipe.readout)
    lagged = recipe.lagged
    reads_next = recipe.reads_next
    two, three = recipe.outputs >= 2, recipe.outputs >= 3
    aheads = len(recipe.ahead)
    first_ahead, second_ahead = (*recipe.ahead, 0, 0)[:2]

    @register_jitable
    def read(fields, numbers, i, j):
        """Return row i, with the fields of row j that the recipe looks ahead to."""
        if aheads == 2:
            ahead = at(fields[first_ahead], j), at(fields[second_ahead], j)
            return Row(*row_of(fields, i), *row_of(numbers, i), *ahead)
        if aheads == 1:
            return Row(*row_of(fields, i), *row_of(numbers, i), at(fields[first_ahead], j))
        return Row(*row_of(fields, i), *row_of(numbers, i))

    @register_jitable
    def advance(a, b, carried, keep):
        """Return x_t, and what the next row of the walk receives."""
        if lagged:
            x = b + carried
            return x, select(keep, select(a == 0, 0, a * x), 0)
        x = select(a == 0, b, a * carried + b)
        return x, select(keep, x, 0)

    @jit()
    def narrow(outer, steps, inner, valid, floats, flags, numbers, outs):
        outs = results(outs)
        fields = (*pointers(floats, outs[0]), *pointers(flags, None))
        numbers, valid = numbers_like(numbers, outs[0]), pointer(valid, None)
        carry = stack_like(outs[0])  # only its first element: of the right type, and in a register
        for column in range(outer * inner):
            first = (column // inner) * steps * inner + column % inner
            carry[0] = 0
            for s in range(steps):
                t = s if lagged else steps - 1 - s
                i = np.uint64(first + t * inner)
                j = i + np.uint64(inner if t + 1 < steps else 0)
                last = (t + 1 == steps) | (not at(valid, j))
                keep = at(valid, i)
                row = read(fields, numbers, i, j)
                a, b = coefficients(select, row, last)
                x_next = carry[0]
                x, carry[0] = advance(a, b, x_next, keep)
                values = readout(select, row, last, x, x_next)
                outs[0][i] = select(keep, values[0], 0)
                if two:
                    outs[1][i] = select(keep, values[1], 0)
                if three:
                    outs[2][i] = select(keep, values[2], 0)

    @jit()
    def wide(outer, steps, inner, valid, floats, flags, numbers, outs):
        outs = results(outs)
        fields = (*pointers(floats, outs[0]), *pointers(flags, None))
        numbers, valid = numbers_like(numbers, outs[0]), pointer(valid, None)
        carry = stack_like(outs[0])
        now = stack_like(outs[0]) if lagged else carry  # x_t; what is carried on differs if lagged
        following = stack_like(outs[0])
        for o in range(outer):
            for start in range(0, inner, TILE):
                width = np.uint64(min(TILE, inner - start))
                for k in range(width):
                    carry[k] = 0
                for s in range(steps):
                    t = s if lagged else steps - 1 - s
                    base = np.uint64((o * steps + t) * inner + start)
                    step = np.uint64(inner if t + 1 < steps else 0)
                    final = t + 1 == steps
                    if s + 1 < steps:
                        # No hardware prefetcher foresees a store in another row.
                        ahead_of_walk = base + np.uint64(inner if lagged else -inner)
                        for k in range(0, width, LINE):
                            prefetch(outs[0], ahead_of_walk + np.uint64(k))
                            if two:
                                prefetch(outs[1], ahead_of_walk + np.uint64(k))
                            if three:
                                prefetch(outs[2], ahead_of_walk + np.uint64(k))
                    # One loop for each array written: more exceed LLVM's limit of alias checks.
                    for k in range(width):
                        i, j = base + k, base + k + step
                        last = final | (not at(valid, j))
                        a, b = coefficients(select, read(fields, numbers, i, j), last)
                        if reads_next:
                            following[k] = carry[k]
                        x, passed_on = advance(a, b, carry[k], at(valid, i))
                        if lagged:
                            now[k] = x
                        carry[k] = passed_on
                    for k in range(width):
                        i, j = base + k, base + k + step
                        last, row = final | (not at(valid, j)), read(fields, numbers, i, j)
                        value = readout(select, row, last, now[k], following[k])[0]
                        outs[0][i] = select(at(valid, i), value, 0)
                    if two:
                        for k in range(width):
                            i, j = base + k, base + k + step
                            last, row = final | (not at(valid, j)), read(fields, numbers, i, j)
                            value = readout(select, row, last, now[k], following[k])[1]
                            outs[1][i] = select(at(valid, i), value, 0)
                    if three:
                        for k in range(width):
                            i, j = base + k, base + k + step
                            last, row = final | (not at(valid, j)), read(fields, numbers, i, j)
                            value = readout(select, row, last, now[k], following[k])[2]
                            outs[2][i] = select(at(valid, i), value, 0)

    @register_jitable
    def look(fields, numbers, valid, base, n, final, k):
        """Return the index of place k of a block, whether it is the last step, and its row."""
        t = n - np.uint64(1) - k if lagged else k
        i = base + t
        is_final = np.int64(t) == final
        j = i + np.uint64(not is_final)
        return i, is_final | (not at(valid, j)), read(fields, numbers, i, j)

    @register_jitable
    def fill(fields, numbers, valid, base, n, final, a, x, origin):
        """Write the coefficients of a block's places; return whether all of them are tame."""
        wild = 0
        for k in range(n):
            i, last, row = look(fields, numbers, valid, base, n, final, k)
            factor, term = coefficients(select, row, last)
            factor, term = select(at(valid, i), factor, 0), select(at(valid, i), term, 0)
            a[origin + k], x[origin + k] = factor, term
            wild |= np.int64(not is_tame(factor, term))
        return wild == 0

    @jit()
    def chained(outer, steps, inner, valid, floats, flags, numbers, outs):
        outs = results(outs)
        fields = (*pointers(floats, outs[0]), *pointers(flags, None))
        numbers, valid = numbers_like(numbers, outs[0]), pointer(valid, None)
        a, x, carry = stack_like(outs[0]), stack_like(outs[0]), stack_like(outs[0])
        o = 0
        while o < outer:
            columns = CHAINS if outer - o >= CHAINS else 1
            length = TILE // columns
            for c in range(columns):
                carry[c] = 0
            for begun in range(0, steps, length):
                count = min(length, steps - begun)
                # The block's first step in time. Its places are walked from the last to the first.
                first = begun if lagged else steps - begun - count
                final = steps - 1 - first  # where in this block time ends, if it does
                n, tame = np.uint64(count), True
                for c in range(columns):
                    base, origin = np.uint64((o + c) * steps + first), np.uint64(c * length)
                    tame &= fill(fields, numbers, valid, base, n, final, a, x, origin)
                    tame &= is_tame(carry[c] * 0, carry[c])
                if lagged:
                    lag(a, x, n, columns, length, carry)
                if tame and columns == CHAINS:
                    walk_chains(a, x, n, carry)
                elif tame and outer == 1:
                    carry[0] = walk_alone(a, x, n, carry[0])
                else:
                    for c in range(columns):
                        carry[c] = walk(a, x, n, np.uint64(c * length), carry[c], tame)
                if lagged:
                    pass_on(a, x, n, columns, length, carry)
                for c in range(columns):
                    base, origin = np.uint64((o + c) * steps + first), np.uint64(c * length)
                    for k in range(n):
                        i, last, row = look(fields, numbers, valid, base, n, final, k)
                        now = x[origin + k]
                        value = readout(select, row, last, now, now)[0]
                        outs[0][i] = select(at(valid, i), value, 0)
                    if two:
                        for k in range(n):
                            i, last, row = look(fields, numbers, valid, base, n, final, k)
                            now = x[origin + k]
                            value = readout(select, row, last, now, now)[1]
                            outs[1][i] = select(at(valid, i), value, 0)
                    if three:
                        for k in range(n):
                            i, last, row = look(fields, numbers, valid, base, n, final, k)
                            now = x[origin + k]
                            value = readout(select, row, last, now, now)[2]
                            outs[2][i] = select(at(valid, i), value, 0)
            o += columns

    return narrow, wide, chained


@register_jitable
def walk(a, x, n, origin, carried, tame):
    """Solve x_k = a_k·x_{k+1} + b_k in place of b, from `carried` on; return x_0."""
    if tame:
        for s in range(n):
            k = origin + n - np.uint64(1) - s
            carried = a[k] * carried + x[k]
            x[k] = carried
    else:
        for s in range(n):
            k = origin + n - np.uint64(1) - s
            carried = select(a[k] == 0, x[k], a[k] * carried + x[k])
            x[k] = carried
    return carried


@register_jitable
def walk_chains(a, x, n, carry):
    """Do what `walk` does for CHAINS tame columns at once: each product waits for the last."""
    length, one = np.uint64(TILE // CHAINS), np.uint64(1)
    c0, c1, c2, c3 = carry[0], carry[1], carry[2], carry[3]
    c4, c5, c6, c7 = carry[4], carry[5], carry[6], carry[7]
    for s in range(n):
        k = n - one - s
        c0 = x[k] = a[k] * c0 + x[k]
        k += length
        c1 = x[k] = a[k] * c1 + x[k]
        k += length
        c2 = x[k] = a[k] * c2 + x[k]
        k += length
        c3 = x[k] = a[k] * c3 + x[k]
        k += length
        c4 = x[k] = a[k] * c4 + x[k]
        k += length
        c5 = x[k] = a[k] * c5 + x[k]
        k += length
        c6 = x[k] = a[k] * c6 + x[k]
        k += length
        c7 = x[k] = a[k] * c7 + x[k]
    carry[0], carry[1], carry[2], carry[3] = c0, c1, c2, c3
    carry[4], carry[5], carry[6], carry[7] = c4, c5, c6, c7


@register_jitable
def walk_alone(a, x, n, carried):
    """Do what `walk` does for one tame column that has no others to fill the wait for a product.

    The maps of four steps are composed first, which waits for nothing, so that one product in four
    steps is left to wait for. Rounding differs from `walk`'s in the last digit.
    """
    four, one = np.uint64(4), np.uint64(1)
    left = n
    while left >= four:
        left -= four
        i, j, k, m = left, left + one, left + one + one, left + four - one
        early, late = a[i] * a[j], a[k] * a[m]
        term = a[k] * x[m] + x[k]
        whole = early * term + (a[i] * x[j] + x[i])
        term = late * carried + term
        x[m] = a[m] * carried + x[m]
        x[k], x[j] = term, a[j] * term + x[j]
        x[i] = carried = (early * late) * carried + whole
    return walk(a, x, left, np.uint64(0), carried, True)


@register_jitable
def lag(a, x, n, columns, length, carry):
    """Turn y_k = b_k + a_{k+1}·y_{k+1} into what `walk` solves; a_0 is put aside in `carry`."""
    end = n - np.uint64(1)
    for c in range(columns):
        origin = np.uint64(c * length)
        x[origin + end] += carry[c]
        carry[columns + c], carry[c] = a[origin], 0
        for k in range(end):
            a[origin + k] = a[origin + k + np.uint64(1)]
        a[origin + end] = 0


@register_jitable
def pass_on(a, x, n, columns, length, carry):
    """Write a_0·y_0, which the next block receives, for a_0 as `lag` left it."""
    for c in range(columns):
        factor = carry[columns + c]
        carry[c] = select(factor == 0, 0, factor * x[np.uint64(c * length)])


@register_jitable
def is_tame(a, b):
    """Return whether 0·x is 0 wherever such numbers lead: no NaN, no infinity, no overflow."""
    return (abs(a) <= 1) & (abs(b) <= LARGEST)
