"""What ALLO promises, judged on rows. Nothing here measures.

Imports `targets` and the names of contenders. Tests:
`tests/suites/allo_speed/test_bench_allo_promises.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from loopless.bench.result import Measurement
from loopless.bench.targets import Rows, as_fast, as_rate, at_most, attach, ratio, stated
from suites.allo_speed.cases import Learning
from suites.allo_speed.contenders import DRAWS_NO_PLOTS, LOGGED, ORIGINAL

OURS, BY_BATCHES = "loopless", "loopless, --encode batches"
FASTER = {256: 5.0, 1024: 12.0}  # steps a second, by batch
WHOLE = 10.0
RATE = "steps/s"
LOG_SHARE = 2.0  # per cent of the training thread's time


def judge_steps(case: Learning, steps: Mapping[str, int], rows: Rows) -> list[Measurement]:
    """`steps` in a call, by contender."""
    rows = [as_rate(row, steps[row.contender], RATE) for row in rows]
    if case.batch not in FASTER:
        return rows
    return attach(rows, OURS, as_fast(rows, OURS, {ORIGINAL: FASTER[case.batch]}))


def judge_operations(rows: Rows) -> list[Measurement]:
    """Ours computes no more than the three-call form; by batches it is that form."""
    found = {row.contender: row.value for row in rows}
    share = {name: ratio(found.get(name), found.get(ORIGINAL)) for name in found}
    rows = attach(rows, OURS, [at_most(1.0, share.get(OURS), f"as many as the {ORIGINAL}")])
    told = stated(share.get(BY_BATCHES), f"× as many as the {ORIGINAL}")
    return attach(rows, BY_BATCHES, [told])


def judge_seeds(single: str, seeds: int, steps: int, rows: Rows) -> list[Measurement]:
    """Steps a second, over all seeds, of which all rows have `seeds` but the single one."""
    rows = [as_rate(row, steps * (1 if row.contender == single else seeds), RATE) for row in rows]
    found = {row.contender: row.value for row in rows}
    for name in found.keys() - {single}:
        gain = ratio(found[name], found.get(single))
        rows = attach(rows, name, [stated(gain, f"× as fast as {seeds} runs one after the other")])
    return list(rows)


def judge_whole(rows: Rows) -> list[Measurement]:
    """Seconds of whole runs, and what the log and the plots cost ours."""
    targets = as_fast(rows, OURS, {ORIGINAL: WHOLE})
    ours = next((row for row in rows if row.contender == OURS), None)
    if ours is not None and ours.value is not None:
        spent = 100 * ours.details["log_share"]
        targets.append(at_most(LOG_SHARE, spent, f"{LOG_SHARE:g} % of its time for log and plots"))
    return attach(rows, OURS, targets)


def judge_proposals(plot_s: float, every: int, rows: Rows) -> list[Measurement]:
    """Times of one step, its share of plots included; how much each proposal gains."""
    rows = [
        _one_step(row, 0.0 if row.contender in DRAWS_NO_PLOTS else plot_s / every) for row in rows
    ]
    found = {row.contender: row.value for row in rows}
    for name in found:
        if name != ORIGINAL:
            gain = ratio(found[ORIGINAL], found[name])
            rows = attach(rows, name, [stated(gain, f"× as fast as the {ORIGINAL}")])
    return list(rows)


def _one_step(row: Measurement, plots_s: float) -> Measurement:
    def share(seconds: float | None) -> float | None:
        return None if seconds is None else seconds / LOGGED + plots_s

    details = {"plots_s": plots_s}
    return replace(
        row, value=share(row.value), lower_quartile=share(row.lower_quartile),
        upper_quartile=share(row.upper_quartile), details=details,
    )  # fmt: skip
