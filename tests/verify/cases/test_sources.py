"""Cases from a seed and from hypothesis: the same properties, reproducible, and small."""

import numpy as np
import pytest

from loopless.verify.cases.properties import rollout, truncations
from loopless.verify.cases.sources import Seeded, smallest
from loopless.verify.contracts import CONTRACTS
from loopless.verify.contracts.contract import same


@pytest.mark.parametrize("claim", CONTRACTS)
def test_a_seed_makes_the_same_case_again(claim):
    for kind in CONTRACTS[claim].properties:
        first, second = kind.make(Seeded([1, 2])), kind.make(Seeded([1, 2]))
        assert first.keys() == second.keys()
        for name, x in first.items():
            np.testing.assert_array_equal(x, second[name], err_msg=f"{kind.name}: {name}")


def test_the_smallest_case_is_small_and_the_same_each_time():
    def fails(case):
        return bool(case["truncated"].any())

    first, second = smallest(truncations, fails), smallest(truncations, fails)
    assert first is not None
    assert first["truncated"].tolist() == [[True]]
    assert not first["rewards"].any()
    for name, x in first.items():
        np.testing.assert_array_equal(x, second[name])


def test_there_is_no_smallest_case_where_none_fails():
    assert smallest(rollout, lambda case: False, seconds=0.5) is None


def test_the_search_ends_when_the_time_is_over():
    calls = []

    def slow(case):
        calls.append(case)
        import time

        time.sleep(0.05)
        return True

    assert smallest(rollout, slow, seconds=0.3) is not None
    assert len(calls) < 30


def test_successor_values_follow_but_at_ends():
    case = rollout(Seeded(0), terminated=True, shape=(20, 3))
    going = ~(case["terminated"] | case["truncated"])[:-1]
    assert (case["next_values"][:-1][going] == case["values"][1:][going]).all()
    assert (case["next_values"][:-1][~going] != case["values"][1:][~going]).all()


def test_tolerances_follow_the_dtype_and_what_a_sum_gathers():
    gae = CONTRACTS["gae"]
    case = rollout(Seeded(0), shape=(100, 1), gamma=1.0, lambda_=1.0)
    want = gae.answer(case)
    wide, narrow = (gae.tolerances(case, want, (x,))["advantages"] for x in ("float64", "float32"))
    assert (wide < 1e-9).all()
    assert (wide < narrow).all()
    assert wide[0] > wide[-1] > 0  # what is a sum of many may be off by more


def test_a_large_number_far_away_allows_nothing_here():
    gae = CONTRACTS["gae"]
    case = rollout(Seeded(0), shape=(200, 1), gamma=0.5, lambda_=0.5)
    case["rewards"][-1] = 1e8
    allowed = gae.tolerances(case, gae.answer(case), ("float32",))["advantages"]
    assert allowed[0] < 1e-3 < allowed[-1]


def test_nan_is_the_same_as_nan_and_nothing_else():
    nan, one = {"x": np.array([np.nan])}, {"x": np.array([1.0])}
    assert same(nan, nan, {"x": 1e-9})
    assert not same(nan, one, {"x": 1e-9})
    assert not same(one, nan, {"x": 1e-9})
    assert not same({"x": np.ones(2)}, one, {"x": 1e-9})
