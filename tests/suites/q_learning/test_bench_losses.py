"""The loss alone: ours and eager PyTorch's agree with the loop twins, and a wrong one does not."""

from dataclasses import replace

import pytest

from loopless.bench.contest import Call, enter
from suites.q_learning.suite import LOSSES, Losses


@pytest.mark.parametrize("contender", LOSSES, ids=lambda each: each.name)
def test_loss_and_errors_are_those_of_the_twins(contender):
    row = enter(contender, "loss", Losses(32)).row
    assert (row.status, row.reason) == ("ok", "")


@pytest.mark.parametrize("change", [lambda x: [x[0] + 1e-5, x[1]], lambda x: [x[0], -x[1]]])
def test_a_wrong_loss_is_found_out(change):
    def prepare(case):
        call = LOSSES[0].prepare(case)
        assert call.read is not None
        return Call(call.run, lambda out: change(call.read(out)))

    row = enter(replace(LOSSES[0], prepare=prepare), "loss", Losses(32)).row
    assert row.status == "disagrees"
