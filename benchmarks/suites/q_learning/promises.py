"""What the update promises, judged on the rows of one case. Nothing here measures.

Imports `targets` and the names of contenders. Tests:
`tests/suites/q_learning/test_bench_q_learning_promises.py`.
"""

from __future__ import annotations

from dataclasses import replace

from loopless.bench.result import Measurement
from loopless.bench.targets import Rows, as_fast, at_most, attach, ratio, speeds, stated
from suites.q_learning.eager import EAGER, FUSED_ADAM
from suites.q_learning.losses import FORWARD, RECORDING
from suites.q_learning.ours import FUSED
from suites.q_learning.peers import BASELINES, SBX
from suites.q_learning.updates import Update

JUDGED_AT = 32  # updates in one call
FASTER: dict[tuple, float] = {(32, (64,)): 20.0, (64, (256, 128)): 4.0, (128, (120, 84)): 4.0}
WHOLE_UPDATE: dict[tuple, float] = {(32, (64,)): 100.0}  # microseconds, sampling included
LOSS = 100.0  # microseconds


def per_update(case: Update, rows: Rows) -> list[Measurement]:
    """Times of one gradient step, from those of a call."""

    def share(seconds: float | None) -> float | None:
        return None if seconds is None else seconds / case.updates

    return [
        replace(
            row,
            value=share(row.value),
            lower_quartile=share(row.lower_quartile),
            upper_quartile=share(row.upper_quartile),
        )
        for row in rows
    ]


def judge_update(case: Update, rows: Rows) -> list[Measurement]:
    rows, shape = per_update(case, rows), (case.batch, case.hidden)
    if case.draws != JUDGED_AT:
        return rows
    found = speeds(rows)
    factor = {EAGER: FASTER[shape]} if shape in FASTER else {}
    targets = as_fast(rows, FUSED, factor)
    others = [name for name in (FUSED_ADAM, BASELINES, SBX) if found.get(name)]
    targets += [stated(ratio(found.get(FUSED), found[x]), f"× as fast as {x}") for x in others]
    if shape in WHOLE_UPDATE:
        limit = WHOLE_UPDATE[shape]
        targets.append(at_most(limit, microseconds(rows, FUSED), f"{limit:g} µs an update"))
    return attach(rows, FUSED, targets)


def judge_losses(rows: Rows) -> list[Measurement]:
    for name in (FORWARD, RECORDING):
        rows = attach(rows, name, [at_most(LOSS, microseconds(rows, name), f"{LOSS:g} µs")])
    return list(rows)


def microseconds(rows: Rows, name: str) -> float | None:
    value = {row.contender: row.value for row in rows}.get(name)
    return None if value is None else 1e6 * value
