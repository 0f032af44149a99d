"""What the buffers promise, judged on the rows of one case. Nothing here measures.

A peer whose draws were found wrong counts all the same: to be beaten by it would be no comfort.
Imports `targets` and the names of contenders. Tests:
`tests/suites/replay/test_bench_replay_promises.py`.
"""

from __future__ import annotations

from dataclasses import replace

from loopless.bench.result import Measurement
from loopless.bench.targets import Rows, as_fast, at_least, at_most, attach, ratio, stated
from suites.replay.flashbax_peer import FLASHBAX
from suites.replay.loops import LOOP, PROPOSED
from suites.replay.ours import NUMPY, TORCH
from suites.replay.peers import BASELINES, CPPRB, TORCHRL

UNIFORM = {
    100_000: {CPPRB: 4.0, BASELINES: 8.0, TORCHRL: 12.0},
    1_000_000: {CPPRB: 2.5, BASELINES: 4.0, TORCHRL: 6.0},
}
TENSORS = (BASELINES, TORCHRL)
ONE_CALL = 20.0
PRIORITIZED = {CPPRB: 4.0}
EPISODIC = {LOOP: 120.0, PROPOSED: 15.0}
ADDING = {CPPRB: 1.0}
INGEST_S = 1.0
GROWTH = 4.0
SCANNED = {FLASHBAX: 1.0}


def times(rows: Rows) -> dict[str, float | None]:
    return {row.contender: row.value for row in rows}


def judge_uniform(count: int, rows: Rows) -> list[Measurement]:
    """Against named peers; our tensors against theirs is stated beside it."""
    found = times(rows)
    tensors = [stated(ratio(found.get(x), found.get(TORCH)), f"× as fast as {x}") for x in TENSORS]
    judged = attach(rows, NUMPY, as_fast(rows, NUMPY, UNIFORM.get(count, {})))
    return attach(judged, TORCH, tensors)


def judge_one_call(rows: Rows) -> list[Measurement]:
    peers = {row.contender: row.value for row in rows if row.role == "peer" and row.value}
    fastest = min(peers, key=lambda name: peers[name], default="no peer was measured")
    faster = ratio(peers.get(fastest), times(rows).get(NUMPY))
    text = f"{ONE_CALL:g} × as fast as calls of the fastest peer ({fastest})"
    return attach(rows, NUMPY, [at_least(ONE_CALL, faster, text)])


def judge_prioritized(rows: Rows) -> list[Measurement]:
    return attach(rows, NUMPY, as_fast(rows, NUMPY, PRIORITIZED))


def judge_episodic(rows: Rows) -> list[Measurement]:
    return attach(rows, NUMPY, as_fast(rows, NUMPY, EPISODIC))


def judge_adding(rows: Rows) -> list[Measurement]:
    return attach(rows, NUMPY, as_fast(rows, NUMPY, ADDING))


def judge_ingest(rows: Rows) -> list[Measurement]:
    return [replace(row, targets=(at_most(INGEST_S, row.value, "1 s"),)) for row in rows]


def judge_growth(small: str, large: str, rows: Rows) -> list[Measurement]:
    found = times(rows)
    slower = ratio(found.get(large), found.get(small))
    return attach(rows, large, [at_most(GROWTH, slower, f"{GROWTH:g} × {small}")])


def judge_cold(rows: Rows) -> list[Measurement]:
    """The same comparisons with emptied caches; stated only."""
    found = times(rows)
    named = [name for name in (CPPRB, BASELINES, TORCHRL, LOOP, PROPOSED) if found.get(name)]
    return attach(
        rows,
        NUMPY,
        [stated(ratio(found[x], found[NUMPY]), f"cold, × as fast as {x}") for x in named],
    )


def judge_scanned(rows: Rows) -> list[Measurement]:
    return attach(rows, NUMPY, as_fast(rows, NUMPY, SCANNED))
