"""The promises of the suite `ppo_training`, on made-up numbers."""

import pytest

from loopless.bench.contest import Contest
from loopless.bench.result import Measurement, Result
from loopless.bench.timing import Budget
from suites.dqn_speed.slices import COMPILED, EAGER, HOSTED, OVERLAPPED, PPOTraining, judge_steps
from suites.ppo_speed import suite
from suites.ppo_speed.suite import FORWARD, GRADIENT, RETURNS, WHOLE
from suites.q_learning.peers import BASELINES, SBX


def row(name, seconds, **changes):
    return Measurement("steps", "case", name, "some", "ours", value=seconds, **changes)


def targets(rows, name):
    (found,) = [each for each in rows if each.contender == name]
    return found.targets


@pytest.mark.parametrize(("name", "factor"), [(HOSTED, 6.0), (COMPILED, 30.0)])
@pytest.mark.parametrize(("margin", "met"), [(1.01, True), (0.99, False)])
def test_each_way_to_run_has_its_factor(name, factor, margin, met):
    rows = [row(name, 1.0), row(BASELINES, factor * 2), row(SBX, factor * margin), row(EAGER, 3.0)]
    found = targets(judge_steps(PPOTraining(512), rows, suite.FASTER), name)
    assert [target.met for target in found] == [True, met, None]


def test_the_overlapped_run_is_stated_beside_everyone():
    rows = [row(OVERLAPPED, 1.0), row(BASELINES, 2.0), row(SBX, 3.0), row(EAGER, 4.0)]
    found = targets(judge_steps(PPOTraining(512), rows, suite.FASTER), OVERLAPPED)
    assert [target.met for target in found] == [None] * 3
    assert [target.measured for target in found] == pytest.approx([2, 3, 4])


@pytest.mark.parametrize(("slowest", "met"), [(4.9, True), (5.1, False)])
def test_the_slowest_seed_decides_and_the_median_is_shown(slowest, met):
    found = suite.judge_compiled(row(COMPILED, slowest), [1.0, slowest, 2.0])
    assert [target.met for target in found.targets] == [met]
    assert (found.value, found.samples) == (2.0, 3)
    assert found.details == {"seconds": [1.0, slowest, 2.0]}


def test_a_seed_that_was_not_solved_leaves_the_promise_open():
    failed = row(COMPILED, None, status="failed")
    assert [target.met for target in suite.judge_compiled(failed, [1.0]).targets] == [None]


@pytest.mark.parametrize(("seconds", "met"), [(19.9, True), (20.1, False)])
def test_the_command_has_a_limit(monkeypatch, seconds, met):
    monkeypatch.setattr(suite, "time_compiled", lambda seed: 1.0)
    monkeypatch.setattr(suite, "time_command", lambda: seconds)
    made = Result("ppo_speed", {})
    suite.measure_solve(Contest(made, Budget(), lambda _: None))
    assert [target.met for target in made.measurements[1].targets] == [met]


def test_shares_are_of_the_whole_and_backward_is_what_forward_leaves():
    rows = [row(WHOLE, 10.0), row(RETURNS, 0.5), row(FORWARD, 2.0), row(GRADIENT, 6.0)]
    found = targets(suite.state_shares(rows), WHOLE)
    assert [target.measured for target in found] == pytest.approx([5, 20, 40])
    assert [target.met for target in found] == [None] * 3


@pytest.mark.parametrize("absent", [WHOLE, FORWARD])
def test_a_share_of_what_was_not_measured_is_none(absent):
    names = {WHOLE: 10.0, RETURNS: 0.5, FORWARD: 2.0, GRADIENT: 6.0} | {absent: None}
    rows = [row(name, seconds) for name, seconds in names.items()]
    found = targets(suite.state_shares(rows), WHOLE)
    assert found[-1].measured is None
