"""What `gae` promises, judged on the rows of one case. Nothing here measures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loopless.bench.result import Measurement, Target
from loopless.bench.targets import at_least, at_most, ratio, stated
from suites.returns.ours import FLOOR, JAX, NUMPY, TORCH
from suites.returns.peers import LAX_SCAN, TIANSHOU_KERNEL
from suites.returns.rollout import Shape

TWICE_AS_FAST = ((2048, 64), (128, 1024))
FLOOR_RATIO = 2.5
ONE_LONG_CHAIN = (2048, 1)
FASTER_THAN_PEERS_FROM = 128 * 64
OVERHEAD_S = {NUMPY: 12e-6, TORCH: 25e-6}
GRADIENT_RATIO = 5.0
LOOP_RATIO = {(512, 64): 100.0}
MEMORY_ARRAYS = 2.0


def judge_shape(shape: Shape, rows: Sequence[Measurement]) -> list[Measurement]:
    """Hang the targets of the main table on our rows."""
    times = {row.contender: row.value for row in rows if row.status == "ok"}
    peers = {
        row.contender: row.value
        for row in rows
        if row.role in ("peer", "yardstick") and row.status == "ok" and row.value
    }
    fastest = min(peers, key=lambda name: peers[name], default="no peer was measured")
    judged = []
    for row in rows:
        targets: list[Target] = []
        if row.contender in (NUMPY, TORCH) and row.status == "ok":
            targets = _cpu_targets(shape, row, times, peers.get(fastest), fastest)
        elif row.contender == JAX and row.status == "ok":
            slower = ratio(row.value, times.get(LAX_SCAN))
            targets = [at_most(1.1, slower, "1.1 × lax.scan by hand")]
        judged.append(replace(row, targets=(*row.targets, *targets)))
    return judged


def _cpu_targets(
    shape: Shape,
    row: Measurement,
    times: dict[str, float | None],
    best: float | None,
    fastest: str,
) -> list[Target]:
    targets = []
    faster = ratio(best, row.value)
    if shape[0] * shape[1] >= FASTER_THAN_PEERS_FROM:
        targets.append(at_least(1.0, faster, f"1 × as fast as every peer (fastest: {fastest})"))
    if shape in TWICE_AS_FAST:
        targets.append(at_least(2.0, faster, f"2 × as fast as the fastest peer ({fastest})"))
    if shape == ONE_LONG_CHAIN:
        slower = ratio(row.value, times.get(TIANSHOU_KERNEL))
        targets.append(at_most(2.0, slower, "2 × Tianshou's bare kernel"))
    return targets


def judge_floor(rows: Sequence[Measurement]) -> list[Measurement]:
    floor = next((row.value for row in rows if row.contender == FLOOR), None)
    text = f"{FLOOR_RATIO:g} × the floor"
    return [
        replace(row, targets=(at_most(FLOOR_RATIO, ratio(row.value, floor), text),))
        if row.contender != FLOOR
        else row
        for row in rows
    ]


def judge_overhead(rows: Sequence[Measurement]) -> list[Measurement]:
    judged = []
    for row in rows:
        limit = OVERHEAD_S[row.contender]
        micro = None if row.value is None else row.value * 1e6
        judged.append(replace(row, targets=(at_most(limit * 1e6, micro, f"{limit * 1e6:g} µs"),)))
    return judged


def judge_gradients(plain: str, both: str, rows: Sequence[Measurement]) -> list[Measurement]:
    times = {row.contender: row.value for row in rows}
    slower = ratio(times.get(both), times.get(plain))
    target = at_most(GRADIENT_RATIO, slower, f"{GRADIENT_RATIO:g} × the call without gradients")
    return [replace(row, targets=(target,)) if row.contender == both else row for row in rows]


def judge_loops(shape: Shape, rows: Sequence[Measurement]) -> list[Measurement]:
    """How many times as fast we are as each loop; a promise at one shape, stated at the others."""
    ours = next((row.value for row in rows if row.contender == TORCH), None)
    targets = []
    for row in rows:
        if row.contender == TORCH or row.value is None:
            continue
        faster, limit = ratio(row.value, ours), LOOP_RATIO.get(shape)
        if limit is None:
            targets.append(stated(faster, f"× as fast as {row.contender}"))
        else:
            text = f"{limit:g} × as fast as {row.contender}"
            targets.append(at_least(limit, faster, text))
    return [replace(row, targets=tuple(targets)) if row.contender == TORCH else row for row in rows]


def judge_memory(row: Measurement) -> Measurement:
    target = at_most(MEMORY_ARRAYS, row.value, f"{MEMORY_ARRAYS:g} arrays of this shape")
    return replace(row, targets=(target,))
