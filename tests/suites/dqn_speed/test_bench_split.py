"""The time split of a run: what counts as overhead, and what is left out."""

import numpy as np
import pytest

from suites.dqn_speed import suite

NAN = float("nan")


def found(**changes):
    return {
        "step": np.array([1000, 2000, 3000, 5000]),
        "loss": np.array([NAN, 1.0, 1.0, 1.0]),
        "steps_per_second": np.array([1.0, 1.0, 100.0, 100.0]),
        "time_learn": np.array([0.0, 1.0, 0.9, 0.6]),
        "time_log": np.array([1.0, 0.0, 0.1, 0.3]),
        "time_other": np.array([0.0, 0.0, NAN, 0.1]),
    } | changes


def test_shares_are_of_the_seconds_after_the_first_chunk_that_learned():
    shares = suite.shares(found())
    assert shares["time_log"] == pytest.approx((10 * 0.1 + 20 * 0.3) / 30)
    assert shares["time_learn"] == pytest.approx((10 * 0.9 + 20 * 0.6) / 30)
    assert suite.overhead(shares) == pytest.approx((10 * 0.1 + 20 * 0.4) / 30)


@pytest.mark.parametrize("loss", [[NAN] * 4, [NAN, NAN, NAN, 1.0]])
def test_a_run_that_hardly_learned_says_nothing(loss):
    with pytest.raises(RuntimeError, match="too short"):
        suite.shares(found(loss=np.array(loss)))


@pytest.mark.slow
def test_a_real_run_has_a_split():
    shares = suite.measure_shares("hosted", 15_000)
    assert set(shares) >= {"time_env", "time_act", "time_learn", "time_log", "time_other"}
    assert sum(shares.values()) == pytest.approx(1, abs=0.01)


@pytest.mark.slow
def test_a_run_that_fails_is_an_error():
    with pytest.raises(RuntimeError, match="mode"):
        suite.measure_shares("sideways", 15_000)
