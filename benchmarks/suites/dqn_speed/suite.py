"""The suite `dqn_speed`: DQN's steps a second and memory against peers and an eager loop.

`slices.py` has the cases, our trainers cut into timed calls, and what the suite of PPO shares; the
loop written plainly is in `plain.py`, and other libraries are in `peers.py`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from loopless.bench.contest import Call, Contest
from loopless.bench.result import Headline, Measurement, Result
from loopless.bench.suites import Options, Say
from loopless.bench.targets import Rows, as_fast, at_most, attach, ratio, stated
from loopless.bench.timing import Budget
from loopless.process import peak_bytes, resident_bytes
from pages import Lines, grid, native_page, section
from suites.dqn_speed.peers import CONTENDERS as PEERS
from suites.dqn_speed.peers import baselines_model
from suites.dqn_speed.plain import CONTENDER as EAGER_LOOP
from suites.dqn_speed.slices import (
    COMPILED,
    EAGER,
    ENV,
    HOSTED,
    IN_HOST,
    NATIVE_TITLE,
    OVERLAPPED,
    STARTS,
    Factors,
    Slice,
    Slices,
    Training,
    as_rates,
    judge_steps,
    measure_native,
    number_row,
    race_slices,
)
from suites.processes import (
    prepare_like_training,
    run_child,
    run_command,
    warnings_of_peers_ignored,
)
from suites.q_learning.peers import BASELINES

SLICE, QUICK_SLICE = Training(5_000), Training(1_000)
FOUNDING = Training(400, (64,), 32, every=4, updates=4, repeats=8)
SPLIT_STEPS = 300_000
BARE_JAX, BARE_TORCH = "bare JAX, Equinox, Optax", "bare PyTorch, Stable-Baselines3"

TITLES = {
    "steps": "CartPole-v1, one environment, learning as it goes: steps a second",
    "native": NATIVE_TITLE,
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
    contest = Contest(result, budget, say, options.peers)
    prepare_like_training(options.threads)
    case = QUICK_SLICE if options.quick else SLICE
    told = case.config()
    names = ("buffer_size", "learning_starts", "explore_end", "target_every", "learning_rate")
    result.settings |= {name: getattr(told, name) for name in (*names, "loss", "gamma")}
    result.settings |= {"env": ENV, "max_gradient_norm": told.max_gradient_norm}
    result.settings |= {"steps_in_a_call": case.steps, "jax_async_dispatch": False}
    measure_steps(case, contest)
    if options.ablate:
        measure_native(case, contest, case.steps, lambda _, call: Call(call, int), mode="compiled")
    measure_founding(FOUNDING, contest)
    if not options.quick:
        measure_memory(contest)
        measure_growth(contest)
        measure_split(SPLIT_STEPS, contest)


def measure_steps(case: Training, contest: Contest) -> None:
    judge = partial(judge_steps, case, factors=FASTER)
    race_slices(case, [*PEERS, EAGER_LOOP], judge, contest)


def measure_founding(case: Training, contest: Contest) -> None:
    contest.run("steps", case, [IN_HOST, EAGER_LOOP], partial(judge_founding, case))


def measure_memory(contest: Contest) -> None:
    """Measure the peak memory of whole processes."""
    rows = []
    for name, library, what in (
        (HOSTED, "loopless", "hosted"),
        (COMPILED, "loopless", "compiled"),
        (BASELINES, "stable-baselines3", "baselines"),
        (BARE_JAX, "jax", "jax"),
        (BARE_TORCH, "torch", "torch"),
    ):
        if contest.peers or library in ("loopless", "jax"):
            row = number_row("memory", f"peak of {MEMORY_STEPS:,} steps", name, library, "MB")
            rows.append(contest.measure(row, partial(measure_bytes, what)))
    for name in (HOSTED, COMPILED):
        rows = judge_memory(name, BASELINES, BARE_JAX, BARE_TORCH, rows)
    contest.keep(rows)


def measure_growth(contest: Contest) -> None:
    label = f"memory left behind, {COUNTED} chunks of {MEMORY_SLICE.steps:,} steps"
    for name, what in ((HOSTED, "hosted growth"), (COMPILED, "compiled growth")):
        row = number_row("growth", label, name, "loopless", "kB")
        contest.keep([judge_growth(contest.measure(row, partial(measure_bytes, what)))])


def measure_split(steps: int, contest: Contest) -> None:
    """Measure the share of log, checkpoints and plots in a default run, with all cores."""
    label = f"log, checkpoints, plots of {steps:,} steps"
    for name, mode in ((HOSTED, "hosted"), (COMPILED, "compiled")):
        shares: dict[str, float] = {}

        def measure(mode: str = mode, shares: dict[str, float] = shares) -> float:
            shares |= measure_shares(mode, steps)
            return overhead(shares)

        row = contest.measure(number_row("split", label, name, "loopless", "%"), measure)
        contest.keep([judge_overhead(replace(row, details={"shares": shares}))])


def page(result: Result) -> list[Lines]:
    """Lay out the results page: steps a second, and memory."""
    steps = grid("CartPole-v1, one environment", section(result, "steps"))
    return [steps, *native_page(result), grid("a process", section(result, "memory"))]


FASTER: Factors = {HOSTED: 6.0, COMPILED: 18.0, OVERLAPPED: 14.0}
FOUNDING_FACTOR = 20.0
GROWTH_KB = 16.0  # kB a chunk
OVERHEAD_PERCENT = 3.0


def judge_founding(case: Slice, rows: Rows) -> list[Measurement]:
    rows = as_rates(case, rows)
    return attach(rows, HOSTED, as_fast(rows, HOSTED, {EAGER: FOUNDING_FACTOR}))


def judge_memory(
    ours: str, theirs: str, bare: str, bare_theirs: str, rows: Rows
) -> list[Measurement]:
    """Judge our peak: at most theirs plus bare JAX; state both beyond their bare frameworks."""
    found = {row.contender: row.value or 0.0 for row in rows}
    if not all(found.get(name) for name in (ours, theirs, bare, bare_theirs)):
        return attach(rows, ours, [at_most(0, None, f"the peak of {theirs} plus {bare}")])
    limit = found[theirs] + found[bare]
    beyond = ratio(found[ours] - found[bare], found[theirs] - found[bare_theirs])
    return attach(
        rows,
        ours,
        [
            at_most(limit, found[ours], f"{limit:.0f} MB: {theirs} plus {bare}"),
            stated(beyond, f"× {theirs}, each beyond its bare framework"),
        ],
    )


def judge_growth(row: Measurement) -> Measurement:
    return replace(row, targets=(at_most(GROWTH_KB, row.value, f"{GROWTH_KB:g} kB a chunk"),))


def judge_overhead(row: Measurement) -> Measurement:
    return replace(row, targets=(at_most(OVERHEAD_PERCENT, row.value, f"{OVERHEAD_PERCENT:g} %"),))


MEMORY_STEPS = 20_000
MEMORY_SLICE = Training(2_000)
WARM, COUNTED = 20, 50  # chunks


def measure_bytes(what: str) -> float:
    """Return the peak bytes of a child that runs this probe, or its growth per chunk."""
    return json.loads(run_child("suites.dqn_speed.suite", what)[1].splitlines()[-1])


def _hosted(steps: int = MEMORY_STEPS) -> float:
    return _train("hosted", steps)


def _compiled(steps: int = MEMORY_STEPS) -> float:
    return _train("compiled", steps)


def _train(mode: str, steps: int) -> float:
    """Return the peak bytes of a real run, with its log and its checkpoints."""
    from loopless.train import commands

    config = MEMORY_SLICE.config()
    with tempfile.TemporaryDirectory() as folder:
        words = {
            "mode": mode, "runs": folder, "steps": steps, "eval-every": 0,
            "learning-starts": config.learning_starts, "loss": config.loss,
            "max-gradient-norm": config.max_gradient_norm,
        }  # fmt: skip
        flags = [text for name, value in words.items() for text in (f"--{name}", str(value))]
        if code := commands.train(["dqn", *flags]):
            raise SystemExit(code)
    return peak_bytes()


def _baselines(steps: int = MEMORY_STEPS) -> float:
    baselines_model(MEMORY_SLICE).learn(steps)
    return peak_bytes()


def _bare_jax() -> float:
    """Return the peak bytes of our framework before anything is trained."""
    import equinox  # noqa: F401
    import gymnasium  # noqa: F401
    import jax
    import optax  # noqa: F401

    jax.jit(lambda x: x + 1)(1.0).block_until_ready()
    return peak_bytes()


def _bare_torch() -> float:
    """Return the peak bytes of their framework before anything is trained."""
    with warnings_of_peers_ignored():
        import stable_baselines3  # noqa: F401
        import torch

    torch.ones(2).add(1)
    return peak_bytes()


def _grown(mode: str) -> float:
    slices = Slices(MEMORY_SLICE, mode=mode)
    for _ in range(WARM):
        slices()
    before = resident_bytes()
    for _ in range(COUNTED):
        slices()
    return (resident_bytes() - before) / COUNTED


PROBES: dict[str, Callable[[], float]] = {
    "hosted": _hosted,
    "compiled": _compiled,
    "baselines": _baselines,
    "jax": _bare_jax,
    "torch": _bare_torch,
    "hosted growth": lambda: _grown("hosted"),
    "compiled growth": lambda: _grown("compiled"),
}

if __name__ == "__main__":
    print(json.dumps(PROBES[sys.argv[1]]()))


OVERHEAD_PARTS = ("time_log", "time_other")  # log, checkpoints, plots; and what no part claims


def measure_shares(mode: str, steps: int) -> dict[str, float]:
    """Return shares of the training thread's time, of a default run without evaluations."""
    from loopless.runs.metrics import columns, read

    with tempfile.TemporaryDirectory() as folder:
        words = ["train", "dqn", "--mode", mode, "--runs", folder, "--run", "split"]
        # Without evaluations, which are not overhead and which the log does not list separately.
        words += ["--steps", str(steps), "--learning-starts", str(STARTS), "--eval-every", "0"]
        run_command(*words)
        return shares(columns(read(Path(folder) / "split" / "metrics.jsonl")))


def shares(found: Mapping[str, Any]) -> dict[str, float]:
    """Return each part's share of the time after the first chunk that learned."""
    learning = np.flatnonzero(np.isfinite(found.get("loss", np.full(1, np.nan))))
    if len(learning) < 2:
        raise RuntimeError("the run was too short to say")
    rows = learning[1:]  # the first one includes compilation
    steps = np.diff(found["step"], prepend=0)[rows]
    seconds = steps / found["steps_per_second"][rows]
    names = [name for name in found if name.startswith("time_")]
    return {
        name: float((np.nan_to_num(found[name][rows]) * seconds).sum() / seconds.sum())
        for name in names
    }


def overhead(split: Mapping[str, float], names: Sequence[str] = OVERHEAD_PARTS) -> float:
    return sum(split.get(name, 0.0) for name in names)
