"""Whether draws follow a law: Pearson's χ² over cells, and how large it may be.

    P(χ²_k ≥ k + 2√(k t) + 2t) ≤ e^−t          Laurent and Massart 2000, lemma 1

With t = 14 a right sampler is called wrong once in a million checks.
"""

from __future__ import annotations

import math

import numpy as np

T = 14.0
LEAST_EXPECTED = 8


def misfit(cells: np.ndarray, probabilities: np.ndarray) -> str:
    """What is wrong with draws that fell into `cells` of these probabilities; "" if nothing.

    Neighbouring cells are merged until each is expected often enough for χ².
    """
    draws = len(cells)
    counts = np.bincount(cells, minlength=len(probabilities))
    if len(counts) > len(probabilities):
        return "draws lie outside the law's cells"
    if counts[probabilities == 0].any():
        return f"{counts[probabilities == 0].sum()} of {draws} draws have probability 0"
    groups = _groups(draws * probabilities)
    expected = np.bincount(groups, draws * probabilities)
    found = np.bincount(groups, counts)
    freedom = len(expected) - 1
    statistic = float((((found - expected) ** 2) / expected).sum())
    limit = freedom + 2 * math.sqrt(freedom * T) + 2 * T
    if statistic <= limit:
        return ""
    return f"χ² is {statistic:.0f} on {freedom} degrees of freedom; {limit:.0f} is allowed"


def _groups(expected: np.ndarray) -> np.ndarray:
    """A number for each cell: neighbours share one until enough draws are expected of it."""
    groups, group, so_far = np.zeros(len(expected), np.int64), 0, 0.0
    for cell, number in enumerate(expected.tolist()):
        groups[cell] = group
        so_far += number
        if so_far >= LEAST_EXPECTED:
            group, so_far = group + 1, 0.0
    return np.minimum(groups, max(0, group - 1))  # what is left at the end joins the last
