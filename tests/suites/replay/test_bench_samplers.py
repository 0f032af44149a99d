"""Every contender of the suite, on small buffers: ours and installed peers are right."""

import importlib.util
from dataclasses import replace

import pytest

from loopless.bench.contest import enter
from suites.replay import peers, plain, suite
from suites.replay.cases import Adding, Prioritized, Scanned, Trajectories, Uniform

UNIFORM, MANY = Uniform(1000, 64), Uniform(1000, 16, 4)
PRIORITIZED = Prioritized(1000, 64)
ADDING = Adding(640, 64)
PAIRS = Trajectories(3, 256)
ADDED = Scanned(7000, 256, envs=64)
UPDATED = Scanned(7000, 256, prioritized=True)

OURS = [
    *((contender, case) for contender in suite.OUR_UNIFORM for case in (UNIFORM, MANY)),
    (suite.BATCH_BY_BATCH, MANY),
    *((contender, PRIORITIZED) for contender in suite.OUR_PRIORITIZED),
    (suite.OUR_EPISODIC, PAIRS),
    (suite.OUR_ADDING, ADDING),
    (plain.UNIFORM_LOOP, UNIFORM),
    (plain.UNIFORM_LOOP, MANY),
    (plain.PRIORITIZED_LOOP, Prioritized(100, 64)),
    (plain.SEARCH, PAIRS),
]
PEERS = [
    *((contender, case) for contender in peers.UNIFORM_PEERS for case in (UNIFORM, MANY)),
    *(
        (contender, PRIORITIZED)
        for contender in peers.PRIORITIZED_PEERS
        if contender.name != "TorchRL"
    ),
    *((contender, ADDING) for contender in peers.ADDING_PEERS),
    (peers.FLASHBAX_SCANNED, UPDATED),
]

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _fewer_draws(monkeypatch):
    monkeypatch.setattr("suites.replay.cases.CHECKED_DRAWS", 8_000)


def entered(pairs):
    names = [f"{contender.name} {case.label}" for contender, case in pairs]
    return pytest.mark.parametrize(("contender", "case"), pairs, ids=names)


@entered(OURS)
def test_ours_and_the_loops_are_right(contender, case):
    entry = enter(contender, "section", case)
    assert (entry.row.status, entry.row.reason) == ("ok", "")
    entry.call()


@entered(PEERS)
def test_every_installed_peer_is_right(contender, case):
    if importlib.util.find_spec(contender.library.replace("-", "_")) is None:
        pytest.skip(f"{contender.library} is not installed")
    entry = enter(contender, "section", case)
    assert (entry.row.status, entry.row.reason) == ("ok", "")
    entry.call()


def test_torchrl_without_its_compiled_part_says_so(monkeypatch):
    prioritized = pytest.importorskip("torchrl.data.replay_buffers.samplers.prioritized")
    monkeypatch.setattr(prioritized, "SumSegmentTreeFp32", None)
    (torchrl,) = [peer for peer in peers.PRIORITIZED_PEERS if peer.name == "TorchRL"]
    row = enter(torchrl, "section", PRIORITIZED).row
    assert row.status == "unavailable"
    assert "compiled sum trees" in row.reason


def test_the_proposed_table_crosses_into_the_next_segment():
    row = enter(plain.TABLE, "section", PAIRS).row
    assert row.status == "disagrees"
    assert "cross" in row.reason


def test_the_proposed_table_is_right_where_rows_have_one_segment(monkeypatch):
    monkeypatch.setattr("suites.replay.cases.SEGMENT", 1001)
    assert enter(plain.TABLE, "section", replace(PAIRS)).row.status == "ok"


def test_a_device_buffer_that_does_not_keep_what_was_added_is_found_out(monkeypatch):
    from loopless.replay.device import RingBuffer

    add = RingBuffer.add

    def stuck(self, state, rows, valid=None):
        return add(self, state, rows, valid)._replace(head=state.head)

    monkeypatch.setattr(RingBuffer, "add", stuck)
    row = enter(suite.OUR_SCANNED, "section", ADDED).row
    assert row.status == "disagrees"
