"""What several runs say together: the interquartile mean, and a bootstrap band around it.

The mean of the middle half is nearly as steady as the mean and nearly as robust as the median,
which matters with five seeds of which one has failed (Agarwal et al. 2021, "Deep Reinforcement
Learning at the Edge of the Statistical Precipice"). Imports NumPy.
Tests, with loop twins: `tests/runs/test_statistics.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

RESAMPLES = 2000
LEVEL = 0.95
BLOCK = 2_000_000  # resampled numbers that are held at once


def iqm(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """Mean of the middle half: a quarter of the values, rounded down, is cut at each end.

    So one to three values give their mean, and four or five lose their best and their worst.
    """
    ordered = np.sort(np.asarray(values, np.float64), axis)
    count = ordered.shape[axis]
    if count == 0:
        raise ValueError("iqm: there are no values. Pass at least one.")
    cut = count // 4
    middle = np.arange(cut, count - cut)
    return np.take(ordered, middle, axis).mean(axis)


def bootstrap_band(
    strata: Sequence[np.ndarray],
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """The percentile bootstrap of `iqm`: its lower and upper bound at every point.

    Each stratum is [runs, points]: the runs of one task. Runs are drawn with replacement inside
    their stratum, whole curves at once, then pooled. The same input gives the same band.
    """
    strata = [np.asarray(stratum, np.float64) for stratum in strata]
    if not strata or any(stratum.ndim != 2 or not len(stratum) for stratum in strata):
        shapes = [stratum.shape for stratum in strata]
        raise ValueError(
            f"bootstrap_band: strata have shapes {shapes}; each is [runs, points], with a run."
        )
    generator = np.random.default_rng(seed)
    draws = [generator.integers(len(stratum), size=(resamples, len(stratum))) for stratum in strata]
    tails = [(1 - level) / 2, (1 + level) / 2]
    points = strata[0].shape[1]
    across = max(1, BLOCK // (resamples * sum(map(len, strata))))
    low, high = np.empty(points), np.empty(points)
    for first in range(0, points, across):  # blocks, so that memory does not grow with the points
        block = slice(first, first + across)
        drawn = [stratum[draw, block] for stratum, draw in zip(strata, draws, strict=True)]
        low[block], high[block] = np.quantile(iqm(np.concatenate(drawn, 1), 1), tails, axis=0)
    return low, high
