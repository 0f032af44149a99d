"""`reference.esper`: the two fixtures, and each quirk set beside what `gae` does instead."""

import math

import numpy as np
import pytest

from loopless import reference
from loopless.reference.esper import compute_advantages_and_returns, normalize_advantages

NAN = math.nan
REWARDS = np.array([1.0, 1.0, 10.0, 2.0])
VALUES = np.array([0.5, 0.25, 1.0, 0.75])
DONES = np.array([0, 1, 0, 1], dtype=bool)
OPTIONS = {"gamma": 0.9, "lambda_": 0.5}

FIXTURES = {
    "truncated last": ([0, 0, 0, 1], [0.0, 0.0, 0.0, 4.0]),
    "truncated inside too": ([0, 1, 0, 1], [0.0, 7.0, 0.0, 4.0]),
}


def esper_advantages(truncated, bootstrap_values):
    result = compute_advantages_and_returns(
        [REWARDS], [VALUES], [DONES], [truncated], [bootstrap_values], [4], **OPTIONS
    )
    return [x[0] for x in result]


def canonical(truncated, bootstrap_values):
    truncated = np.array(truncated, dtype=bool)
    next_values = np.where(truncated, bootstrap_values, np.append(VALUES[1:], NAN))
    terminated = DONES & ~truncated
    return reference.gae(REWARDS, VALUES, next_values, terminated, truncated, **OPTIONS)


@pytest.mark.parametrize(
    ("fixture", "expected"),
    [
        ("truncated last", [1.0625, 0.75, 11.8575, 4.85]),
        ("truncated inside too", [3.86864375, 6.985875, 11.8575, 4.85]),
    ],
)
def test_esper_gives_the_numbers_of_its_fixtures(fixture, expected):
    advantages, returns, td_errors = esper_advantages(*FIXTURES[fixture])
    np.testing.assert_allclose(advantages, expected, rtol=1e-12)
    np.testing.assert_allclose(returns, advantages + VALUES, rtol=1e-15)
    assert td_errors[3] == advantages[3]


@pytest.mark.parametrize(
    ("fixture", "expected"),
    [
        ("truncated last", [1.0625, 0.75, 11.8575, 4.85]),
        ("truncated inside too", [3.8975, 7.05, 11.8575, 4.85]),
    ],
)
def test_gae_gives_the_right_numbers_on_the_fixtures(fixture, expected):
    advantages, _ = canonical(*FIXTURES[fixture])
    np.testing.assert_allclose(advantages, expected, rtol=1e-12)


def test_td_errors_of_the_first_fixture():
    *_, td_errors = esper_advantages(*FIXTURES["truncated last"])
    np.testing.assert_allclose(td_errors, [0.725, 0.75, 9.675, 4.85], rtol=1e-12)


@pytest.mark.parametrize(
    ("done", "truncated", "advantage"),
    [
        (False, False, 1.0),  # quirk 1: a window that ends without a flag bootstraps from 0
        (True, False, 1.0),
        (False, True, 5.0),
        (True, True, 5.0),  # truncated wins
    ],
)
def test_one_step_of_esper(done, truncated, advantage):
    result = compute_advantages_and_returns(
        [[3.0]], [[2.0]], [[done]], [[truncated]], [[8.0]], [1], gamma=0.5, lambda_=0.5
    )
    np.testing.assert_array_equal(np.ravel(result), [advantage, advantage + 2.0, advantage])


def test_values_and_bootstrap_values_are_scaled():
    result = compute_advantages_and_returns(
        [[3.0]], [[2.0]], [[1]], [[1]], [[8.0]], [1], gamma=0.5, lambda_=0.5, value_scale=2.0
    )
    np.testing.assert_array_equal(np.ravel(result), [7.0, 11.0, 7.0])


def test_a_nan_passes_through_a_terminal():
    rewards, zeros = [[1.0, 1.0, NAN]], np.zeros((1, 3))
    advantages, *_ = compute_advantages_and_returns(
        rewards, zeros, [[0, 1, 0]], zeros, zeros, [3], **OPTIONS
    )
    assert np.isnan(advantages).all()


def test_rows_beyond_the_step_count_come_back_0():
    stale = np.full((4, 3), NAN)
    data = np.where(reference.valid_mask([0, 1, 3, 2], 3, time_axis=1), 1.0, stale)
    flags = np.zeros((4, 3), dtype=bool)
    advantages, returns, td_errors = compute_advantages_and_returns(
        data, data, flags, flags, stale, [0, 1, 3, 2], gamma=0.5, lambda_=0.0
    )
    expected = [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.5, 0.0, 0.0]]
    np.testing.assert_array_equal(advantages, expected)
    np.testing.assert_array_equal(td_errors, expected)
    np.testing.assert_array_equal(
        returns, [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.5, 1.5, 1.0], [1.5, 1.0, 0.0]]
    )


@pytest.mark.parametrize("seed", range(4))
def test_esper_is_right_when_truncation_comes_last(seed):
    rng = np.random.default_rng(seed)
    counts = np.array([0, 1, 5, 8, 8])
    rewards, values, bootstrap_values = rng.normal(size=(3, 5, 8))
    valid = reference.valid_mask(counts, 8, time_axis=1)
    last = valid & ~reference.valid_mask(counts - 1, 8, time_axis=1)
    terminated = (rng.random((5, 8)) < 0.2) & ~last
    next_values = np.concatenate([values[:, 1:], np.full((5, 1), NAN)], axis=1)
    next_values[last] = bootstrap_values[last]
    expected = reference.gae(
        rewards, values, next_values, terminated, last, **OPTIONS, valid=valid, time_axis=1
    )
    advantages, returns, _ = compute_advantages_and_returns(
        rewards, values, terminated | last, last, bootstrap_values, counts, **OPTIONS
    )
    np.testing.assert_allclose([advantages, returns], expected, rtol=1e-12, atol=1e-12)


def test_normalize_advantages_leaves_padding_and_reports_what_it_saw():
    result, mean, std, floored = normalize_advantages([[1.0, NAN], [3.0, 5.0]], [1, 2])
    assert (mean, floored) == (3.0, False)
    assert std == pytest.approx(math.sqrt(8.0 / 3.0), rel=1e-15)
    np.testing.assert_allclose(
        result, np.array([[-2.0, NAN], [0.0, 2.0]]) / (math.sqrt(8.0 / 3.0) + 1e-8), rtol=1e-15
    )


def test_normalize_advantages_floors_a_small_std():
    result, mean, std, floored = normalize_advantages([[0.0, 0.125]], [2])
    assert (mean, std, floored) == (0.0625, 0.0625, True)
    np.testing.assert_allclose(result, [[-0.625, 0.625]], rtol=1e-6)


def test_normalize_advantages_of_nothing():
    result, mean, std, floored = normalize_advantages([[1.0, 2.0]], [0])
    np.testing.assert_array_equal(result, [[1.0, 2.0]])
    assert math.isnan(mean)
    assert math.isnan(std)
    assert not floored
