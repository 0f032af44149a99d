"""The suite `allo_speed`: training steps and whole runs beside the original pipeline.

The cases, their checks and our trainer as a contender are in `cases.py`, and the original pipeline,
written plainly, in `plain.py`.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from loopless.bench.contest import Contender, Contest
from loopless.bench.result import Headline, Measurement, Result, Role
from loopless.bench.suites import Options, Say
from loopless.bench.targets import Rows, as_fast, at_most, attach, ratio, stated, values
from loopless.bench.timing import Budget
from pages import Lines, claims, grid, section
from suites.allo_speed import cases
from suites.allo_speed.cases import BY_BATCHES, ORIGINAL, OURS, TOLERANCE, Follower, Learning
from suites.processes import (
    function_words,
    one_thread,
    prepare_like_training,
    run_child,
    time_shares,
)
from suites.promises import as_rates, gains, per_item

SMALL, LARGE = Learning(256), Learning(1024)
STEPS = 20_000
PLOTS = 3  # how often plots are timed
WHOLE_RUNS = 3  # of ours, which are so short that other work on the machine would show

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
    measure([SMALL] if options.quick else [SMALL, LARGE], contest)
    if not options.quick:
        measure_seeds(SMALL, contest)
        measure_whole(STEPS, contest)
    if options.ablate:
        measure_proposals(SMALL, contest)


def measure(learnings: Sequence[Learning], contest: Contest) -> None:
    """Race the steps of each case, then count the operations of its update."""
    mine = (cases.CONTENDER, cases.ENCODED_BY_BATCHES)
    steps = {each.name: cases.CHUNK for each in mine} | {ORIGINAL: STEPS_IN_A_CALL}
    for case in learnings:
        judge = partial(judge_steps, case, steps)
        contest.run("steps", case, (*mine, AS_IT_WAS), judge)
    for case in learnings:
        contest.say(f"operations: {case.label}")
        contest.keep(judge_operations(operation_rows(case)))


def measure_seeds(case: Learning, contest: Contest) -> None:
    """Race one program with all seeds, on one core and on two, against one run."""
    racing = [cases.CONTENDER, cases.IN_ONE_PROGRAM]
    judge = partial(judge_seeds, cases.CONTENDER.name, cases.SEEDS, cases.CHUNK)
    with ExitStack() as stack:
        if (os.cpu_count() or 1) > 1:
            racing.append(cases.on_two_cores(stack))
        contest.run("seeds", case, racing, judge)


def measure_whole(steps: int, contest: Contest) -> None:
    label = f"1M transitions, {steps:,} steps, pictures"
    forms: tuple[tuple[str, str, Role, int, Any], ...] = (
        (OURS, "loopless", "ours", WHOLE_RUNS, time_ours),
        (ORIGINAL, "jax", "reference", 1, time_original),
    )
    rows = []
    for name, library, role, runs, measure in forms:
        contest.say(f"whole: {name}")
        row = Measurement("whole", label, name, library, role)
        rows.append(_measured(row, runs, partial(measure, steps)))
    contest.keep(judge_whole(rows))


def _measured(row: Measurement, runs: int, measure: Callable[[], dict[str, Any]]) -> Measurement:
    """Return the row of the median run, with the seconds of all; a failure ends up in the row."""
    try:
        measured = sorted((measure() for _ in range(runs)), key=lambda run: run["seconds"])
    except (RuntimeError, OSError, ValueError, KeyError) as problem:
        return replace(row, status="failed", reason=str(problem))
    seconds, middle = [run.pop("seconds") for run in measured], runs // 2
    details = {**measured[middle], "all_seconds": seconds}
    return replace(row, value=seconds[middle], samples=runs, details=details)


def measure_proposals(case: Learning, contest: Contest) -> None:
    judge = partial(judge_proposals, seconds_of_plots(case))
    contest.run("proposals", case, (WITH_LOG, *PROPOSALS), judge)


def seconds_of_plots(case: Learning, count: int = PLOTS) -> float:
    """Return the median seconds of drawing the original's figures, without the first time."""
    run, taken = original(case), []
    run.run(LOGGED)
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


