"""The promises of the suite `q_learning`, on made-up times."""

import pytest

from loopless.bench.result import Measurement
from suites.q_learning import suite
from suites.q_learning.plain import EAGER, FUSED_ADAM
from suites.q_learning.suite import FUSED
from suites.q_learning.updates import Update


def row(name, value):
    role = "ours" if name == FUSED else "peer"
    return Measurement("update", "case", name, "some", role, value=value, lower_quartile=value)


def judged(case, times):
    rows = suite.judge_update(case, [row(name, value) for name, value in times.items()])
    (found,) = [each for each in rows if each.contender == FUSED]
    return [target.met for target in found.targets], rows


def test_times_are_of_one_update():
    _, rows = judged(Update(32, (64,), 4, repeats=8), {FUSED: 32.0, EAGER: None})
    assert [(x.value, x.lower_quartile) for x in rows] == [(1.0, 1.0), (None, None)]


@pytest.mark.parametrize(
    ("shape", "ours", "eager", "met"),
    [
        ((32, (64,)), 99e-6, 20.1 * 99e-6, [True, True]),
        ((32, (64,)), 101e-6, 19.9 * 101e-6, [False, False]),
        ((64, (256, 128)), 1.0, 4.1, [True]),
        ((64, (256, 128)), 1.0, 3.9, [False]),
        ((128, (120, 84)), 1.0, 4.1, [True]),
        ((128, (120, 84)), 1.0, 3.9, [False]),
    ],
)
def test_many_updates_in_a_call_are_judged_by_shape(shape, ours, eager, met):
    found, _ = judged(Update(*shape, 32), {FUSED: 32 * ours, EAGER: 32 * eager})
    assert found == met


def test_fused_adam_is_stated_and_nothing_is_judged_without_eager_pytorch():
    found, rows = judged(Update(128, (120, 84), 32), {FUSED: 32.0, FUSED_ADAM: 96.0})
    assert found == [None, None]
    assert [target.measured for target in rows[0].targets] == [None, 3.0]


@pytest.mark.parametrize("draws", [1, 2, 4, 8])
def test_fewer_updates_in_a_call_are_not_judged(draws):
    found, _ = judged(Update(32, (64,), draws), {FUSED: 1.0, EAGER: 1.0})
    assert found == []
