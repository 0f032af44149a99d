"""GAE by everyone: right ones pass, wrong ones are called wrong, absent ones give their reason."""

import importlib.util
import sys
from dataclasses import replace

import numpy as np
import pytest

from loopless.bench.contest import Call, Contender, enter, race
from loopless.bench.timing import Budget
from suites.returns.peers import PEERS
from suites.returns.plain import ENV_STEP_LOOP, PROPOSALS
from suites.returns.rollouts import random_rollout
from suites.returns.suite import LOOP, OURS, STREAM

SHORT = Budget(sample_s=0.0, total_s=1e-3, most_samples=2)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rollout():
    return random_rollout(9, 5, end_rate=0.15)


def named(contenders):
    return pytest.mark.parametrize("contender", contenders, ids=lambda contender: contender.name)


def test_rollouts_have_ends_of_both_kinds_and_their_own_successor_values(rollout):
    assert rollout.terminated.any()
    assert rollout.truncated.any()
    assert not (rollout.terminated & rollout.truncated).any()
    same = rollout.next_values[:-1] == rollout.values[1:]
    np.testing.assert_array_equal(same, ~rollout.ended[:-1])


@named((*OURS, LOOP, ENV_STEP_LOOP))
def test_ours_and_the_loops_agree_with_the_truth(contender, rollout):
    assert enter(contender, "shapes", rollout).row.status == "ok"


@named(PEERS)
def test_every_installed_peer_agrees_with_the_truth(contender, rollout):
    if importlib.util.find_spec(contender.library.replace("-", "_")) is None:
        pytest.skip(f"{contender.library} is not installed")
    row = enter(contender, "shapes", rollout).row
    assert (row.status, row.reason) == ("ok", "")


@named(PROPOSALS)
def test_proposals_are_right_but_for_the_two_that_never_were(contender, rollout):
    wrong = "ticketed" in contender.name or "cumsum" in contender.name
    row = enter(contender, "proposals", rollout).row
    assert row.status == ("disagrees" if wrong else "ok")


@named([peer for peer in PEERS if peer.library == "torchrl"])
def test_an_absent_peer_gives_its_reason_and_no_time(contender, rollout, monkeypatch):
    for name in ("torchrl", "torchrl.objectives.value"):
        monkeypatch.setitem(sys.modules, name, None)
    entry = enter(contender, "shapes", rollout)
    (row,), _ = race([entry], SHORT)
    assert row.status == "unavailable"
    assert "torchrl" in row.reason
    assert row.value is None


@pytest.mark.parametrize(("poison", "error"), [(1.0, 1.0), (np.nan, None)])
def test_one_wrong_cell_is_a_disagreement(rollout, poison, error):
    def prepare(rollout):
        advantages = rollout.right[0].copy()
        advantages[3, 2] += poison
        return Call(lambda: (advantages, rollout.right[1]), lambda output: output)

    row = enter(Contender("some", "some", "peer", prepare, 2e-5), "shapes", rollout).row
    assert row.status == "disagrees"
    assert row.max_error == (error and pytest.approx(error))


def test_a_slow_contender_is_skipped_on_large_shapes(rollout):
    entry = enter(replace(LOOP, largest=10), "shapes", rollout)
    assert entry.row.status == "skipped"
    assert entry.call is None


def test_the_floor_answers_nothing_and_is_timed(rollout):
    (row,), _ = race([enter(STREAM, "shapes", rollout)], SHORT)
    assert row.status == "ok"
    assert row.value is not None
