"""The pieces of a rollout's updates run apart, at the same shapes, and give numbers."""

import numpy as np
import pytest

from loopless.bench.contest import Call, enter
from suites.dqn_speed.slices import PPOTraining
from suites.ppo_speed import suite as pieces

CASE = pieces.Pieces(PPOTraining(16, (6,), envs=2, horizon=8, epochs=2, minibatches=2))

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("contender", pieces.PIECES, ids=lambda x: x.name)
def test_a_piece_runs_and_gives_numbers(contender):
    row = enter(contender, "shares", CASE).row
    assert (row.status, row.reason, row.case) == ("ok", "", CASE.training.label)


@pytest.mark.parametrize("found", [[0.0, 0.0], [1.0, float("nan")]])
def test_a_piece_that_computes_nothing_is_found_out(found):
    call = Call(lambda: found, np.asarray)
    assert CASE.check(pieces.PIECES[0], call, found).reason == "no numbers"
