"""What the suite `q_learning` measures, section by section.

Imports its contenders and promises, and the shared core. Tests:
`tests/suites/q_learning/test_bench_q_learning.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from loopless.bench.contest import Contender, Contest
from loopless.bench.result import Headline, Measurement, Result
from loopless.bench.suites import Options, Say
from loopless.bench.timing import Budget
from pages import Lines, claims, grid, section
from suites.processes import prepare_like_training
from suites.q_learning import eager, losses, ours, peers, promises, proposals
from suites.q_learning.updates import STORED, Update

Shape = tuple[int, tuple[int, ...]]

SHAPES: tuple[Shape, ...] = ((32, (64,)), (64, (256, 128)), (128, (120, 84)))
CALLS = (1, 2, 4, 8, 32)
QUICK_CALLS = (1, 32)
FOUNDING = Update(32, (64,), draws=4, repeats=8)
BATCH = 32
SAMPLE_S = 2e-3

TITLES = {
    "update": "One update, sampling included, of K in a call: median time, ± half the quartiles",
    "loss": "Targets and loss alone, from values that are there",
    "proposals": "Proposals of the founding plan: time of one update, of K in a call",
}
HEADLINES = (
    Headline(
        "SLM-Lab's Q-loss: an update of batch 32, [64], 32 in one call", "update",
        "batch 32, [64], K = 32", "loopless",
        (("PyTorch, eager", "eager PyTorch"), ("Stable-Baselines3", "Stable-Baselines3")), "five",
    ),
)  # fmt: skip


def run(options: Options, result: Result, say: Say) -> None:
    """Measure everything. Rows are added to `result` as they come; Ctrl-C passes through."""
    total = 0.3 if options.quick else 3.0
    contest = Contest(result, Budget(SAMPLE_S, total_s=total), say)
    prepare_like_training(options.threads)
    rules = FOUNDING.rules
    result.settings |= {"double": rules.double, "gamma": rules.gamma, "max_norm": rules.max_norm}
    result.settings |= {"optimizer": "Adam", "learning_rate": rules.rate, "loss": "huber"}
    result.settings |= {"stored": STORED, "jax_async_dispatch": False}
    shapes, calls = (SHAPES[:1], QUICK_CALLS) if options.quick else (SHAPES, CALLS)
    cases = [Update(*shape, draws) for shape in shapes for draws in calls]
    measure_updates([*cases, FOUNDING], options, contest)
    measure_losses(BATCH, options, contest)
    if options.ablate:
        measure_proposals(Update(*SHAPES[0], CALLS[-1]), contest)


def others(options: Options, contenders: Sequence[Contender]) -> list[Contender]:
    return [each for each in contenders if options.peers or each.role != "peer"]


def measure_updates(cases: Iterable[Update], options: Options, contest: Contest) -> None:
    """One call of K updates; times are of one update."""
    for case in cases:
        able = [each for each in peers.CONTENDERS if peers.can(each, case)]
        rest = others(options, (*eager.CONTENDERS, *able))
        judge = partial(promises.judge_update, case)
        contest.run("update", case, (ours.OURS, *rest, ours.BY_HAND), judge)


def measure_losses(batch: int, options: Options, contest: Contest) -> None:
    contenders = others(options, losses.CONTENDERS)
    contest.run("loss", losses.Losses(batch), contenders, promises.judge_losses)


def measure_proposals(case: Update, contest: Contest) -> None:
    contenders = (ours.OURS, eager.PLAIN_ADAM, *proposals.PROPOSALS)
    contest.run("proposals", case, contenders, partial(promises.per_update, case))


def page(result: Result) -> list[Lines]:
    """Lay out the results page: a table for each shape, the loss, and the proposals."""
    shapes: dict[str, list[Measurement]] = {}
    for row in section(result, "update"):
        shape, _, calls = row.case.rpartition(", ")
        shapes.setdefault(shape, []).append(replace(row, case=calls))
    tables = [grid(f"one update, {shape}", rows) for shape, rows in shapes.items()]
    tables.append(grid("the loss alone", section(result, "loss")))
    if proposed := section(result, "proposals"):
        tables.append(claims(proposed[0].case, "one update", proposed))
    return tables
