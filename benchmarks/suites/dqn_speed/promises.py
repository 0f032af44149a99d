"""What training promises, judged on the rows of one section. Nothing here measures.

Imports `targets` and the names of contenders. Tests:
`tests/suites/dqn_speed/test_bench_training_promises.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from loopless.bench.result import Measurement
from loopless.bench.targets import Rows, as_fast, as_rate, at_most, attach, ratio, speeds, stated
from suites.dqn_speed.loops import EAGER
from suites.dqn_speed.ours import (
    COMPILED,
    HOSTED,
    OVERLAPPED,
    SEEDS,
    TOGETHER,
    TOGETHER_ON_TWO,
)
from suites.dqn_speed.settings import Slice
from suites.q_learning.peers import BASELINES, SBX

Factors = Mapping[str, float | None]  # times as fast as either library; None: stated

FASTER: Factors = {HOSTED: 6.0, COMPILED: 18.0, OVERLAPPED: 14.0}
AGENTS = (TOGETHER, TOGETHER_ON_TWO)
FOUNDING = 20.0
GROWTH = 16.0  # kB a chunk
OVERHEAD = 3.0  # per cent


def as_rates(case: Slice, rows: Rows) -> list[Measurement]:
    """Steps a second, from the times of slices; of all agents together."""
    return [
        as_rate(row, case.steps * (SEEDS if row.contender in AGENTS else 1), "steps/s")
        for row in rows
    ]


def judge_steps(case: Slice, rows: Rows, factors: Factors = FASTER) -> list[Measurement]:
    rows = as_rates(case, rows)
    found = speeds(rows)
    for name, factor in factors.items():
        beside = (EAGER,) if factor else (BASELINES, SBX, EAGER)
        targets = as_fast(rows, name, dict.fromkeys((BASELINES, SBX), factor)) if factor else []
        targets += [
            stated(ratio(found.get(name), found.get(other)), f"× as fast as {other}")
            for other in beside
        ]
        rows = attach(rows, name, targets)
    for name in AGENTS:
        gain = ratio(found.get(name), found.get(COMPILED))
        rows = attach(rows, name, [stated(gain, f"× as fast as {SEEDS} runs in turn")])
    return list(rows)


def judge_founding(case: Slice, rows: Rows) -> list[Measurement]:
    rows = as_rates(case, rows)
    return attach(rows, HOSTED, as_fast(rows, HOSTED, {EAGER: FOUNDING}))


def judge_memory(
    ours: str, theirs: str, bare: str, bare_theirs: str, rows: Rows
) -> list[Measurement]:
    """No more than theirs and the framework's own; what lies beyond either framework is stated."""
    found = {row.contender: row.value or 0.0 for row in rows}
    if not all(found.get(name) for name in (ours, theirs, bare, bare_theirs)):
        return attach(rows, ours, [at_most(0, None, f"the peak of {theirs} plus {bare}")])
    limit = found[theirs] + found[bare]
    beyond = ratio(found[ours] - found[bare], found[theirs] - found[bare_theirs])
    return attach(
        rows,
        ours,
        [
            at_most(limit, found[ours], f"{limit:.0f} MB: {theirs} plus {bare}"),
            stated(beyond, f"× {theirs}, each beyond its bare framework"),
        ],
    )


def judge_growth(row: Measurement) -> Measurement:
    return replace(row, targets=(at_most(GROWTH, row.value, f"{GROWTH:g} kB a chunk"),))


def judge_overhead(row: Measurement) -> Measurement:
    return replace(row, targets=(at_most(OVERHEAD, row.value, f"{OVERHEAD:g} %"),))
