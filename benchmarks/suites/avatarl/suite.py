"""What the suite `avatarl` measures, section by section.

Imports its contenders and promises, and the shared core. Tests:
`tests/suites/avatarl/test_bench_avatarl.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from loopless.bench import libraries
from loopless.bench.contender import Contender
from loopless.bench.contest import Contest
from loopless.bench.result import Result
from loopless.bench.suites import Options, Say
from loopless.bench.timing import Budget
from suites.avatarl import memory, operations, promises, proposals
from suites.avatarl.contenders import CONTENDERS
from suites.avatarl.losses import Losses
from suites.avatarl.plain import METHOD

SMALL = (Losses(65, 4, 4096), Losses(65, 16, 4096))
LARGE = Losses(50304, 4, 256)
HELD = Losses(50304, 4, 4096)  # whose memory is measured
QUICK_HELD = Losses(50304, 4, 256)
SAMPLE_S = 2e-3


def run(options: Options, result: Result, say: Say) -> None:
    """Measure everything. Rows are added to `result` as they come; Ctrl-C passes through."""
    total = 0.3 if options.quick else 5.0
    contest = Contest(result, Budget(SAMPLE_S, total_s=total), say)
    libraries.prepare(options.threads)
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
