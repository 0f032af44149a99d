"""The one gate against updates that are not finite."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from loopless.train.engine import health

GOOD, BAD = jnp.float32(1.0), jnp.float32(np.nan)


class Learner(NamedTuple):
    updates: object
    skipped: object
    failed: object


def learner(failed=False):
    return Learner(jnp.int32(5), jnp.int32(2), jnp.asarray(failed))


def counters(verdict):
    return [int(verdict.updates), int(verdict.skipped), bool(verdict.failed)]


@pytest.mark.parametrize("on_nan", ["stop", "skip"])
def test_a_finite_update_is_accepted(on_nan):
    verdict = health.judge(learner(), on_nan, GOOD, jnp.ones((2, 3)))
    assert bool(verdict.accepted)
    assert counters(verdict) == [6, 2, False]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize(("on_nan", "failed"), [("stop", True), ("skip", False)])
def test_one_number_that_is_not_finite_is_enough(on_nan, failed, at, bad):
    numbers = [GOOD, GOOD, jnp.ones(4)]
    numbers[at] = jnp.full_like(numbers[at], bad) if at < 2 else numbers[at].at[3].set(bad)
    verdict = health.judge(learner(), on_nan, *numbers)
    assert not bool(verdict.finite)
    assert not bool(verdict.accepted)
    assert counters(verdict) == [5, 3, failed]


@pytest.mark.parametrize("on_nan", ["stop", "skip"])
def test_a_failed_learner_accepts_nothing_any_more(on_nan):
    verdict = health.judge(learner(failed=True), on_nan, GOOD)
    assert bool(verdict.finite)
    assert not bool(verdict.accepted)
    assert counters(verdict) == [5, 2, True]


@pytest.mark.parametrize("number", [GOOD, BAD])
def test_an_update_that_is_held_back_is_neither_accepted_nor_skipped(number):
    verdict = health.judge(learner(), "skip", number, left_out=jnp.asarray(True))
    assert not bool(verdict.accepted)
    assert counters(verdict) == [5, 2, False]


def test_the_message_names_the_update_and_of_several_agents_which_one():
    name = lambda number: f"seed {number}"  # noqa: E731
    assert health.failure_message(learner(), name) is None
    assert "at update 5; learning" in str(health.failure_message(learner(failed=True), name))
    both = Learner(np.array([7, 1_234]), np.zeros(2), np.array([False, True]))
    assert "at update 1,234 of seed 1; learning" in str(health.failure_message(both, name))
