"""Whole updates of a student: eager PyTorch and ours begin with the same loss and gradient."""

from dataclasses import replace

import pytest

from loopless.bench.result import Measurement
from suites.avatarl import suite, training
from suites.avatarl.training import Training

CASE = Training(block=4, batch=2, tokens=10_000)
EVERYONE = (*training.JAX_CONTENDERS, *training.TORCH_CONTENDERS)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("contender", EVERYONE, ids=lambda each: each.name)
def test_the_first_update_is_right_and_a_wrong_one_is_noticed(contender):
    call = contender.prepare(CASE)
    assert not CASE.check(contender, call, call.run()).reason
    for field in ("loss", "gradient_norm"):
        wrong = call.first()._asdict()
        wrong[field] *= 1.01
        lying = replace(call, first=lambda wrong=wrong: training.First(**wrong))
        assert "off by" in CASE.check(contender, lying, None).reason


def rates(**seconds):
    names = {each.name: 1 for each in EVERYONE}
    rows = [Measurement("s", "c", name, "l", "ours", value=1.0) for name in names]
    rows = [replace(row, value=seconds.get(row.contender, 1.0)) for row in rows]
    judged = suite.judge_training(names, rows)
    return {row.contender: [target.met for target in row.targets] for row in judged}


def test_ours_makes_nearly_half_the_tokens_of_plain_cross_entropy():
    for name in (training.OURS, training.TORCH_OURS):
        assert rates(**{name: 2.2})[name] == [True, None, None]
        assert rates(**{name: 2.3})[name] == [False, None, None]
