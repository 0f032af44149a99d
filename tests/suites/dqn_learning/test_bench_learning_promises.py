"""Rows and promises of the suite `learning`, on made-up outcomes."""

import pytest

from suites.dqn_learning import suite
from suites.dqn_learning.runs import Outcome, RunFailed
from suites.dqn_learning.tasks import QUICK, Task

CARTPOLE = Task("CartPole-v1", "DQN", "cartpole", 200, 475, mean=False, published=(100, 240))
ACROBOT = Task("Acrobot-v1", "DQN", "acrobot", 200, -90, published=(200, -84))


def outcome(*final, curve=(0.0, 300.0, 500.0)):
    curves = [list(curve) for _ in final]
    return Outcome("command", "settings", 12.34, list(final), list(final), [50, 100, 200], curves)


def row(task, *scores, **changes):
    done = {job: outcome(x, **changes) for job, x in zip(task.jobs, scores, strict=False)}
    return suite.row_of(task, done)


def met(found):
    return [target.met for target in found.targets]


@pytest.mark.parametrize(
    ("scores", "enough"),
    [((500, 475, 480, 490, 9), True), ((500, 474, 480, 490, 9), False)],
)
def test_four_of_five_seeds_have_to_reach_it(scores, enough):
    assert met(row(CARTPOLE, *scores))[0] is enough


@pytest.mark.parametrize(("last", "reached"), [(-93, True), (-140, False)])
def test_where_asked_for_the_mean_has_to_as_well(last, reached):
    assert met(row(ACROBOT, -85, -85, -85, -85, last))[:2] == [True, reached]


@pytest.mark.parametrize(("then", "beaten"), [(241.0, True), (239.0, False)])
def test_a_published_score_is_compared_after_as_many_steps(then, beaten):
    found = row(CARTPOLE, *[500] * 5, curve=(0.0, then, 500.0))
    assert (found.targets[-1].measured, met(found)[-1]) == (then, beaten)


def test_at_the_end_it_is_the_final_score_that_counts():
    assert row(ACROBOT, *[-80] * 5).targets[-1].measured == -80


@pytest.mark.parametrize(("steps", "value"), [(100, 300.0), (75, 150.0), (40, None), (300, None)])
def test_curves_are_read_between_evaluations_and_not_beyond(steps, value):
    assert suite.at_step(row(CARTPOLE, *[500] * 5), steps) == value


def test_before_all_seeds_have_ended_nothing_is_judged():
    assert met(row(CARTPOLE, 500, 500)) == [None]
    assert suite.row_of(CARTPOLE, {}) is None
    assert met(row(QUICK, 300)) == [None]


def test_the_row_has_the_mean_and_keeps_what_it_is_made_of():
    found = row(CARTPOLE, 100, 200, 300, 400, 500)
    assert (found.value, found.lower_quartile, found.upper_quartile) == (300, 200, 400)
    assert found.samples == 5
    assert found.details["final"] == [100, 200, 300, 400, 500]
    assert found.details["wall_s"] == [12.3] * 5
    assert found.note == CARTPOLE.jobs[0].command


def test_a_failed_run_fails_the_row():
    jobs = CARTPOLE.jobs
    done = {jobs[0]: outcome(500.0), jobs[1]: RunFailed("seed1: exit code 4: not finite")}
    found = suite.row_of(CARTPOLE, done)
    assert (found.status, found.value) == ("failed", None)
    assert "not finite" in found.reason
