"""Rows of ALLO are judged by what was promised, at its limits."""

import pytest

from loopless.bench.contest import Contest
from loopless.bench.result import Measurement, Result
from loopless.bench.targets import as_rate
from loopless.bench.timing import Budget
from suites.allo_speed import suite
from suites.allo_speed.cases import ORIGINAL, TOGETHER, Learning

STEPS = {suite.OURS: 100, ORIGINAL: 10}


def row(name, value, **more):
    return Measurement("s", "c", name, "l", "ours", value=value, **more)


def met(rows, name):
    return [target.met for one in rows if one.contender == name for target in one.targets]


def test_names_are_those_of_the_contenders():
    assert len(suite.PROPOSALS) == 8 + 1
    assert {name for name in suite.DRAWS_NO_PLOTS if "plots" in name or "all" in name}


@pytest.mark.parametrize(("batch", "seconds", "kept"), [
    (256, 2.0, True), (256, 2.1, False), (1024, 0.83, True), (1024, 0.84, False),
])  # fmt: skip
def test_steps_a_second_by_batch(batch, seconds, kept):
    rows = suite.judge_steps(Learning(batch), STEPS, [row(suite.OURS, seconds), row(ORIGINAL, 1.0)])
    assert [one.unit for one in rows] == ["steps/s"] * 2
    assert rows[1].value == 10
    assert met(rows, suite.OURS) == [kept]


def test_other_batches_are_not_judged_and_what_failed_is_left_alone():
    rows = suite.judge_steps(Learning(64), STEPS, [row(suite.OURS, 1.0), row(ORIGINAL, None)])
    assert not rows[0].targets
    assert rows[1].value is None


def test_quartiles_change_places():
    found = as_rate(row("x", 2.0, lower_quartile=1.0, upper_quartile=4.0), 8, "steps/s")
    assert (found.lower_quartile, found.value, found.upper_quartile) == (2, 4, 8)


def test_seeds_in_one_program_are_stated_beside_one_run():
    steps = STEPS | {TOGETHER: 800}
    rows = suite.judge_steps(Learning(64), steps, [row(suite.OURS, 1.0), row(TOGETHER, 2.0)])
    assert [one.value for one in rows] == [100, 400]
    assert (rows[1].targets[0].measured, rows[1].targets[0].met) == (4, None)


@pytest.mark.parametrize(("seconds", "kept"), [(10.0, True), (10.1, False)])
def test_whole_runs_have_a_factor(monkeypatch, seconds, kept):
    monkeypatch.setattr(suite, "time_ours", lambda _: seconds)
    monkeypatch.setattr(suite, "time_original", lambda _: 100.0)
    made = Result("allo_speed", {}, {})
    suite.measure_whole(100, Contest(made, Budget(), lambda _: None))
    assert met(made.measurements, suite.OURS) == [kept]


def test_a_whole_run_that_failed_is_not_judged_but_named(monkeypatch):
    def fails(_):
        raise RuntimeError("exit code 1")

    monkeypatch.setattr(suite, "time_ours", fails)
    monkeypatch.setattr(suite, "time_original", lambda _: 100.0)
    made = Result("allo_speed", {}, {})
    suite.measure_whole(100, Contest(made, Budget(), lambda _: None))
    assert made.measurements[0].status == "failed"
    assert met(made.measurements, suite.OURS) == [None]


def test_a_proposal_is_timed_with_its_share_of_the_plots():
    name, without = suite.PROPOSALS[0].name, suite.PROPOSALS[2].name
    rows = [row(ORIGINAL, 1.0), row(name, 0.5), row(without, 1.0)]
    found = {x.contender: x for x in suite.judge_proposals(5.0, rows)}
    assert found[ORIGINAL].value == pytest.approx(0.015)
    assert found[name].targets[0].measured == pytest.approx(1.5)
    assert found[without].targets[0].measured == pytest.approx(1.5)
