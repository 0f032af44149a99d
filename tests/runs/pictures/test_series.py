"""The interquartile mean and its band, against plain loops and numbers known beforehand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from loopless.runs.pictures import series
from loopless.runs.pictures.series import bootstrap_band, iqm

finite = st.floats(-1e6, 1e6, width=32)
curves = hnp.arrays(np.float64, st.tuples(st.integers(1, 9), st.integers(1, 5)), elements=finite)


def iqm_by_hand(values: list[float]) -> float:
    """Strike out the smallest and the largest, a quarter of them each, and average the rest."""
    values = list(values)
    for _ in range(len(values) // 4):
        values.remove(min(values))
        values.remove(max(values))
    return math.fsum(values) / len(values)


def band_by_hand(strata, level, resamples, seed):
    generator = np.random.default_rng(seed)
    draws = [generator.integers(len(s), size=(resamples, len(s))) for s in strata]
    low, high = [], []
    for point in range(strata[0].shape[1]):
        drawn = []
        for resample in range(resamples):
            pooled = []
            for stratum, draw in zip(strata, draws, strict=True):
                for run in draw[resample]:
                    pooled.append(stratum[run, point])
            drawn.append(iqm_by_hand(pooled))
        low.append(np.quantile(drawn, (1 - level) / 2))
        high.append(np.quantile(drawn, (1 + level) / 2))
    return low, high


@given(values=curves)
def test_iqm_equals_striking_out_by_hand(values):
    expected = [iqm_by_hand(column) for column in values.T.tolist()]
    np.testing.assert_allclose(iqm(values), expected, rtol=1e-12, atol=1e-6)
    np.testing.assert_allclose(iqm(values.T, axis=1), expected, rtol=1e-12, atol=1e-6)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.0], 3.0),
        ([1.0, 2.0, 6.0], 3.0),
        ([0.0, 1.0, 2.0, 100.0], 1.5),
        ([-500.0, 480.0, 490.0, 500.0, 9000.0], 490.0),
        (range(8), 3.5),
        ([0, 0, 3, 4, 5, 6, 99, 1000], 4.5),
    ],
)
def test_iqm_of_known_values(values, expected):
    assert iqm(np.array(list(values))) == expected


@given(values=curves)
def test_iqm_does_not_depend_on_the_order_of_runs(values):
    np.testing.assert_array_equal(iqm(values), iqm(values[::-1]))


def test_one_failed_seed_of_five_does_not_move_the_iqm():
    good = np.array([480.0, 485.0, 490.0, 495.0, 500.0])
    failed = good.copy()
    failed[0] = -1e9
    assert iqm(good) == iqm(failed) == 490.0


@given(strata=st.lists(hnp.arrays(np.float64, st.tuples(st.integers(1, 5), st.just(3)),
                                  elements=finite), min_size=1, max_size=3))  # fmt: skip
def test_the_band_equals_the_loop(strata):
    expected = band_by_hand(strata, 0.9, 20, 7)
    found = bootstrap_band(strata, level=0.9, resamples=20, seed=7)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-6)


def test_blocks_give_the_same_band(monkeypatch):
    runs = np.random.default_rng(0).normal(size=(5, 33))
    whole = bootstrap_band([runs], resamples=50)
    monkeypatch.setattr(series, "BLOCK", 50 * 5 * 4)
    np.testing.assert_array_equal(bootstrap_band([runs], resamples=50), whole)


def test_the_band_is_the_same_every_time():
    runs = np.random.default_rng(0).normal(size=(5, 20))
    np.testing.assert_array_equal(bootstrap_band([runs]), bootstrap_band([runs]))
    assert not np.array_equal(bootstrap_band([runs]), bootstrap_band([runs], seed=1))


def test_equal_runs_have_no_band():
    low, high = bootstrap_band([np.full((6, 4), 2.5)])
    assert (low == 2.5).all()
    assert (high == 2.5).all()


def test_the_band_surrounds_the_iqm_and_widens_with_the_level():
    runs = np.random.default_rng(3).normal(size=(10, 50))
    low, high = bootstrap_band([runs], level=0.95)
    lower, higher = bootstrap_band([runs], level=0.99)
    assert (low <= iqm(runs)).all()
    assert (iqm(runs) <= high).all()
    assert (lower <= low).all()
    assert (high <= higher).all()
    assert (higher - lower).mean() > 1.1 * (high - low).mean()


def test_strata_are_resampled_each_for_itself():
    # Two tasks without any spread between their runs: pooled over tasks there would be a band.
    low, high = bootstrap_band([np.zeros((4, 1)), np.full((4, 1), 100.0)])
    assert low == high == 50.0


def test_the_band_covers_the_truth_about_as_often_as_it_says():
    # The mean of the middle half of a normal law is 0; 400 experiments of 16 runs each.
    runs = np.random.default_rng(11).normal(size=(16, 400))
    low, high = bootstrap_band([runs], level=0.95, resamples=500)
    covered = ((low <= 0) & (high >= 0)).mean()
    assert 0.86 < covered < 0.98


@pytest.mark.parametrize("strata", [[], [np.zeros(3)], [np.zeros((0, 3))]])
def test_bands_of_nothing_are_refused(strata):
    with pytest.raises(ValueError, match=r"each is \[runs, points\]"):
        bootstrap_band(strata)


def test_iqm_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no values"):
        iqm(np.zeros((0, 3)))
