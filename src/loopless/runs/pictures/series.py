"""Turn the columns of a log into curves: gaps closed, thinned, smoothed, several seeds as one.

Pictures get a few hundred points however long a run is. Several seeds become their interquartile
mean with a bootstrap band: the mean of the middle half is nearly as steady as the mean and nearly
as robust as the median, which matters with five seeds of which one has failed (Agarwal et al. 2021,
"Deep Reinforcement Learning at the Edge of the Statistical Precipice").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

MOST_POINTS = 600
GRID_POINTS = 200
RESAMPLES = 2000
LEVEL = 0.95
BLOCK = 2_000_000  # resampled numbers in memory at once


class Curve(NamedTuple):
    """A line over steps; the band around it and the unsmoothed line, where there are any."""

    steps: np.ndarray
    line: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    raw: np.ndarray | None = None
    band: str = ""  # what the band is
    seeds: int = 1


def curve(
    steps: np.ndarray,
    values: np.ndarray,
    low: np.ndarray | None = None,
    high: np.ndarray | None = None,
    *,
    band: str = "",
    smoothed: bool = True,
) -> Curve | None:
    """Return the curve of one metric, [rows] or [rows, seeds]; None if it holds no number.

    Several seeds give their interquartile mean with a bootstrap band; one seed gives its smoothed
    line with the band between `low` and `high`.
    """
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
        low, high = (None if edge is None else edge.reshape(len(edge)) for edge in (low, high))
    logged = np.any(np.isfinite(values.reshape(len(values), -1)), axis=1)
    if not logged.any():
        return None
    at = steps[logged]
    calm = smooth if smoothed else _identity
    if values.ndim == 2:
        # A seed that never gave a number has no curve.
        columns = [column for column in values[logged].T if np.isfinite(column).any()]
        runs = np.stack([calm(thin(close_gaps(at, column))) for column in columns])
        return Curve(thin_steps(at), iqm(runs), *bootstrap_band([runs]), seeds=len(runs))
    raw = thin(values[logged])
    line = calm(raw)
    edges = [_edge(at, edge, logged, calm) for edge in (low, high)]
    return Curve(thin_steps(at), line, *edges, raw=None if line is raw else raw, band=band)


def _edge(at: np.ndarray, edge: np.ndarray | None, logged: np.ndarray, calm) -> np.ndarray | None:
    if edge is None or edge.ndim != 1 or not np.isfinite(edge[logged]).any():
        return None
    return calm(thin(close_gaps(at, edge[logged])))


def _identity(values: np.ndarray) -> np.ndarray:
    return values


def close_gaps(steps: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Fill gaps by straight lines between the neighbours."""
    finite = np.isfinite(values)
    return values if finite.all() else np.interp(steps, steps[finite], values[finite])


def thin(values: np.ndarray, most: int = MOST_POINTS) -> np.ndarray:
    """Return at most `most` values: means of neighbours."""
    count = len(values)
    if count <= most:
        return values
    bounds = np.linspace(0, count, most + 1).astype(np.int64)
    return np.add.reduceat(values, bounds[:-1]) / np.diff(bounds)


def thin_steps(steps: np.ndarray) -> np.ndarray:
    """Return the steps of thinned values; the first and the last do not change."""
    thinned = thin(steps.astype(np.float64))
    thinned[[0, -1]] = steps[[0, -1]]
    return thinned


def smooth(values: np.ndarray) -> np.ndarray:
    """Return the centred moving mean over a fiftieth of the curve; short curves do not change."""
    reach = len(values) // 100
    if reach == 0:
        return values
    sums = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(len(values))
    first, last = np.maximum(at - reach, 0), np.minimum(at + reach + 1, len(values))
    means = (sums[last] - sums[first]) / (last - first)
    return np.clip(means, values.min(), values.max())  # rounding must not bend a flat curve


def align(curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Return curves of (steps, values) on one grid of steps that all have: [runs, points].

    If they share no step, the grid is one step: where the last of them begins.
    """
    first = max(steps[0] for steps, _ in curves)
    last = max(first, min(steps[-1] for steps, _ in curves))
    points = 1 if first == last else min(GRID_POINTS, max(len(steps) for steps, _ in curves))
    grid = np.linspace(first, last, points)
    return grid, np.stack([np.interp(grid, steps, values) for steps, values in curves])


def iqm(values: np.ndarray, axis: int = 0) -> np.ndarray:
    """Return the mean of the middle half: a quarter, rounded down, is cut at each end.

    So one to three values give their mean; four to seven lose their best and their worst.
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
    """Return the percentile bootstrap of `iqm`: its lower and upper bound at every point.

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
        samples = [stratum[draw, block] for stratum, draw in zip(strata, draws, strict=True)]
        low[block], high[block] = np.quantile(iqm(np.concatenate(samples, 1), 1), tails, axis=0)
    return low, high
