"""What the suite `allo` measures, section by section.

Imports its contenders and promises, and the shared core. Tests:
`tests/suites/allo_speed/test_bench_allo.py`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from loopless.bench.contest import Contest
from loopless.bench.result import Headline, Measurement, Result, Role
from loopless.bench.suites import Options, Say
from loopless.bench.timing import Budget
from pages import Lines, claims, grid, section
from suites.allo_speed import contenders, operations, promises, whole
from suites.allo_speed.cases import Learning
from suites.processes import prepare_like_training

SMALL, LARGE = Learning(256), Learning(1024)
STEPS = 20_000
PLOTS = 3  # that are timed
WHOLE_RUNS = 3  # of ours, which are short enough for a neighbour of the machine to be felt

TITLES = {
    "steps": "Training steps a second, sampling included",
    "whole": "A whole run: collect, train, pictures; process start to end",
    "operations": "Floating-point operations of one update, as compiled",
    "seeds": "Several seeds: steps a second, over all of them",
    "proposals": "Proposals of the founding note, each alone: time of one step, plots included",
}
HEADLINES = (
    Headline(
        "ALLO's training: GridRoom-4, batch 1024, MLP 4×256", "steps",
        "GridRoom-4, n=1024, d=10, MLP 4×256", "loopless",
        (("original form", "the loop it replaces"),), "five",
    ),
)  # fmt: skip


def run(options: Options, result: Result, say: Say) -> None:
    """Measure everything. Rows are added to `result` as they come; Ctrl-C passes through."""
    contest = Contest(result, Budget(0.1, total_s=2.0 if options.quick else 20.0), say)
    prepare_like_training(options.threads)
    result.settings |= asdict(SMALL.rules) | {"jax_async_dispatch": False}
    measure_steps([SMALL] if options.quick else [SMALL, LARGE], contest)
    measure_operations([SMALL] if options.quick else [SMALL, LARGE], contest)
    if not options.quick:
        measure_seeds(SMALL, contest)
        measure_whole(STEPS, contest)
    if options.ablate:
        measure_proposals(SMALL, contest)


def measure_steps(cases: Iterable[Learning], contest: Contest) -> None:
    from suites.allo_speed import ours

    mine = (ours.CONTENDER, ours.ENCODED_BY_BATCHES)
    steps = {each.name: ours.CHUNK for each in mine} | {contenders.ORIGINAL: contenders.STEPS}
    for case in cases:
        judge = partial(promises.judge_steps, case, steps)
        contest.run("steps", case, (*mine, contenders.CONTENDER), judge)


def measure_operations(cases: Iterable[Learning], contest: Contest) -> None:
    for case in cases:
        contest.say(f"operations: {case.label}")
        contest.result.measurements += promises.judge_operations(operations.rows(case))


def measure_seeds(case: Learning, contest: Contest) -> None:
    """All seeds of one program, on one core and on two, against one run, which is repeated."""
    from suites.allo_speed import ours

    racing = [ours.CONTENDER, ours.IN_ONE_PROGRAM]
    judge = partial(promises.judge_seeds, ours.CONTENDER.name, ours.SEEDS, ours.CHUNK)
    with ExitStack() as stack:
        if (os.cpu_count() or 1) > 1:
            racing.append(ours.on_two_cores(stack))
        contest.run("seeds", case, racing, judge)


def measure_whole(steps: int, contest: Contest) -> None:
    label = f"1M transitions, {steps:,} steps, pictures"
    forms: tuple[tuple[str, str, Role, int, Any], ...] = (
        (promises.OURS, "loopless", "ours", WHOLE_RUNS, whole.of_ours),
        (contenders.ORIGINAL, "jax", "reference", 1, whole.of_original),
    )
    rows = []
    for name, library, role, runs, measure in forms:
        contest.say(f"whole: {name}")
        row = Measurement("whole", label, name, library, role)
        rows.append(_measured(row, runs, partial(measure, steps)))
    contest.result.measurements += promises.judge_whole(rows)


def _measured(row: Measurement, runs: int, measure: Callable[[], dict[str, Any]]) -> Measurement:
    """The row of the middle run, and what all took; what goes wrong ends up in the row."""
    try:
        found = sorted((measure() for _ in range(runs)), key=lambda run: run["seconds"])
    except (RuntimeError, OSError, ValueError, KeyError) as problem:
        return replace(row, status="failed", reason=str(problem))
    taken, middle = [run.pop("seconds") for run in found], runs // 2
    details = {**found[middle], "all_seconds": taken}
    return replace(row, value=taken[middle], samples=runs, details=details)


def measure_proposals(case: Learning, contest: Contest) -> None:
    from suites.allo_speed.plain import PLOT_EVERY

    plot_s = seconds_of_plots(case)
    judge = partial(promises.judge_proposals, plot_s, PLOT_EVERY)
    contest.run("proposals", case, (contenders.LOGGING, *contenders.PROPOSALS), judge)


def seconds_of_plots(case: Learning, count: int = PLOTS) -> float:
    """What the original's figures take, the first time left out."""
    run, taken = contenders.plain(case), []
    run.run(contenders.LOGGED)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(count + 1):
            start = perf_counter()
            run.draw(Path(folder))
            taken.append(perf_counter() - start)
    return median(taken[1:])


def page(result: Result) -> list[Lines]:
    """Lay out the results page: a table for each section, the proposals with their claims."""
    names = ("steps", "whole", "operations", "seeds")
    tables = [grid(TITLES[name], rows) for name in names if (rows := section(result, name))]
    if proposed := section(result, "proposals"):
        head = f"{TITLES['proposals']}; {proposed[0].case}"
        tables.append(claims(head, "one step", proposed, gains=True))
    return tables
