"""The promises of the suite `ppo_training`, on made-up numbers."""

import pytest

from loopless.bench.result import Measurement
from suites.dqn_speed.slices import COMPILED, HOSTED, OVERLAPPED, PPOTraining, judge_steps
from suites.ppo_speed import suite
from suites.q_learning.peers import BASELINES, SBX


def row(name, seconds, **changes):
    return Measurement("steps", "case", name, "some", "ours", value=seconds, **changes)


def targets(rows, name):
    (found,) = [each for each in rows if each.contender == name]
    return found.targets


@pytest.mark.parametrize(("name", "factor"), [(HOSTED, 6.0), (COMPILED, 30.0)])
@pytest.mark.parametrize(("margin", "met"), [(1.01, True), (0.99, False)])
def test_each_way_to_run_has_its_factor(name, factor, margin, met):
    rows = [row(name, 1.0), row(BASELINES, factor * 2), row(SBX, factor * margin)]
    found = targets(judge_steps(PPOTraining(512), rows, suite.FASTER), name)
    assert [target.met for target in found] == [True, met]


def test_the_overlapped_run_is_stated_beside_everyone():
    rows = [row(OVERLAPPED, 1.0), row(BASELINES, 2.0), row(SBX, 3.0)]
    found = targets(judge_steps(PPOTraining(512), rows, suite.FASTER), OVERLAPPED)
    assert [target.met for target in found] == [None] * 2
    assert [target.measured for target in found] == pytest.approx([2, 3])