FASTER = {256: 5.0, 1024: 12.0}  # steps a second, by batch
WHOLE_FACTOR = 10.0
RATE = "steps/s"
LOG_SHARE = 2.0  # per cent of the training thread's time


def judge_steps(case: Learning, steps: Mapping[str, int], rows: Rows) -> Rows:
    """Judge steps a second; `steps` has the steps of a call, by contender."""
    rows = as_rates(rows, steps.__getitem__, RATE)
    factors = {ORIGINAL: FASTER[case.batch]} if case.batch in FASTER else {}
    return attach(rows, OURS, as_fast(rows, OURS, factors))


def judge_operations(rows: Rows) -> Rows:
    """Judge that ours computes no more than the original, and state how much it does by batches."""
    counts = values(rows)
    share = {name: ratio(counts[name], counts.get(ORIGINAL)) for name in counts}
    rows = attach(rows, OURS, [at_most(1.0, share.get(OURS), f"as many as the {ORIGINAL}")])
    beside = stated(share.get(BY_BATCHES), f"× as many as the {ORIGINAL}")
    return attach(rows, BY_BATCHES, [beside])


def judge_seeds(single: str, seeds: int, steps: int, rows: Rows) -> Rows:
    """Return steps a second over all seeds: one in the row `single`, `seeds` in the others."""
    rows = as_rates(rows, lambda name: steps * (1 if name == single else seeds), RATE)
    return gains(rows, single, f"{seeds} runs one after the other")


def judge_whole(rows: Rows) -> Rows:
    """Judge the seconds of whole runs, and the share of ours that the log and the plots take."""
    targets = as_fast(rows, OURS, {ORIGINAL: WHOLE_FACTOR})
    ours = next((row for row in rows if row.contender == OURS), None)
    if ours is not None and ours.value is not None:
        spent = 100 * ours.details["log_share"]
        targets.append(at_most(LOG_SHARE, spent, f"{LOG_SHARE:g} % of its time for log and plots"))
    return attach(rows, OURS, targets)


def judge_proposals(plot_s: float, rows: Rows) -> Rows:
    """Return times of one step, with its share of the plots, and how much each proposal gains."""
    from suites.allo_speed.plain import PLOT_EVERY

    def with_plots(row: Measurement) -> Measurement:
        share = 0.0 if row.contender in DRAWS_NO_PLOTS else plot_s / PLOT_EVERY
        return replace(per_item(row, LOGGED, share), details={"plots_s": share})

    return gains([with_plots(row) for row in rows], ORIGINAL, f"the {ORIGINAL}")


ALL = "proposed: all eight"
STEPS_IN_A_CALL = 20
LOGGED = 100  # steps in a call of a proposal: as many as write one row of the log
NOTE = (
    "host sampling, three eager gathers and a dispatch a step; without its plots, unless they are "
    "named"
)
OVERALL = "part of “2–3× overall”"
NO_OP = "no-op: XLA makes the same program of it"
PROPOSED = (  # what each is, its switch in `plain.Form`, what was claimed, and what it does
    ("sampling vectorised", "table_sampling", "“50–70 %” of a step",
     "real; that share holds only where an update takes less than a millisecond"),
    ("one encoder call for three batches", "one_encoder_call", OVERALL,
     "drags the batch without a gradient through the backward pass"),
    ("plots out of the loop", "plots", OVERALL, "real; ours draws them in another process"),
    ("one gather of coordinates", "one_gather", OVERALL, "still outside of the compiled update"),
    ("@ in place of einsum", "matmul", OVERALL, NO_OP),
    ("metrics fetched at once", "batched_fetch", OVERALL, "once in a hundred steps"),
    ("eye reused, products regrouped", "reused_eye", OVERALL, NO_OP),
    ("jit on the gate's helper", "jitted_gate", OVERALL, NO_OP),
)  # fmt: skip
SWITCHES = {switch: switch != "plots" for _, switch, _, _ in PROPOSED}


