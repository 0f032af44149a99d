"""What the suite `returns` measures, section by section.

Imports its contenders and promises, and the shared core. Tests:
`tests/suites/returns/test_bench_returns.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache, partial
from subprocess import SubprocessError

from loopless.bench import libraries
from loopless.bench.caches import cooler
from loopless.bench.contest import Contest
from loopless.bench.result import Measurement, Result
from loopless.bench.suites import Options, Say
from loopless.bench.timing import Budget
from suites.returns import promises
from suites.returns.gradients import BOTH, PLAIN, gradient_entries
from suites.returns.memory import measure as measure_memory
from suites.returns.ours import LOOP, NUMPY, OURS, STREAM, TORCH
from suites.returns.peers import PEERS
from suites.returns.proposals import ENV_STEP_LOOP, PROPOSALS
from suites.returns.rollout import Rollout, Shape, label, random_rollout

SHAPES: tuple[Shape, ...] = (
    (25, 4),
    (25, 16),
    (128, 8),
    (128, 64),
    (2048, 1),
    (2048, 64),
    (128, 1024),
    (1024, 4096),
)
QUICK_SHAPES: tuple[Shape, ...] = ((25, 4), (128, 64), (128, 1024))
ABLATION_SHAPES: tuple[Shape, ...] = ((25, 4), (128, 64), (2048, 64), (128, 1024))
LOOP_SHAPES: tuple[Shape, ...] = ((512, 64), (25, 16))
FLOOR_SHAPES: tuple[Shape, ...] = ((2048, 64), (128, 1024), (1024, 4096))
OVERHEAD_SHAPE: Shape = (25, 4)
GRADIENT_SHAPE: Shape = (128, 1024)
MEMORY_SHAPE: Shape = (1024, 4096)


def run(options: Options, result: Result, say: Say) -> None:
    """Measure everything. Rows are added to `result` as they come; Ctrl-C passes through."""
    budget = Budget(total_s=0.12, most_samples=50) if options.quick else Budget()
    contest = Contest(result, budget, say)
    libraries.prepare(options.threads)
    result.settings |= {"gamma": 0.99, "lambda": 0.95, "dtype": "float32", "end_rate": 0.01}
    result.settings["jax_async_dispatch"] = False
    result.settings["caches"] = "warm; in section floor, second level emptied before each sample"
    measure_shapes(QUICK_SHAPES if options.quick else SHAPES, options, contest)
    measure_floor(FLOOR_SHAPES[-2:-1] if options.quick else FLOOR_SHAPES, contest)
    measure_overhead(contest)
    measure_gradients(GRADIENT_SHAPE, contest)
    measure_loops(LOOP_SHAPES, options, contest)
    if options.ablate:
        measure_proposals(ABLATION_SHAPES, contest)
    measure_peak(MEMORY_SHAPE, contest)


@lru_cache(maxsize=2)
def case(shape: Shape) -> Rollout:
    return random_rollout(*shape)


def measure_shapes(shapes: Iterable[Shape], options: Options, contest: Contest) -> None:
    peers = [peer for peer in PEERS if options.peers or peer.role == "yardstick"]
    contenders = (*OURS, LOOP, *peers, STREAM)
    for shape in shapes:
        judge = partial(promises.judge_shape, shape)
        contest.run("shapes", case(shape), contenders, judge)


def measure_floor(shapes: Iterable[Shape], contest: Contest) -> None:
    """How near the machine's own streaming speed, on caches that hold neither's data."""
    ours = [contender for contender in OURS if contender.name in (NUMPY, TORCH)]
    cold = contest.with_budget(warm_s=0.0)
    for shape in shapes:
        cold.run("floor", case(shape), (*ours, STREAM), promises.judge_floor, cooler())


def measure_overhead(contest: Contest) -> None:
    ours = [contender for contender in OURS if contender.name in (NUMPY, TORCH)]
    # What a call costs among calls, not after other work.
    steady = contest.with_budget(sample_s=1e-3)
    steady.run("overhead", case(OVERHEAD_SHAPE), ours, promises.judge_overhead)


def measure_gradients(shape: Shape, contest: Contest) -> None:
    contest.say(f"gradients: {label(shape)}")
    judge = partial(promises.judge_gradients, PLAIN, BOTH)
    contest.settle(gradient_entries(case(shape)), judge)


def measure_loops(shapes: Iterable[Shape], options: Options, contest: Contest) -> None:
    torch = next(contender for contender in OURS if contender.name == TORCH)
    # In a quick run the slower loop runs on the small shape only.
    env_step = replace(ENV_STEP_LOOP, largest=1_000) if options.quick else ENV_STEP_LOOP
    for shape in shapes:
        judge = partial(promises.judge_loops, shape)
        contest.run("loops", case(shape), (torch, LOOP, env_step), judge)


def measure_proposals(shapes: Iterable[Shape], contest: Contest) -> None:
    torch = next(contender for contender in OURS if contender.name == TORCH)
    for shape in shapes:
        contest.run("proposals", case(shape), (torch, *PROPOSALS))


def measure_peak(shape: Shape, contest: Contest) -> None:
    """Memory at `shape` beyond inputs and outputs, in arrays of that shape."""
    for library, contender in (("numpy", NUMPY), ("torch", TORCH)):
        contest.say(f"memory: {label(shape)}, {library}")
        row = Measurement("memory", label(shape), contender, "loopless", "ours", unit="arrays")
        try:
            found = measure_memory(library, *shape)
            row = replace(row, value=found["extra_bytes"] / found["array_bytes"], samples=1)
        except (RuntimeError, OSError, SubprocessError) as problem:
            missing = "No module named" in str(problem)
            status = "unavailable" if missing else "failed"
            row = replace(row, status=status, reason=str(problem))
        contest.result.measurements.append(promises.judge_memory(row))
