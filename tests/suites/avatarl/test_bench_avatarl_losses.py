"""The loss of the suite `avatarl`: answers are the twin's, and who gives others is found out."""

from dataclasses import replace

import numpy as np
import pytest

import loopless as ll
from loopless.bench.contest import Call, enter
from loopless.reference import avatarl as twin
from suites.avatarl import losses, plain
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
    np.testing.assert_allclose(found[0], loss, rtol=1e-12)
    np.testing.assert_allclose(found[1], gradients, rtol=1e-9, atol=1e-15)


def test_the_plain_cross_entropy_is_the_loop_twins():
    student, _, gold = CASE.arrays
    ones = np.ones((CASE.count, 1))
    loss, gradients = twin.soft_cross_entropy(student, gold[:, None], ones)
    found = CASE.answer(CROSS_ENTROPY)
    np.testing.assert_allclose(found[0], loss, rtol=1e-12)
    np.testing.assert_allclose(found[1], gradients, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("variant", [*VARIANTS, CROSS_ENTROPY])
def test_an_answer_that_is_not_the_twins_is_an_error(monkeypatch, variant):
    right = losses.in_float64

    def wrong(*arguments):
        loss, gradient = right(*arguments)
        return loss, gradient * (1 + 1e-6)

    monkeypatch.setattr(losses, "in_float64", wrong)
    with pytest.raises(RuntimeError, match="loop twin"):
        answer(*CASE.arrays, CASE.top_k, variant)


def test_no_row_is_close_to_a_threshold():
    case = Losses(20, 4, 300)
    assert losses.margins(*case.arrays, case.top_k).min() > 1e-4


@pytest.mark.parametrize("variant", ["fixed", "full"])
def test_where_a_reward_comes_or_goes_there_is_no_margin(variant):
    student, critic, gold = (x[:1] for x in Losses(7, 7, 3).arrays)  # every token is an action
    unsure = critic.astype(np.float64)
    unsure[0, gold[0]] -= 20

    def mixed(share):
        return share * unsure + (1 - share) * critic

    def rewarded(share):
        actions, present = ll.avatarl_actions(student, mixed(share), gold, top_k=7)
        rewards = ll.avatarl_rewards(mixed(share), actions, present, variant=variant)
        return set(actions[0][rewards[0] > 0].tolist())

    low, high = 0.0, 1.0
    assert rewarded(low) != rewarded(high)
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if rewarded(middle) == rewarded(low) else (low, middle)
    assert losses.margins(student, mixed(low), gold, 7) < 1e-6
    assert losses.margins(student, mixed(0.0), gold, 7) > 1e-4


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
