"""The promises of the suite `replay`, on made-up times."""

from functools import partial

import pytest

from loopless.bench.result import Measurement
from suites.replay import suite
from suites.replay.peers import BASELINES, CPPRB, FLASHBAX, TORCHRL
from suites.replay.plain import LOOP, PROPOSED
from suites.replay.suite import NUMPY, TORCH


def row(name, value, role="peer", **changes):
    role = "ours" if name in (NUMPY, TORCH) else role
    return Measurement("section", "case", name, "some", role, value=value, **changes)


def verdicts(judge, times, name=NUMPY):
    rows = judge([row(contender, value) for contender, value in times.items()])
    assert [each.contender for each in rows] == list(times)
    (found,) = [each for each in rows if each.contender == name]
    return [target.met for target in found.targets]


@pytest.mark.parametrize(
    ("judge", "times", "met"),
    [
        (
            partial(suite.judge_uniform, 100_000),
            {CPPRB: 4, BASELINES: 8, TORCHRL: 12},
            [1, 1, 1],
        ),
        (
            partial(suite.judge_uniform, 100_000),
            {CPPRB: 3, BASELINES: 7, TORCHRL: 11},
            [0, 0, 0],
        ),
        (partial(suite.judge_uniform, 1_000_000), {CPPRB: 3, BASELINES: 4}, [1, 1, None]),
        (suite.judge_one_call, {CPPRB: 21, BASELINES: 99}, [1]),
        (suite.judge_one_call, {CPPRB: 99, BASELINES: 19}, [0]),
        (suite.judge_one_call, {}, [None]),
        (partial(suite.judge, "prioritized"), {CPPRB: 4.1}, [1]),
        (partial(suite.judge, "prioritized"), {CPPRB: 3.9}, [0]),
        (partial(suite.judge, "episodic"), {LOOP: 121, PROPOSED: 14}, [1, 0]),
        (partial(suite.judge, "episodic"), {LOOP: 119, PROPOSED: 16}, [0, 1]),
        (partial(suite.judge, "adding"), {CPPRB: 1.1, BASELINES: 0.5}, [1]),
        (partial(suite.judge, "adding"), {CPPRB: 0.9}, [0]),
        (partial(suite.judge, "device"), {FLASHBAX: 1.1}, [1]),
        (partial(suite.judge, "device"), {FLASHBAX: 0.9}, [0]),
    ],
)
def test_ratios_are_judged(judge, times, met):
    expected = [None if each is None else bool(each) for each in met]
    assert verdicts(judge, {NUMPY: 1.0} | times) == expected


def test_our_tensors_against_theirs_are_stated():
    judge = partial(suite.judge_uniform, 100_000)
    times = {NUMPY: 1.0, TORCH: 2.0, BASELINES: 8.0, TORCHRL: 12.0}
    rows = judge([row(name, value) for name, value in times.items()])
    assert [target.measured for target in rows[1].targets] == [4.0, 6.0]
    assert verdicts(judge, times, TORCH) == [None, None]


def test_a_peer_that_is_wrong_has_to_be_beaten_all_the_same():
    rows = [row(NUMPY, 1.0), row(CPPRB, 3.0, status="disagrees")]
    (target,) = suite.judge("prioritized", rows)[0].targets
    assert (target.measured, target.met) == (3.0, False)
