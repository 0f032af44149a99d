"""What the suite `avatarl` measures, section by section.

Imports its contenders and promises, and the shared core. Tests:
`tests/suites/avatarl/test_bench_avatarl.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from loopless.bench.contest import Contender, Contest
from loopless.bench.machine import prepare_libraries
from loopless.bench.result import Headline, Measurement, Result
from loopless.bench.suites import Options, Say
from loopless.bench.timing import Budget
from pages import Lines, cell, grid, markdown_table, section
from suites.avatarl import memory, operations, promises, proposals
from suites.avatarl.contenders import CONTENDERS
from suites.avatarl.losses import Losses
from suites.avatarl.plain import METHOD

SMALL = (Losses(65, 4, 4096), Losses(65, 16, 4096))
LARGE = Losses(50304, 4, 256)
HELD = Losses(50304, 4, 4096)  # whose memory is measured
QUICK_HELD = Losses(50304, 4, 256)
SAMPLE_S = 2e-3

TITLES = {
    "loss": "Loss and gradient, forward and backward: median time, ± half the quartiles",
    "memory": "Memory beyond logits and gradient, in arrays of the logits' size",
    "operations": "Operations that PyTorch dispatches, forward and backward",
    "training": "Training end to end: critic, model, loss, gradient, AdamW; tokens a second",
    "proposals": "Proposals of the founding note and of those after it, beside the looped original",
}
HEADLINES = (
    Headline(
        "AvataRL's loss: 256 tokens of 50,304, gradient included, PyTorch", "loss",
        "V = 50304, k = 4, N = 256", "loopless, PyTorch",
        (("the looped original", "the loop it replaces"),
         ("its vectorisation today", "as it was vectorised")),
        "five",
    ),
)  # fmt: skip


def run(options: Options, result: Result, say: Say) -> None:
    """Measure everything. Rows are added to `result` as they come; Ctrl-C passes through."""
    total = 0.3 if options.quick else 5.0
    contest = Contest(result, Budget(SAMPLE_S, total_s=total), say)
    prepare_libraries(options.threads)
    result.settings |= {**asdict(METHOD), "dtype": "float32", "jax_async_dispatch": False}
    measure_losses(SMALL[:1] if options.quick else (*SMALL, LARGE), CONTENDERS, contest)
    measure_memory(QUICK_HELD if options.quick else HELD, contest)
    measure_operations(SMALL[:1], contest)
    if not options.quick:
        from suites.avatarl.training import Training

        measure_training(Training(), contest.with_budget(total_s=20.0))
    if options.ablate:
        measure_proposals(SMALL[1:] if options.quick else (SMALL[1], LARGE), contest)


def measure_losses(
    cases: Iterable[Losses], contenders: Sequence[Contender], contest: Contest
) -> None:
    for case in cases:
        contest.run("loss", case, contenders, partial(promises.judge, case))


def measure_memory(case: Losses, contest: Contest) -> None:
    contest.say(f"memory: {case.label}")
    contest.result.measurements += promises.judge_memory(memory.rows(case))


def measure_operations(cases: Iterable[Losses], contest: Contest) -> None:
    for case in cases:
        contest.say(f"operations: {case.label}")
        contest.result.measurements += operations.rows(case)


def measure_training(case: Any, contest: Contest) -> None:
    """Whole updates, as `loopless train` makes them and as eager PyTorch does."""
    from suites.avatarl import torch_training, training

    mine, eager = training.CONTENDERS, torch_training.CONTENDERS
    tokens = {each.name: case.size * training.UPDATES for each in mine}
    tokens |= {each.name: case.size for each in eager}
    contest.run("training", case, (*mine, *eager), partial(promises.judge_training, tokens))


def measure_proposals(cases: Iterable[Losses], contest: Contest) -> None:
    for case in cases:
        contest.run("proposals", case, proposals.CONTENDERS)


def page(result: Result) -> list[Lines]:
    """Lay out the results page: times, memory, operations, training, and what was proposed."""
    heads = {
        "loss": "loss and gradient",
        "memory": "memory beyond logits and gradient",
        "operations": "operations dispatched",
        "training": "training, end to end",
    }
    tables = [grid(head, rows) for name, head in heads.items() if (rows := section(result, name))]
    proposed = section(result, "proposals")
    for case in dict.fromkeys(row.case for row in proposed):
        rows = [
            [row.contender, row.claim, cell(row).removesuffix(" (wrong)"), _answer(row)]
            for row in proposed
            if row.case == case
        ]
        tables.append(markdown_table([case, "claimed", "measured", "answer"], rows, "llrl"))
    return tables


def _answer(row: Measurement) -> str:
    return "the original's" if row.status == "ok" else f"another: {row.reason}"
