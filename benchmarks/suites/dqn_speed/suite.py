"""What the suite `training` measures, section by section.

Imports its contenders and promises, and the shared core. Tests:
`tests/suites/dqn_speed/test_bench_training.py`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from loopless.bench.contest import Contest
from loopless.bench.result import Headline, Result
from loopless.bench.suites import Options, Say
from loopless.bench.timing import Budget
from pages import Lines, grid, section
from suites.dqn_speed import loops, memory, ours, peers, promises, settings, split
from suites.dqn_speed.sections import number, race
from suites.dqn_speed.settings import Training
from suites.processes import prepare_like_training
from suites.q_learning.peers import BASELINES

SLICE, QUICK_SLICE = Training(5_000), Training(1_000)
FOUNDING = Training(400, (64,), 32, every=4, updates=4, repeats=8)
SPLIT_STEPS = 300_000
BARE_JAX, BARE_TORCH = "bare JAX, Equinox, Optax", "bare PyTorch, Stable-Baselines3"

TITLES = {
    "steps": "CartPole-v1, one environment, learning as it goes: steps a second",
    "memory": "Peak memory of a process that trains",
    "growth": "Memory left behind by a chunk after warm-up",
    "split": "Share of the training thread's time that is neither environment, acting nor learning",
}
HEADLINES = tuple(
    Headline(
        f"DQN on CartPole, {what}", "steps", "[120, 84], batch 128, 1 update in 10 steps", ours,
        (("Stable-Baselines3", "Stable-Baselines3"), ("SBX", "SBX")),
    )
    for what, ours in (
        ("compiled", "loopless, compiled"),
        ("any Gymnasium environment", "loopless, hosted"),
    )
)  # fmt: skip


def run(options: Options, result: Result, say: Say) -> None:
    """Measure everything. Rows are added to `result` as they come; Ctrl-C passes through."""
    budget = Budget(sample_s=0.5, total_s=2.0) if options.quick else Budget(2.0, total_s=24.0)
    contest = Contest(result, budget, say)
    prepare_like_training(options.threads)
    case = QUICK_SLICE if options.quick else SLICE
    told = case.config()
    names = ("buffer_size", "learning_starts", "explore_end", "target_every", "learning_rate")
    result.settings |= {name: getattr(told, name) for name in (*names, "loss", "gamma")}
    result.settings |= {"env": settings.ENV, "max_gradient_norm": told.max_gradient_norm}
    result.settings |= {"steps_in_a_call": case.steps, "jax_async_dispatch": False}
    measure_steps(case, options, contest)
    measure_founding(FOUNDING, options, contest)
    if not options.quick:
        measure_memory(options, contest)
        measure_growth(contest)
        measure_split(SPLIT_STEPS, contest)


def measure_steps(case: Training, options: Options, contest: Contest) -> None:
    others = [*peers.CONTENDERS, loops.CONTENDER] if options.peers else []
    race(case, others, partial(promises.judge_steps, case), contest)


def measure_founding(case: Training, options: Options, contest: Contest) -> None:
    contenders = [ours.IN_HOST, *([loops.CONTENDER] if options.peers else [])]
    contest.run("steps", case, contenders, partial(promises.judge_founding, case))


def measure_memory(options: Options, contest: Contest) -> None:
    """Peaks of whole processes."""
    label = f"peak of {memory.STEPS:,} steps"
    rows = [
        number(contest, "memory", label, name, library, partial(memory.measure, what), "MB")
        for name, library, what in (
            (ours.HOSTED, "loopless", "hosted"),
            (ours.COMPILED, "loopless", "compiled"),
            (BASELINES, "stable-baselines3", "baselines"),
            (BARE_JAX, "jax", "jax"),
            (BARE_TORCH, "torch", "torch"),
        )
        if options.peers or library in ("loopless", "jax")
    ]
    for name in (ours.HOSTED, ours.COMPILED):
        rows = promises.judge_memory(name, BASELINES, BARE_JAX, BARE_TORCH, rows)
    contest.result.measurements += rows


def measure_growth(contest: Contest) -> None:
    label = f"memory left behind, {memory.COUNTED} chunks of {memory.SLICE.steps:,} steps"
    for name, what in ((ours.HOSTED, "hosted growth"), (ours.COMPILED, "compiled growth")):
        measure = partial(memory.measure, what)
        row = number(contest, "growth", label, name, "loopless", measure, "kB")
        contest.result.measurements.append(promises.judge_growth(row))


def measure_split(steps: int, contest: Contest) -> None:
    """Log, checkpoints and plots in the time of a real run, with all cores and the defaults."""
    label = f"log, checkpoints, plots of {steps:,} steps"
    for name, mode in ((ours.HOSTED, "hosted"), (ours.COMPILED, "compiled")):
        found: dict[str, float] = {}

        def measure(mode: str = mode, found: dict[str, float] = found) -> float:
            found |= split.measure(mode, steps)
            return split.overhead(found)

        row = number(contest, "split", label, name, "loopless", measure, "%")
        row = replace(row, details={"shares": found})
        contest.result.measurements.append(promises.judge_overhead(row))


def page(result: Result) -> list[Lines]:
    """Lay out the results page: steps a second, and memory."""
    steps = grid("CartPole-v1, one environment", section(result, "steps"))
    return [steps, grid("a process", section(result, "memory"))]
