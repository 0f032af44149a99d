"""The loss of the suite `avatarl`: answers are the twin's, and who gives others is found out."""

from dataclasses import replace

import numpy as np
import pytest

from loopless.bench.contest import Call, enter
from loopless.reference import avatarl as twin
from suites.avatarl import plain
from suites.avatarl.losses import CROSS_ENTROPY, VARIANTS, Losses, answer
from suites.avatarl.plain import CONTENDERS, OTHERS
from suites.avatarl.plain import PROPOSAL_CONTENDERS as PROPOSED

CASE = Losses(12, 2, 6)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("case", [CASE, Losses(9, 1, 5), Losses(7, 7, 3)], ids=lambda x: x.label)
def test_the_plain_answer_is_the_loop_twins(case, variant):
    settings = {"top_k": case.top_k, "variant": variant}
    found = case.answer(variant)
    loss, _ = twin.avatarl_loss(*case.arrays, **settings)
    gradients = twin.avatarl_gradients(*case.arrays, **settings)
    np.testing.assert_allclose(found.losses.mean(), loss, rtol=1e-12)
    np.testing.assert_allclose(found.gradients / case.count, gradients, rtol=1e-9, atol=1e-15)


def test_the_plain_cross_entropy_is_the_loop_twins():
    student, _, gold = CASE.arrays
    ones = np.ones((CASE.count, 1))
    loss, gradients = twin.soft_cross_entropy(student, gold[:, None], ones)
    found = CASE.answer(CROSS_ENTROPY)
    np.testing.assert_allclose(found.losses.mean(), loss, rtol=1e-12)
    np.testing.assert_allclose(found.gradients / CASE.count, gradients, rtol=1e-9, atol=1e-15)


def test_blocks_of_rows_change_nothing(monkeypatch):
    whole = answer(*CASE.arrays, CASE.top_k, "full")
    monkeypatch.setattr("suites.avatarl.losses.BLOCK", 2 * CASE.vocabulary)
    parts = answer(*CASE.arrays, CASE.top_k, "full")
    assert np.array_equal(whole.gradients, parts.gradients)
    assert np.array_equal(whole.margins, parts.margins)


@pytest.mark.parametrize("variant", ["fixed", "full"])
def test_no_row_is_close_to_a_threshold(variant):
    case = Losses(20, 4, 300)
    assert case.answer(variant).margins.min() > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("contender", CONTENDERS, ids=lambda each: each.name)
def test_everyone_gives_the_right_answer(contender):
    row = enter(contender, "loss", CASE).row
    assert (row.status, row.reason) == ("ok", "")


def test_proposals_are_not_the_original_and_ours_is():
    rows = [enter(each, "proposals", CASE).row for each in PROPOSED]
    assert [row.status for row in rows if row.role != "proposal"] == ["ok", "ok"]
    assert {row.status for row in rows if row.role == "proposal"} == {"disagrees"}


@pytest.mark.parametrize(
    "change",
    [
        lambda x: replace(x, loss=x.loss * (1 + 1e-4)),
        lambda x: replace(x, gradient=-x.gradient),
        lambda x: replace(x, gradient=x.gradient[:-1]),
        lambda x: replace(x, loss=float("nan")),
    ],
)
def test_a_wrong_answer_is_found_out(change):
    def prepare(case):
        call = OTHERS[0].prepare(case)
        assert call.read is not None
        return Call(call.run, lambda out: change(call.read(out)))

    assert enter(replace(OTHERS[0], prepare=prepare), "loss", CASE).row.status == "disagrees"


def test_the_first_versions_cut_actions_at_33():
    import torch

    student, critic = torch.randn(2, 4, 200)
    gold = torch.zeros(4, dtype=torch.long)
    assert plain.distinct(student, critic, gold, 20, plain.CAP)[0].shape == (4, 33)
