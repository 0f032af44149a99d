"""Peers' `train` is the update that they are said to make."""

import pytest

from loopless.bench.contest import enter
from suites.q_learning import peers
from suites.q_learning.updates import Update

BASELINES, SBX = peers.PEERS

pytestmark = pytest.mark.slow


def test_baselines_learns_without_double_what_the_plain_update_learns():
    pytest.importorskip("stable_baselines3")
    row = enter(BASELINES, "update", Update(8, (6,), 2)).row
    assert (row.status, row.reason) == ("ok", "")
    assert row.max_error is not None


def test_sbx_runs():
    pytest.importorskip("sbx")
    entry = enter(SBX, "update", Update(8, (6, 6), 2))
    assert (entry.row.status, entry.row.reason) == ("ok", "")


@pytest.mark.parametrize(
    ("contender", "case", "able"),
    [
        (BASELINES, Update(8, (6,), 2), True),
        (SBX, Update(8, (6,), 2), False),
        (SBX, Update(8, (6, 7), 2), True),
        (BASELINES, Update(8, (6,), 2, repeats=2), False),
    ],
)
def test_who_can_do_what(contender, case, able):
    assert peers.can(contender, case) is able


def test_layers_of_one_width_have_as_many_products():
    assert peers.even_width(120, 84) ** 2 == pytest.approx(120 * 84, rel=0.02)
