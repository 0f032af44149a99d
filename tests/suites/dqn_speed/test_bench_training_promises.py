"""The promises of the suite `training`, on made-up numbers."""

import pytest

from loopless.bench.result import Measurement
from suites.dqn_speed import slices, suite
from suites.dqn_speed.slices import COMPILED, HOSTED, OVERLAPPED, SEEDS, TOGETHER, Training
from suites.q_learning.peers import BASELINES, SBX

CASE = Training(1_000)


def row(name, seconds, **changes):
    return Measurement("steps", "case", name, "some", "ours", value=seconds, **changes)


def targets(rows, name):
    (found,) = [each for each in rows if each.contender == name]
    return found.targets


def test_times_of_slices_become_steps_a_second():
    rows = [row(HOSTED, 2.0, lower_quartile=1.0, upper_quartile=4.0), row(TOGETHER, 2.0)]
    rows.append(row(SBX, None))
    hosted, together, absent = slices.as_rates(CASE, rows)
    assert (hosted.value, hosted.lower_quartile, hosted.upper_quartile) == (500, 250, 1000)
    assert (hosted.unit, together.value, absent.value) == ("steps/s", 500 * SEEDS, None)


@pytest.mark.parametrize(("name", "factor"), [(HOSTED, 6.0), (COMPILED, 18.0), (OVERLAPPED, 14.0)])
@pytest.mark.parametrize(("margin", "met"), [(1.01, True), (0.99, False)])
def test_each_way_to_run_has_its_factor(name, factor, margin, met):
    rows = [row(name, 1.0), row(BASELINES, factor * margin), row(SBX, factor * 1.5)]
    found = targets(slices.judge_steps(CASE, rows, suite.FASTER), name)
    assert [target.met for target in found] == [met, True]


@pytest.mark.parametrize(("margin", "met"), [(1.01, True), (0.99, False)])
def test_ours_is_judged_beside_each_compiled_peer(margin, met):
    rows = [row(COMPILED, 1.0), row(slices.REJAX, 1.5 * margin), row(slices.PUREJAXRL, 3.1)]
    judged = slices.judge_compiled(CASE, (1.5, 3.0), rows)
    assert [target.met for target in targets(judged, COMPILED)] == [met, True, False, True]
    stated = targets(slices.judge_compiled(CASE, (), rows), COMPILED)
    assert [target.met for target in stated] == [None, None]


@pytest.mark.parametrize(("seconds", "met"), [(1.1, True), (1.2, False)])
def test_the_plain_form_must_not_be_a_straw_man(seconds, met):
    rows = [row(slices.REJAX, 1.0), row(slices.PUREJAXRL, seconds)]
    (target,) = targets(slices.judge_compiled(CASE, (), rows), slices.PUREJAXRL)
    assert target.met is met


def test_seeds_together_are_compared_with_runs_in_turn():
    (found,) = targets(
        slices.judge_steps(CASE, [row(COMPILED, 1.0), row(TOGETHER, 4.0)], suite.FASTER), TOGETHER
    )
    assert (found.measured, found.met) == (SEEDS / 4, None)
