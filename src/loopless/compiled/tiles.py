"""Rows of logits turned into columns, a tile at a time, compiled by Numba: a row in each lane.

A row of some dozens of tokens is too short for the compiler to do sixteen of its numbers at once;
one token of many rows is not. Tests: `tests/kernels/test_avatarl_tiles.py`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false

import numpy as np

from loopless.compiled.jit import jit
from loopless.compiled.math import exp, lowest

LANES = 128  # rows in a tile
WIDTH = LANES + 16  # of a tile in memory: a power of two would crowd into a few sets of the cache


@jit()
def load(memory, starts, first, tile):
    """Rows as columns; past their end the last one again."""
    size = tile.shape[0]
    for i in range(LANES):
        start = starts[min(first + i, starts.size - 1)]
        row = memory[start : start + size]
        for v in range(size):
            tile[v, i] = row[v]


@jit()
def largest(tile, best, entry):
    """The k largest of each column, in order: an entry moves down until a place holds less."""
    best[:] = -np.inf
    for v in range(tile.shape[0]):
        row = tile[v]
        for i in range(LANES):
            entry[i] = row[i]
        for j in range(min(v + 1, best.shape[0])):
            held = best[j]
            for i in range(LANES):
                x, y = entry[i], held[i]
                held[i] = x if x > y else y
                entry[i] = y if x > y else x


@jit()
def among(tile, least, left, here, k):
    """Adds 1 where a token is one of the k largest; of equals the first ones are."""
    real = tile.dtype.type
    zero, one = real(0), real(1)
    left[:] = k
    for v in range(tile.shape[0]):
        row = tile[v]
        for i in range(LANES):
            left[i] -= one if row[i] > least[i] else zero
    for v in range(tile.shape[0]):
        row, flags = tile[v], here[v]
        for i in range(LANES):
            equal = one if row[i] == least[i] else zero
            above = one if row[i] > least[i] else zero
            flags[i] += above + (equal if left[i] > zero else zero)
            left[i] -= equal


@jit()
def exponentials(tile, powers, peak, rate, total, moment):
    """Each x becomes d = (x − peak)·rate, with e^d, Σ e^d and Σ d·e^d."""
    least = lowest(tile[0, 0])
    total[:] = 0
    moment[:] = 0
    for v in range(tile.shape[0]):
        row, e = tile[v], powers[v]
        for i in range(LANES):
            d = (row[i] - peak[i]) * rate[i]
            power = exp(d)
            row[i], e[i] = d, power
            total[i] += power
            moment[i] += power * (least if d < least else d)  # 0 · −inf is not 0
