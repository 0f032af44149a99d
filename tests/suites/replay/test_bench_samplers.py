"""Every contender of the suite, on small buffers: ours and installed peers are right."""

import importlib.util
from dataclasses import replace

import pytest

from loopless.bench.contest import enter
from suites.replay import device, flashbax_peer, loops, ours, peers
from suites.replay.trajectories import Ingest, Trajectories
from suites.replay.transitions import Adding, Prioritized, Uniform

UNIFORM, MANY = Uniform(1000, 64), Uniform(1000, 16, 4)
PRIORITIZED = Prioritized(1000, 64)
ADDING = Adding(640, 64)
PAIRS = Trajectories(3, 256)
ADDED = device.Scanned(7000, 256, envs=64)
UPDATED = device.Scanned(7000, 256, prioritized=True)

OURS = [
    *((contender, case) for contender in ours.UNIFORM for case in (UNIFORM, MANY)),
    (ours.BATCH_BY_BATCH, MANY),
    *((contender, PRIORITIZED) for contender in ours.PRIORITIZED),
    (ours.EPISODIC, PAIRS),
    (ours.ADDING, ADDING),
    *((contender, Ingest(3, 256)) for contender in ours.INGEST),
    (loops.UNIFORM, UNIFORM),
    (loops.UNIFORM, MANY),
    (loops.PRIORITIZED, Prioritized(100, 64)),
    (loops.SEARCH, PAIRS),
]
PEERS = [
    *((contender, case) for contender in peers.UNIFORM for case in (UNIFORM, MANY)),
    *((contender, PRIORITIZED) for contender in peers.PRIORITIZED if contender.name != "TorchRL"),
    *((contender, ADDING) for contender in peers.ADDING),
    (flashbax_peer.UNIFORM, UNIFORM),
    (flashbax_peer.PRIORITIZED, PRIORITIZED),
    (flashbax_peer.ADDING, ADDING),
    (flashbax_peer.SCANNED, UPDATED),
]


@pytest.fixture(autouse=True)
def _fewer_draws(monkeypatch):
    monkeypatch.setattr("suites.replay.samplers.CHECKED_DRAWS", 8_000)


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
    (torchrl,) = [peer for peer in peers.PRIORITIZED if peer.name == "TorchRL"]
    row = enter(torchrl, "section", PRIORITIZED).row
    assert row.status == "unavailable"
    assert "compiled sum trees" in row.reason


def test_the_proposed_table_crosses_into_the_next_segment():
    row = enter(loops.TABLE, "section", PAIRS).row
    assert row.status == "disagrees"
    assert "cross" in row.reason


def test_the_proposed_table_is_right_where_rows_have_one_segment(monkeypatch):
    monkeypatch.setattr("suites.replay.trajectories.SEGMENT", 1001)
    assert enter(loops.TABLE, "section", replace(PAIRS)).row.status == "ok"


def test_a_device_buffer_that_does_not_keep_what_was_added_is_found_out(monkeypatch):
    from loopless.replay.device import RingBuffer

    add = RingBuffer.add

    def stuck(self, state, rows, valid=None):
        return add(self, state, rows, valid)._replace(head=state.head)

    monkeypatch.setattr(RingBuffer, "add", stuck)
    row = enter(device.OURS, "section", ADDED).row
    assert row.status == "disagrees"
