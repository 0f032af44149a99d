"""Rows of ALLO are judged by what was promised, at its limits."""

import pytest

from loopless.bench.result import Measurement
from loopless.bench.targets import as_rate
from suites.allo_speed import suite
from suites.allo_speed.cases import ORIGINAL, Learning

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


@pytest.mark.parametrize(("flops", "kept"), [(100.0, True), (101.0, False)])
def test_a_step_computes_no_more_than_the_original(flops, kept):
    rows = [row(suite.OURS, flops), row(suite.BY_BATCHES, 102.0), row(ORIGINAL, 100.0)]
    rows = suite.judge_operations(rows)
    assert met(rows, suite.OURS) == [kept]
    assert met(rows, suite.BY_BATCHES) == [None]


@pytest.mark.parametrize(("seconds", "share", "kept"), [
    (10.0, 0.02, [True, True]), (10.1, 0.01, [False, True]), (1.0, 0.021, [True, False]),
])  # fmt: skip
def test_whole_runs_and_the_share_of_their_log(seconds, share, kept):
    ours_ = row(suite.OURS, seconds, details={"log_share": share})
    assert met(suite.judge_whole([ours_, row(ORIGINAL, 100.0)]), suite.OURS) == kept


def test_a_whole_run_that_failed_is_not_judged_but_named():
    rows = suite.judge_whole([row(suite.OURS, None), row(ORIGINAL, 100.0)])
    assert met(rows, suite.OURS) == [None]


def test_seeds_are_counted_together():
    rows = suite.judge_seeds("one", 8, 100, [row("one", 1.0), row("eight", 2.0)])
    assert [one.value for one in rows] == [100, 400]
    assert rows[1].targets[0].measured == 4


def test_a_proposal_is_timed_with_its_share_of_the_plots():
    name, without = suite.PROPOSALS[0].name, suite.PROPOSALS[2].name
    rows = [row(ORIGINAL, 1.0), row(name, 0.5), row(without, 1.0)]
    found = {x.contender: x for x in suite.judge_proposals(5.0, rows)}
    assert found[ORIGINAL].value == pytest.approx(0.015)
    assert found[name].targets[0].measured == pytest.approx(1.5)
    assert found[without].targets[0].measured == pytest.approx(1.5)
