"""What the suite `replay` measures, section by section.

Imports its contenders and promises, and the shared core. Tests:
`tests/suites/replay/test_bench_replay.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from loopless.bench.contest import Case, Contender, Contest, enter
from loopless.bench.machine import cache_cooler, prepare_libraries
from loopless.bench.result import Headline, Result
from loopless.bench.suites import Options, Say
from loopless.bench.timing import Budget
from pages import Lines, grid, section
from suites.replay import device, flashbax_peer, loops, ours, peers, promises
from suites.replay.trajectories import DISCOUNT, SEGMENT, STEPS, Ingest, Trajectories
from suites.replay.transitions import ALPHA, BETA, Adding, Prioritized, Uniform, short

SIZES = (100_000, 1_000_000)
BATCH = 256
MANY, SMALL = 32, 32
ROWS = 1000
EPISODIC_BATCHES = (256, 1024)
ENVS = 64
FROM, TO = 10_000, 1_000_000
# A draw reads other rows each time: one call does not undo what a neighbour left in the caches.
SAMPLE_S = 1e-3

TITLES = {
    "uniform": "Uniform draws, five fields as in CartPole: median time, ± half the quartile range",
    "one call": "Many small batches: one call of ours, a call a batch for the others",
    "prioritized": "Prioritized: draw, weights, update",
    "episodic": "Pairs of one segment at a truncated-geometric gap, 1000 rows × 1001 steps",
    "adding": "Adding to a full buffer",
    "ingest": "Filling an episodic buffer",
    "cold": "A call at a time, second-level cache emptied before it",
    "growth": "The same call on a small buffer and on a large one",
    "device": "Inside a jitted scan on the CPU",
}
HEADLINES = (
    Headline(
        "ALLO's replay: successors at geometric gaps, 256 of 1M steps", "episodic",
        "episodic, 256 of 1M", "loopless",
        (("reference: one at a time", "the loop it replaces"),), "five",
    ),
    Headline(
        "prioritized replay: draw 256 of 1M, weigh, update", "prioritized",
        "prioritized, 256 of 1M", "loopless", (("cpprb", "cpprb"), ("Tianshou", "Tianshou")),
    ),
)  # fmt: skip


def run(options: Options, result: Result, say: Say) -> None:
    """Measure everything. Rows are added to `result` as they come; Ctrl-C passes through."""
    budget = Budget(SAMPLE_S, total_s=0.12, most_samples=50) if options.quick else Budget(SAMPLE_S)
    contest = Contest(result, budget, say)
    prepare_libraries(options.threads)
    result.settings |= {"alpha": ALPHA, "beta": BETA, "discount": DISCOUNT}
    result.settings |= {"row_steps": STEPS, "segment_steps": SEGMENT, "jax_async_dispatch": False}
    result.settings["caches"] = "warm; in section cold, second level emptied before each call"
    sizes = SIZES[:1] if options.quick else SIZES
    measure_uniform(sizes, options, contest)
    measure_one_call(SIZES[0], options, contest)
    measure_prioritized(sizes, options, contest)
    measure_episodic(ROWS, EPISODIC_BATCHES[:1] if options.quick else EPISODIC_BATCHES, contest)
    measure_adding(SIZES[0], options, contest)
    measure_ingest(ROWS, contest)
    measure_growth(FROM, TO, contest)
    if not options.quick:
        measure_cold(SIZES[0], ROWS, options, contest)
    measure_scanned(sizes, options, contest)


def others(options: Options, *contenders: Contender) -> Iterable[Contender]:
    return [each for each in contenders if options.peers or each.role != "peer"]


def measure_uniform(sizes: Iterable[int], options: Options, contest: Contest) -> None:
    rest = others(options, *peers.UNIFORM, flashbax_peer.UNIFORM, loops.UNIFORM)
    for count in sizes:
        judge = partial(promises.judge_uniform, count)
        contest.run("uniform", Uniform(count, BATCH), (*ours.UNIFORM, *rest), judge)


def measure_one_call(count: int, options: Options, contest: Contest) -> None:
    case = Uniform(count, SMALL, MANY)
    rest = others(options, *peers.UNIFORM, flashbax_peer.UNIFORM)
    mine = (*ours.UNIFORM, ours.BATCH_BY_BATCH)
    contest.run("one call", case, (*mine, *rest), promises.judge_one_call)


def measure_prioritized(sizes: Iterable[int], options: Options, contest: Contest) -> None:
    # In a quick run the loop, a second a batch, is left out.
    loop = replace(loops.PRIORITIZED, largest=10_000) if options.quick else loops.PRIORITIZED
    rest = others(options, *peers.PRIORITIZED, flashbax_peer.PRIORITIZED, loop)
    for count in sizes:
        case = Prioritized(count, BATCH)
        contest.run("prioritized", case, (*ours.PRIORITIZED, *rest), promises.judge_prioritized)


def measure_episodic(rows: int, batches: Iterable[int], contest: Contest) -> None:
    contenders = (ours.EPISODIC, loops.SEARCH, loops.TABLE)
    for batch in batches:
        contest.run("episodic", Trajectories(rows, batch), contenders, promises.judge_episodic)


def measure_adding(count: int, options: Options, contest: Contest) -> None:
    case = Adding(-(-count // ENVS) * ENVS, ENVS)
    rest = others(options, *peers.ADDING, flashbax_peer.ADDING)
    contest.run("adding", case, (ours.ADDING, *rest), promises.judge_adding)


def measure_ingest(rows: int, contest: Contest) -> None:
    contest.run("ingest", Ingest(rows, BATCH), ours.INGEST, promises.judge_ingest)


def measure_growth(small: int, large: int, contest: Contest) -> None:
    """One law at a time, small and large buffers in one race."""
    laws: tuple[tuple[str, Contender, Sequence[Case]], ...] = (
        ("uniform", ours.UNIFORM[0], [Uniform(n, BATCH) for n in (small, large)]),
        ("prioritized", ours.PRIORITIZED[0], [Prioritized(n, BATCH) for n in (small, large)]),
        ("episodic", ours.EPISODIC, [Trajectories(n // 1000, BATCH) for n in (small, large)]),
    )
    for law, contender, cases in laws:
        contest.say(f"growth: {law}")
        names = [f"{contender.name}, {short(case.size)}" for case in cases]
        entries = [
            enter(replace(contender, name=name), "growth", case)
            for name, case in zip(names, cases, strict=True)
        ]
        for entry in entries:
            entry.row = replace(entry.row, case=f"{law}, {BATCH}")
        contest.settle(entries, partial(promises.judge_growth, *names))


def measure_cold(count: int, rows: int, options: Options, contest: Contest) -> None:
    """A call at a time, as after an update that needed the caches for itself. Nothing promised."""
    cold = contest.with_budget(sample_s=0.0, warm_s=0.0)
    for case, contenders in (
        (Uniform(count, BATCH), (ours.UNIFORM[0], *others(options, *peers.UNIFORM))),
        (Prioritized(count, BATCH), (ours.PRIORITIZED[0], *others(options, *peers.PRIORITIZED))),
        (Trajectories(rows, BATCH), (ours.EPISODIC, loops.SEARCH, loops.TABLE)),
    ):
        cold.run("cold", case, contenders, promises.judge_cold, cache_cooler())


def measure_scanned(sizes: Iterable[int], options: Options, contest: Contest) -> None:
    """What a compiled trainer does: draw; add and draw; draw by priority and update."""
    contenders = (device.OURS, *others(options, flashbax_peer.SCANNED))
    for count in sizes:
        for case in (
            device.Scanned(count, BATCH),
            device.Scanned(count, BATCH, envs=ENVS),
            device.Scanned(count, BATCH, prioritized=True),
        ):
            contest.run("device", case, contenders, promises.judge_scanned)


def page(result: Result) -> list[Lines]:
    """Lay out the results page: times on the host, and times in a scan."""
    host = section(result, "uniform", "one call", "prioritized", "episodic", "adding")
    device = grid("in a jitted scan", section(result, "device"), "case", "contender")
    return [grid("host", host), device]
