"""Standardisation, one entry at a time."""

import math

import numpy as np

from loopless.reference.rows import data, flags


def normalize(x, valid=None, *, min_std=1e-8):
    """Shift and scale the valid entries of the whole array to mean 0 and standard deviation 1.

        y = (x − mean) / max(std, min_std)      std of the population

    Entries with `valid` false are never read and come back 0. A constant gives exact zeros. A
    NaN or infinite valid entry makes every valid entry NaN.
    """
    shape = np.shape(x)
    x = data(x, shape)
    valid = np.ones(shape, dtype=bool) if valid is None else flags(valid, shape)
    result = np.zeros(shape)
    where = [i for i in np.ndindex(shape) if valid[i]]
    entries = [x[i] for i in where]
    if not all(math.isfinite(entry) for entry in entries):
        for i in where:
            result[i] = math.nan
        return result
    # The mean of n equal numbers, rounded, need not be that number.
    if all(entry == entries[0] for entry in entries):
        return result
    mean = entries[0] + math.fsum(entry - entries[0] for entry in entries) / len(entries)
    std = math.sqrt(math.fsum((entry - mean) * (entry - mean) for entry in entries) / len(entries))
    for i in where:
        result[i] = (x[i] - mean) / max(std, min_std)
    return result
