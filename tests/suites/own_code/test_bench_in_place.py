"""Ours in the originals' own classes: answers are checked, and programs compute what they did."""

import runpy
from dataclasses import replace

import numpy as np
import pytest
import torch

from loopless.bench.contest import Call, Contest, enter
from loopless.bench.result import Measurement, Result
from loopless.bench.timing import Budget
from loopless.reference.avatarl import avatarl_loss
from suites.own_code import in_place, originals, suite

SMALL = (
    (in_place.Advantages(5, 12), in_place.ADVANTAGES),
    (in_place.Successors(20, 30), in_place.SUCCESSORS),
    (in_place.Storing(20, 12), in_place.STORING),
    (in_place.QLoss(8, 5), in_place.Q_LOSS),
    (in_place.AvatarlLoss(65, 2, 5), in_place.AVATARL),
)
RACES = [(case, contender) for case, contenders in SMALL for contender in contenders]


def name(race):
    return f"{race[0].label}: {race[1].name}"


@pytest.mark.parametrize("race", RACES, ids=name)
def test_the_original_and_ours_are_right(race):
    case, contender = race
    row = enter(contender, "in_place", case).row
    assert (row.status, row.reason) == ("ok", "")


def wrong(received):
    """Spoil an answer a little: an advantage, a successor, a loss."""
    if isinstance(received, tuple):
        return received[0] * 1.001, received[1]
    first, second, *others = received
    if isinstance(first, tuple):
        return [(obs, np.minimum(following + np.array([0, 1]), 30)) for obs, following in received]
    return [first + 1e-3, second, *others]


@pytest.mark.parametrize("race", RACES, ids=name)
def test_a_wrong_answer_is_found_out(race):
    case, contender = race

    def prepare(case):
        call = contender.prepare(case)
        return Call(call.run, lambda output: wrong(call.read(output)))

    row = enter(replace(contender, prepare=prepare), "in_place", case).row
    assert row.status == "disagrees"


def test_the_looped_loss_is_the_reference():
    case = in_place.AvatarlLoss(12, 2, 3, 2)
    expected, _ = avatarl_loss(*case.arrays, top_k=2, variant="original")
    assert case.exact[0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("patch", originals.PATCHES)
def test_a_program_with_one_function_replaced_computes_the_same(patch):
    program = "ppo" if patch == "gae" else "founding_dqn"
    before, after = (runpy.run_path(str(suite.EXAMPLES / f"{program}_before.py")) for _ in range(2))
    originals.patch(after, patch)
    owner, method, _ = originals.PATCHES[patch]
    assert getattr(after[owner], method) is not getattr(before[owner], method)
    torch.manual_seed(0)
    if patch == "gae":
        rollout = {key: torch.randn(128, 4) for key in ("reward", "value")}
        rollout["done"] = (torch.rand(128, 4) < 0.1).float()
        inputs = None, rollout, torch.randn(4), torch.tensor([0.0, 1.0, 0.0, 1.0])
    else:
        net, batch, target = in_place.QLoss().prepare(torch.float32)
        inputs = None, net, batch, target
    expected, received = (getattr(names[owner], method)(*inputs) for names in (before, after))
    torch.testing.assert_close(received, expected, rtol=1e-5, atol=1e-5)


def test_replacements_are_run_in_turn_and_compared_with_the_original(monkeypatch):
    numbers = {"": 300.0, "debug_line": 100.0, "q_loss": 280.0}
    asked = []

    def child_number(example, steps, patch, cores):
        asked.append((example, patch))
        return numbers[patch]

    monkeypatch.setattr(suite, "child_number", child_number)
    made = Result("own_code", {"threads": 1})
    contest = Contest(made, Budget(0.0, total_s=1e-3), lambda _: None)
    suite.measure_replacement(suite.REPLACEMENTS[1], contest, quick=True)
    assert asked == [("founding_dqn_before", patch) for patch in ("debug_line", "q_loss", "")]
    gains = [target.measured for row in made.measurements for target in row.targets]
    assert gains == pytest.approx([2.8, 3.0])


def test_a_call_in_place_is_compared_with_the_original():
    rows = [
        Measurement("in_place", "case", contender, "", "ours", value=value)
        for contender, value in ((in_place.OURS, 1.0), (in_place.ORIGINAL, 4.0))
    ]
    judged = suite.judge_in_place(rows)
    assert [len(row.targets) for row in judged] == [1, 0]
    assert judged[0].targets[0].measured == 4.0


@pytest.mark.parametrize(("seconds", "met"), [(2.4, True), (2.6, False)])
def test_storing_a_transition_may_take_as_long_as_promised(seconds, met):
    label = in_place.Storing().label
    rows = [
        Measurement("in_place", label, contender, "", "ours", value=value)
        for contender, value in ((in_place.OURS, seconds), (in_place.ORIGINAL, 1.0))
    ]
    limit = suite.judge_in_place(rows)[0].targets[-1]
    assert (limit.measured, limit.met) == (seconds, met)
