"""The suite `returns`: GAE against its loop, its peers and its promises."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from subprocess import SubprocessError

from loopless.bench import targets
from loopless.bench.caches import cooler
from loopless.bench.contender import Contender, Entry, enter, race
from loopless.bench.gradients import BOTH, PLAIN, gradient_entries
from loopless.bench.memory import measure as measure_memory
from loopless.bench.ours import LOOP, NUMPY, OURS, STREAM, TORCH
from loopless.bench.peers import PEERS
from loopless.bench.proposals import ENV_STEP_LOOP, PROPOSALS
from loopless.bench.result import Measurement, Result
from loopless.bench.rollout import Answers, Rollout, random_rollout, right_answers
from loopless.bench.suites import Options, Say
from loopless.bench.timing import Budget

Shape = tuple[int, int]
Judge = Callable[[Sequence[Measurement]], list[Measurement]]

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
    prepare_libraries(options.threads)
    result.settings |= {"gamma": 0.99, "lambda": 0.95, "dtype": "float32", "end_rate": 0.01}
    result.settings["jax_async_dispatch"] = False
    result.settings["caches"] = "warm; in section floor, second level emptied before each sample"
    measure_shapes(QUICK_SHAPES if options.quick else SHAPES, options, budget, result, say)
    measure_floor(FLOOR_SHAPES[-2:-1] if options.quick else FLOOR_SHAPES, budget, result, say)
    measure_overhead(budget, result, say)
    measure_gradients(GRADIENT_SHAPE, budget, result, say)
    measure_loops(LOOP_SHAPES, options, budget, result, say)
    if options.ablate:
        measure_proposals(ABLATION_SHAPES, budget, result, say)
    measure_peak(MEMORY_SHAPE, result, say)


def prepare_libraries(threads: int) -> None:
    """Settings that hold for all rows of a library, ours and peers' alike."""
    try:
        import torch

        torch.set_num_threads(threads)
    except ImportError:
        pass
    try:
        import jax

        # Every row waits for its answer: a hop to another thread would only add noise.
        jax.config.update("jax_cpu_enable_async_dispatch", False)
    except ImportError:
        pass


@lru_cache(maxsize=2)
def case(shape: Shape) -> tuple[Rollout, Answers]:
    rollout = random_rollout(*shape)
    return rollout, right_answers(rollout)


def measure_shapes(
    shapes: Iterable[Shape], options: Options, budget: Budget, result: Result, say: Say
) -> None:
    peers = [peer for peer in PEERS if options.peers or peer.role == "yardstick"]
    contenders = (*OURS, LOOP, *peers, STREAM)
    for shape in shapes:
        contest("shapes", shape, contenders, budget, result, say, targets.judge_shape)


def measure_floor(shapes: Iterable[Shape], budget: Budget, result: Result, say: Say) -> None:
    """How near the machine's own streaming speed, on caches that hold neither's data."""
    ours = [contender for contender in OURS if contender.name in (NUMPY, TORCH)]
    cold = replace(budget, warm_s=0.0)
    for shape in shapes:
        contest("floor", shape, (*ours, STREAM), cold, result, say, targets.judge_floor, cooler())


def measure_overhead(budget: Budget, result: Result, say: Say) -> None:
    ours = [contender for contender in OURS if contender.name in (NUMPY, TORCH)]
    steady = replace(budget, sample_s=1e-3)  # what a call costs among calls, not after other work
    contest("overhead", OVERHEAD_SHAPE, ours, steady, result, say, targets.judge_overhead)


def measure_gradients(shape: Shape, budget: Budget, result: Result, say: Say) -> None:
    say(f"gradients at {shape}")
    settle(
        gradient_entries(case(shape)[0]),
        budget,
        result,
        lambda rows: targets.judge_gradients(rows, PLAIN, BOTH),
    )


def measure_loops(
    shapes: Iterable[Shape], options: Options, budget: Budget, result: Result, say: Say
) -> None:
    torch = next(contender for contender in OURS if contender.name == TORCH)
    # In a quick run the slower loop runs on the small shape only.
    env_step = replace(ENV_STEP_LOOP, most_steps=1_000) if options.quick else ENV_STEP_LOOP
    for shape in shapes:
        contest("loops", shape, (torch, LOOP, env_step), budget, result, say, targets.judge_loops)


def measure_proposals(shapes: Iterable[Shape], budget: Budget, result: Result, say: Say) -> None:
    torch = next(contender for contender in OURS if contender.name == TORCH)
    for shape in shapes:
        contest("proposals", shape, (torch, *PROPOSALS), budget, result, say, list)


def contest(
    section: str,
    shape: Shape,
    contenders: Iterable[Contender],
    budget: Budget,
    result: Result,
    say: Say,
    judge: Judge,
    between: Callable[[], None] = lambda: None,
) -> None:
    """One case: check every contender's answers, race those that run, keep the rows."""
    say(f"{section} at {shape}")
    rollout, right = case(shape)
    entries = [enter(c, section, rollout, right) for c in contenders]
    settle(entries, budget, result, judge, between)


def settle(
    entries: Iterable[Entry],
    budget: Budget,
    result: Result,
    judge: Judge,
    between: Callable[[], None] = lambda: None,
) -> None:
    rows, interrupted = race(entries, budget, between)
    result.measurements += judge(rows)
    if interrupted:
        raise KeyboardInterrupt


def measure_peak(shape: Shape, result: Result, say: Say) -> None:
    """Memory at `shape` beyond inputs and outputs, in arrays of that shape."""
    for library, contender in (("numpy", NUMPY), ("torch", TORCH)):
        say(f"memory at {shape}, {library}")
        row = Measurement("memory", *shape, contender, "loopless", "ours", unit="arrays")
        try:
            found = measure_memory(library, *shape)
            row = replace(row, value=found["extra_bytes"] / found["array_bytes"], samples=1)
        except (RuntimeError, OSError, SubprocessError) as problem:
            missing = "No module named" in str(problem)
            status = "unavailable" if missing else "failed"
            row = replace(row, status=status, reason=str(problem))
        result.measurements.append(targets.judge_memory(row))