def original(case: Learning, **switches: bool):
    """Return a run in the original's form, on the case's walks."""
    from suites.allo_speed.plain import Form, Plain

    return Plain(case, case.walks.obs, case.walks.terminals, Form(**switches))


def _prepare(case: Learning, steps: int, **switches: bool) -> Follower:
    run = original(case, **switches)
    return Follower(partial(run.run, steps), lambda _: None, original(case, **switches).follow)


def _original(
    name: str, role: Role, note: str, claim: str = "", steps: int = LOGGED, **switches: bool
) -> Contender:
    prepare = partial(_prepare, steps=steps, **switches)
    return Contender(name, "jax", role, prepare, TOLERANCE, note, claim)


AS_IT_WAS = _original(ORIGINAL, "reference", NOTE, steps=STEPS_IN_A_CALL)
WITH_LOG = _original(ORIGINAL, "reference", NOTE)
PROPOSALS = (
    *(
        _original(
            f"proposed {number}: {what}", "proposal", note, claim, **{switch: SWITCHES[switch]}
        )
        for number, (what, switch, claim, note) in enumerate(PROPOSED, 1)
    ),
    _original(ALL, "proposal", "", "“2–3×” overall", **SWITCHES),
)
DRAWS_NO_PLOTS = {PROPOSALS[2].name, ALL}


def operation_rows(case: Learning) -> Rows:
    """Return the operations of the original's update, of it with one encoder call, and of ours."""
    forms: tuple[tuple[str, str, Role, float], ...] = (
        (ORIGINAL, "jax", "reference", count_original(case)),
        (PROPOSALS[1].name, "jax", "proposal", count_original(case, one_encoder_call=True)),
        (OURS, "loopless", "ours", cases.count_operations(case)),
        (BY_BATCHES, "loopless", "ours", cases.count_operations(case, encode="batches")),
    )
    return [
        Measurement("operations", case.label, name, library, role, unit="MFLOP", value=value)
        for name, library, role, value in forms
    ]


def count_original(case: Learning, **switches: bool) -> float:
    """Return the millions of operations of the compiled update, without sampling and gathers."""
    run = original(case, **switches)
    batches = [run.coordinates[rows] for rows in case.stream[0]]
    return cases.million_operations(run.update.lower(run.params, run.moments, *batches))


def time_original(steps: int) -> dict[str, float]:
    """Return seconds of the original's default run, and of its parts.

    The original turned its rows into episodes by a Python loop over device scalars, seven minutes
    for the default run; that is left out.
    """
    from suites.allo_speed.plain import run_whole

    with tempfile.TemporaryDirectory() as folder:
        seconds, text = run_alone(*function_words(run_whole, steps, folder))
    return {"seconds": seconds, **json.loads(text)}


def time_ours(steps: int, case: Learning | None = None) -> dict[str, Any]:
    """Return seconds and results of `loopless train allo` with the original's settings.

    `log_share` is the share of the training thread's time that went to log and plots.
    """
    from loopless.runs.metrics import columns, read

    words = ["train", "allo", *(case or Learning()).words(), "--steps", str(steps)]
    with tempfile.TemporaryDirectory() as folder:
        seconds, _ = run_alone("loopless.cli", *words, "--runs", folder, "--run", "whole")
        run = Path(folder) / "whole"
        log = columns(read(run / "metrics.jsonl"))
        pictures = sorted(path.name for path in (run / "plots").iterdir())
    return {
        "seconds": seconds,
        "log_share": time_shares(log, slice(1, None))["time_log"],  # compilation left out
        "similarity": float(log["similarity_mean"][-1]),
        "pictures": pictures,
    }


def run_alone(module: str, *words: str) -> tuple[float, str]:
    """Run a child with one thread on one core; return its seconds, and what it printed."""
    cores = {max(os.sched_getaffinity(0))} if hasattr(os, "sched_getaffinity") else None
    return run_child(module, *words, environment=one_thread(), cores=cores)
