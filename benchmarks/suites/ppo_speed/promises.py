"""What PPO promises, judged on the rows of one section. Nothing here measures.

Imports `targets` and the names of contenders. Tests:
`tests/suites/ppo_speed/test_bench_ppo_training_promises.py`.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from loopless.bench.result import Measurement
from loopless.bench.targets import Rows, at_most, attach, ratio, stated
from suites.dqn_speed.ours import COMPILED, HOSTED, OVERLAPPED
from suites.dqn_speed.promises import Factors
from suites.ppo_speed.shares import FORWARD, GRADIENT, RETURNS, WHOLE

FASTER: Factors = {HOSTED: 6.0, COMPILED: 30.0, OVERLAPPED: None}
COMPILED_S, COMMAND_S = 5.0, 20.0


def judge_compiled(row: Measurement, seconds: Sequence[float]) -> Measurement:
    """The slowest seed decides; the row's value is the median's."""
    if row.value is None:
        return replace(row, targets=(at_most(COMPILED_S, None, _within(COMPILED_S)),))
    slowest = max(seconds)
    targets = (at_most(COMPILED_S, slowest, f"{_within(COMPILED_S)}, the slowest seed"),)
    details, median = {"seconds": list(seconds)}, statistics.median(seconds)
    return replace(row, value=median, samples=len(seconds), targets=targets, details=details)


def judge_command(row: Measurement) -> Measurement:
    return replace(row, targets=(at_most(COMMAND_S, row.value, _within(COMMAND_S)),))


def _within(seconds: float) -> str:
    return f"{seconds:g} s"


def state_shares(rows: Rows) -> list[Measurement]:
    """Per cent of the whole; backward is what the gradient takes beyond forward."""
    found = {row.contender: row.value for row in rows}
    whole, forward, both = (found.get(name) for name in (WHOLE, FORWARD, GRADIENT))
    backward = both - forward if both and forward else None
    pieces = {RETURNS: found.get(RETURNS), FORWARD: forward, "backward": backward}
    targets = []
    for name, seconds in pieces.items():
        share = ratio(seconds, whole)
        targets.append(stated(100 * share if share else None, f"% of the whole: {name}"))
    return attach(rows, WHOLE, targets)
