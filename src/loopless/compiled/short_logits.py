"""Many short rows of logits on the CPU, compiled by Numba: side by side, a row in each lane.

A row of some dozens of tokens is too short for the compiler to do sixteen of its numbers at once,
and its largest entries cost a mispredicted branch each. So a block of rows is turned into columns,
and one token of all of them is dealt with at a time, without branches. Says the same as
`numba_vocabulary.survey`, and is imported as that is. Tests: `tests/arrays/test_vocabulary.py`.
"""

# Numba's decorators change what a function's signature means:
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false

import math

import numpy as np

from loopless.compiled.jit import jit
from loopless.compiled.logits import floored_sums
from loopless.compiled.math import exp, lowest
from loopless.compiled.tiles import LANES, WIDTH

SHORT, MANY = 256, 64  # tokens at most and rows at least, for which this is the faster way


@jit()
def _top(tile, values, tokens, entries, places):
    """The k largest of each column, in order, and their tokens; of equals the first stands first.

    Each token moves down its column's places until one holds less; that one moves on instead.
    """
    k = values.shape[0]
    for token in range(tile.shape[0]):
        row = tile[token]
        for lane in range(LANES):
            entries[lane], places[lane] = row[lane], token
        for j in range(min(token, k)):
            held, own = values[j], tokens[j]
            for lane in range(LANES):
                x, new, place, other = held[lane], entries[lane], own[lane], places[lane]
                stays = (x > new) | ((x == new) & (place < other))
                held[lane] = x if stays else new
                entries[lane] = new if stays else x
                own[lane] = place if stays else other
                places[lane] = other if stays else place
        if token < k:  # into a place that was empty, whatever it is
            for lane in range(LANES):
                values[token, lane], tokens[token, lane] = entries[lane], places[lane]


@jit()
def _sums(tile, peaks, rate, totals, moments):
    """Σ e^d and Σ d·e^d of d = (x − peak)·rate, of each column."""
    least = lowest(rate)
    for lane in range(LANES):
        totals[lane], moments[lane] = 0, 0
    for token in range(tile.shape[0]):
        row = tile[token]
        for lane in range(LANES):
            d = (row[lane] - peaks[lane]) * rate
            e = exp(d)
            totals[lane] += e
            moments[lane] += e * (least if d < least else d)  # 0 times minus infinity is not 0


@jit()
def survey(memory, starts, count, rate, floor, counted, top, peaks, log_totals, entropies, means):
    """As `numba_vocabulary.survey`."""
    k, dtype = top.shape[1], memory.dtype
    tile = np.zeros((count, WIDTH), dtype)
    values, tokens = np.empty((k, LANES), dtype), np.empty((k, LANES), np.int32)
    entries, places = np.empty(LANES, dtype), np.empty(LANES, np.int32)
    totals, moments = np.empty(LANES, dtype), np.empty(LANES, dtype)
    for first in range(0, starts.size, LANES):
        here = min(LANES, starts.size - first)
        for lane in range(here):
            if counted is None or counted[first + lane]:
                start = starts[first + lane]
                for j in range(count):
                    tile[j, lane] = memory[start + j]
        _top(tile, values, tokens, entries, places)
        _sums(tile, values[0], rate, totals, moments)
        for lane in range(here):
            i, peak, total = first + lane, values[0, lane], totals[lane]
            if counted is not None and not counted[i]:
                top[i] = 0
                peaks[i], log_totals[i], entropies[i], means[i] = 0, 0, 0, 0
                continue
            if not (-np.inf < peak < np.inf and total == total):
                return i
            for j in range(k):
                top[i, j] = tokens[j, lane]
            peaks[i], log_totals[i] = peak, math.log(total)
            entropies[i] = math.log(total) - moments[lane] / total
            means[i] = -entropies[i]
            if floor > 0:
                row = memory[starts[i] : starts[i] + count]
                moment, share = floored_sums(row, peak, rate, log_totals[i], floor)
                entropies[i] = -moment
                means[i] = moment + share
    return -1
