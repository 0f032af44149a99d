"""The chain is solved to its known values by every member of the family, in both modes."""

import numpy as np
import pytest
from chain_runs import (
    ENDLESS,
    FOREVER,
    GAMMA,
    SHORT,
    compiled_q,
    hosted_q,
    n_step_fixed_point,
)

pytestmark = pytest.mark.slow

TOLERANCE = 0.02
EVEN = np.full((5, 2), 0.5)
VARIANTS = {
    "no target": {"target": "off"},
    "replace": {},
    "polyak": {"target": "polyak", "tau": 0.5, "target_every": 16},
    "double": {"double": True},
    "duelling": {"duelling": True},
    "newest": {"newest": 8},
    "exact": {"prioritized": "exact"},
    "block": {"prioritized": "block"},
    "accumulate": {"accumulate": 2},
    "mega batch": {"mega_batch": True, "updates": 2, "steps": 51_200},
    "repeats": {"repeats": 2},
    "another network, loss and exploration": {
        "hidden": (32,), "learning_rate": 0.01, "target_every": 32, "loss": "huber",
        "max_gradient_norm": 10.0, "exploration": "boltzmann", "explore_start": 5.0,
    },
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_chain_is_solved(variant):
    found = compiled_q(SHORT, **VARIANTS[variant])
    np.testing.assert_allclose(found, SHORT.optimal_q(GAMMA), atol=TOLERANCE)


@pytest.mark.parametrize("options", [{"n_step": 3, "double": True}, {"sarsa": True}], ids=str)
def test_a_time_limit_is_no_end_of_the_world(options):
    found = compiled_q(FOREVER, **options, learning_rate=0.2, steps=25_600)
    np.testing.assert_allclose(found, FOREVER.optimal_q(GAMMA), atol=10 * TOLERANCE)


def test_sarsa_learns_the_values_of_the_policy_that_acts():
    found = compiled_q(SHORT, sarsa=True, target="off", steps=51_200, learning_rate=0.02)
    expected = SHORT.policy_q(EVEN, GAMMA)
    assert np.abs(expected - SHORT.optimal_q(GAMMA)).max() > 10 * TOLERANCE
    np.testing.assert_allclose(found, expected, atol=1.5 * TOLERANCE)


def test_n_step_learning_has_its_own_fixed_point():
    found = compiled_q(ENDLESS, n_step=3, steps=51_200, learning_rate=0.02)
    expected = n_step_fixed_point(ENDLESS, 3)
    assert np.abs(expected - ENDLESS.optimal_q(GAMMA)).max() > 5 * TOLERANCE
    np.testing.assert_allclose(found, expected, atol=1.5 * TOLERANCE)


def test_n_step_learning_of_one_step_has_the_ordinary_fixed_point():
    np.testing.assert_allclose(n_step_fixed_point(ENDLESS, 1), ENDLESS.optimal_q(GAMMA), atol=1e-9)


def test_the_hosted_chain_is_solved():
    found = hosted_q("loopless/Chain-v0", vectorization="async", prioritized="exact")
    np.testing.assert_allclose(found, SHORT.optimal_q(GAMMA), atol=TOLERANCE)


def test_a_time_limit_is_no_end_of_the_world_in_hosted_mode():
    found = hosted_q("loopless/ChainForever-v0", learning_rate=0.2, steps=25_600)
    np.testing.assert_allclose(found, FOREVER.optimal_q(GAMMA), atol=10 * TOLERANCE)
