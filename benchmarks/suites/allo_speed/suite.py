"""The suite `allo_speed`: training steps and whole runs beside the original pipeline.

The cases, their checks and our trainer as a contender are in `cases.py`, and the original pipeline,
written plainly, in `plain.py`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

from loopless.bench.contest import Contender, Contest
from loopless.bench.result import Headline, Measurement, Result, Role
from loopless.bench.suites import Options, Say
from loopless.bench.targets import Rows, as_fast, attach, beside
from loopless.bench.timing import Budget
from pages import Lines, grid, proposals, section
from suites.allo_speed import cases
from suites.allo_speed.cases import ORIGINAL, OURS, TOLERANCE, Follower, Learning
from suites.processes import (
    function_words,
    measure_numbers,
    one_thread,
    prepare_like_training,
    run_child,
)
from suites.promises import as_rates, gains, per_item

SMALL, LARGE = Learning(256), Learning(1024)
STEPS = 20_000
PLOTS = 3  # how often plots are timed
WHOLE_RUNS = 3  # of ours, which are so short that other work on the machine would show

TITLES = {
    "steps": "Training steps a second, sampling included",
    "whole": "A whole run: collect, train, pictures; process start to end",
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
        measure_whole(STEPS, contest)
    if options.ablate:
        measure_proposals(SMALL, contest)


def measure(learnings: Sequence[Learning], contest: Contest) -> None:
    """Race the steps of each case; steps of all seeds together count."""
    mine = cases.CONTENDER, cases.ENCODED_BY_BATCHES, cases.IN_ONE_PROGRAM
    steps = {each.name: cases.CHUNK for each in mine} | {ORIGINAL: STEPS_IN_A_CALL}
    steps[cases.TOGETHER] *= cases.SEEDS
    for case in learnings:
        contest.run("steps", case, (*mine, AS_IT_WAS), partial(judge_steps, case, steps))


def measure_whole(steps: int, contest: Contest) -> None:
    """Time whole commands: of ours the median of some runs, with the seconds of all, and one."""
    label, seconds = f"1M transitions, {steps:,} steps, pictures", list[float]()

    def ours() -> float:
        seconds.extend(time_ours(steps) for _ in range(WHOLE_RUNS))
        return median(seconds)

    ways = (OURS, "loopless", ours), (ORIGINAL, "jax", partial(time_original, steps))
    rows = measure_numbers(contest, "whole", label, "s", ways, "reference")
    rows[0] = replace(rows[0], samples=len(seconds), details={"all_seconds": seconds})
    contest.keep(attach(rows, OURS, as_fast(rows, OURS, {ORIGINAL: WHOLE_FACTOR})))


def time_ours(steps: int, case: Learning | None = None) -> float:
    """Return the seconds of `loopless train allo` with the original's settings."""
    words = ["train", "allo", *(case or Learning()).words(), "--steps", str(steps)]
    with tempfile.TemporaryDirectory() as folder:
        return run_alone("loopless.cli", *words, "--runs", folder)


def time_original(steps: int) -> float:
    """Return the seconds of the original's default run.

    The original turned its rows into episodes by a Python loop over device scalars, seven minutes
    for the default run; that is left out.
    """
    from suites.allo_speed.plain import run_whole

    with tempfile.TemporaryDirectory() as folder:
        return run_alone(*function_words(run_whole, steps, folder))


def run_alone(module: str, *words: str) -> float:
    """Run a child with one thread on one core, and return its seconds."""
    cores = {max(os.sched_getaffinity(0))} if hasattr(os, "sched_getaffinity") else None
    return run_child(module, *words, environment=one_thread(), cores=cores)[0]


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
    grids = [grid(TITLES[name], section(result, name)) for name in ("steps", "whole")]
    return [*grids, *proposals(result, "one step", TITLES["proposals"])]


FASTER = {256: 5.0, 1024: 12.0}  # steps a second, by batch
WHOLE_FACTOR = 10.0
RATE = "steps/s"


def judge_steps(case: Learning, steps: Mapping[str, int], rows: Rows) -> Rows:
    """Judge steps a second; `steps` has the steps of a call, by contender."""
    rows = as_rates(rows, steps.__getitem__, RATE)
    factors = {ORIGINAL: FASTER[case.batch]} if case.batch in FASTER else {}
    rows = attach(rows, OURS, as_fast(rows, OURS, factors))
    return attach(rows, cases.TOGETHER, beside(rows, cases.TOGETHER, [OURS]))


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
