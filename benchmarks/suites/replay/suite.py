"""The suite `replay`: buffers against loops, peers, and what the founding note proposed.

The cases and their checks are in `cases.py`, other libraries in `peers.py`, loops and the proposed
table in `plain.py`. `measure_host` lists what is raced against what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from loopless.bench.contest import Call, Case, Contender, Contest, Judge, enter
from loopless.bench.machine import prepare_libraries
from loopless.bench.result import Headline, Result
from loopless.bench.suites import Options, Say
from loopless.bench.targets import Rows, as_fast, at_least, at_most, attach, beside, ratio, values
from loopless.bench.timing import Budget
from pages import Lines, grid, section
from suites.processes import cache_cooler
from suites.replay.cases import (
    ALPHA,
    BETA,
    DISCOUNT,
    FIELDS,
    SEGMENT,
    STEPS,
    Adding,
    Arrays,
    Ingest,
    Prioritized,
    Sampler,
    Scanned,
    Steps,
    Trajectories,
    Uniform,
    sampler,
    scanned,
    short,
)
from suites.replay.peers import (
    ADDING_PEERS,
    BASELINES,
    CPPRB,
    FLASHBAX,
    FLASHBAX_ADDING,
    FLASHBAX_PRIORITIZED,
    FLASHBAX_SCANNED,
    FLASHBAX_UNIFORM,
    PRIORITIZED_PEERS,
    TORCHRL,
    UNIFORM_PEERS,
)
from suites.replay.plain import LOOP, PRIORITIZED_LOOP, PROPOSED, SEARCH, TABLE, UNIFORM_LOOP

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


SIZES = (100_000, 1_000_000)
BATCH = 256
MANY, SMALL = 32, 32
ROWS = 1000
EPISODIC_BATCHES = (256, 1024)
ENVS = 64
FROM, TO = 10_000, 1_000_000
# Each draw reads other places, so one warming call does not undo what another contender left in the
# caches: a sample is a millisecond of calls.
SAMPLE_S = 1e-3

# What is promised: how many times as fast as each of these. A peer counts even if its draws were
# found wrong: losing to it would still be losing.
UNIFORM_FACTORS = {
    100_000: {CPPRB: 4.0, BASELINES: 8.0, TORCHRL: 12.0},
    1_000_000: {CPPRB: 2.5, BASELINES: 4.0, TORCHRL: 6.0},
}
FACTORS = {
    "prioritized": {CPPRB: 4.0},
    "episodic": {LOOP: 120.0, PROPOSED: 15.0},
    "adding": {CPPRB: 1.0},
    "device": {FLASHBAX: 1.0},
}
TENSOR_PEERS = (BASELINES, TORCHRL)  # return tensors; stated beside ours that does
ONE_CALL_FACTOR = 20.0
INGEST_S = 1.0
GROWTH_RATIO = 4.0


def run(options: Options, result: Result, say: Say) -> None:
    """Measure everything. Rows are added to `result` as they come; Ctrl-C passes through."""
    budget = Budget(SAMPLE_S, total_s=0.12, most_samples=50) if options.quick else Budget(SAMPLE_S)
    contest = Contest(result, budget, say, options.peers)
    prepare_libraries(options.threads)
    result.settings |= {"alpha": ALPHA, "beta": BETA, "discount": DISCOUNT}
    result.settings |= {"row_steps": STEPS, "segment_steps": SEGMENT, "jax_async_dispatch": False}
    result.settings["caches"] = "warm; in section cold, second level emptied before each call"
    measure_host(
        SIZES[:1] if options.quick else SIZES,
        EPISODIC_BATCHES[:1] if options.quick else EPISODIC_BATCHES,
        contest,
        quick=options.quick,
    )
    measure_growth(FROM, TO, contest)
    if not options.quick:
        measure_cold(SIZES[0], ROWS, contest)
    measure_scanned(SIZES[:1] if options.quick else SIZES, contest)


def page(result: Result) -> list[Lines]:
    """Lay out the results page: times on the host, and times in a scan."""
    host = section(result, "uniform", "one call", "prioritized", "episodic", "adding")
    device = grid("in a jitted scan", section(result, "device"), "case", "contender")
    return [grid("host", host), device]


def measure_host(
    sizes: Sequence[int],
    batches: Iterable[int],
    contest: Contest,
    *,
    rows: int = ROWS,
    quick: bool = False,
) -> None:
    """Race the buffers on the host; only two sections use all sizes, the others the first one."""
    # The prioritized loop takes a second for a batch, so a quick run leaves it out.
    slow = replace(PRIORITIZED_LOOP, largest=10_000) if quick else PRIORITIZED_LOOP
    peers = (*UNIFORM_PEERS, FLASHBAX_UNIFORM)
    by_priority = (*OUR_PRIORITIZED, *PRIORITIZED_PEERS, FLASHBAX_PRIORITIZED, slow)
    steps = -(-sizes[0] // ENVS) * ENVS
    races: list[tuple[str, Case, Iterable[Contender], Judge]] = [
        *(
            ("uniform", Uniform(n, BATCH), (*OUR_UNIFORM, *peers, UNIFORM_LOOP),
             partial(judge_uniform, n))
            for n in sizes
        ),
        ("one call", Uniform(sizes[0], SMALL, MANY), (*OUR_UNIFORM, BATCH_BY_BATCH, *peers),
         judge_one_call),
        *(("prioritized", Prioritized(n, BATCH), by_priority, partial(judge, "prioritized"))
          for n in sizes),
        *(("episodic", Trajectories(rows, n), (OUR_EPISODIC, SEARCH, TABLE),
           partial(judge, "episodic"))
          for n in batches),
        ("adding", Adding(steps, ENVS), (OUR_ADDING, *ADDING_PEERS, FLASHBAX_ADDING),
         partial(judge, "adding")),
        ("ingest", Ingest(rows, BATCH), OUR_INGEST, judge_ingest),
    ]  # fmt: skip
    for name, case, contenders, judge_rows in races:
        contest.run(name, case, contenders, judge_rows)


def judge(section: str, rows: Rows) -> Rows:
    """Judge ours against the contenders that the table `FACTORS` names for this section."""
    return attach(rows, NUMPY, as_fast(rows, NUMPY, FACTORS[section]))


def judge_uniform(count: int, rows: Rows) -> Rows:
    """Judge ours against named peers, and state our tensors beside theirs."""
    rows = attach(rows, NUMPY, as_fast(rows, NUMPY, UNIFORM_FACTORS.get(count, {})))
    return attach(rows, TORCH, beside(rows, TORCH, TENSOR_PEERS))


def judge_one_call(rows: Rows) -> Rows:
    peers = {row.contender: row.value for row in rows if row.role == "peer" and row.value}
    fastest = min(peers, key=lambda name: peers[name], default="no peer was measured")
    faster = ratio(peers.get(fastest), values(rows).get(NUMPY))
    text = f"{ONE_CALL_FACTOR:g} × as fast as calls of the fastest peer ({fastest})"
    return attach(rows, NUMPY, [at_least(ONE_CALL_FACTOR, faster, text)])


def judge_ingest(rows: Rows) -> Rows:
    return [replace(row, targets=(at_most(INGEST_S, row.value, "1 s"),)) for row in rows]


def measure_growth(small: int, large: int, contest: Contest) -> None:
    """Race a small against a large buffer, for each law."""
    laws: tuple[tuple[str, Contender, Sequence[Case]], ...] = (
        ("uniform", OUR_UNIFORM[0], [Uniform(n, BATCH) for n in (small, large)]),
        ("prioritized", OUR_PRIORITIZED[0], [Prioritized(n, BATCH) for n in (small, large)]),
        ("episodic", OUR_EPISODIC, [Trajectories(n // 1000, BATCH) for n in (small, large)]),
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
        contest.settle(entries, partial(judge_growth, *names))


def judge_growth(small: str, large: str, rows: Rows) -> Rows:
    times = values(rows)
    slower = ratio(times.get(large), times.get(small))
    return attach(rows, large, [at_most(GROWTH_RATIO, slower, f"{GROWTH_RATIO:g} × {small}")])


def measure_cold(count: int, rows: int, contest: Contest) -> None:
    """Time single calls with emptied caches, as after an update that needed the caches itself."""
    cold = contest.with_budget(sample_s=0.0, warm_s=0.0)
    for case, contenders in (
        (Uniform(count, BATCH), (OUR_UNIFORM[0], *UNIFORM_PEERS)),
        (Prioritized(count, BATCH), (OUR_PRIORITIZED[0], *PRIORITIZED_PEERS)),
        (Trajectories(rows, BATCH), (OUR_EPISODIC, SEARCH, TABLE)),
    ):
        cold.run("cold", case, contenders, judge_cold, cache_cooler())


def judge_cold(rows: Rows) -> Rows:
    """State the same comparisons with emptied caches; nothing is promised about them."""
    times = values(rows)
    named = [name for name in (CPPRB, BASELINES, TORCHRL, LOOP, PROPOSED) if times.get(name)]
    return attach(rows, NUMPY, beside(rows, NUMPY, named, "cold, "))


def measure_scanned(sizes: Iterable[int], contest: Contest) -> None:
    """Race what compiled trainers do: draw; add and draw; draw by priority and update."""
    for count in sizes:
        for case in (
            Scanned(count, BATCH),
            Scanned(count, BATCH, envs=ENVS),
            Scanned(count, BATCH, prioritized=True),
        ):
            contest.run("device", case, (OUR_SCANNED, FLASHBAX_SCANNED), partial(judge, "device"))


NUMPY = "loopless"
TORCH = "loopless, PyTorch"
ONE_BY_ONE = "loopless, a call a batch"
PADDED = "loopless, from_padded"


def _read(output: dict[str, Any]) -> Arrays:
    """Flatten fields of shape [B, ...] or [K, B, ...] to one batch axis."""
    depth = output["reward"].ndim
    arrays = {name: np.asarray(values) for name, values in output.items()}
    return {name: values.reshape(-1, *values.shape[depth:]) for name, values in arrays.items()}


def _uniform(library: str) -> Callable[[Uniform], Sampler]:
    def prepare(case: Uniform) -> Sampler:
        from loopless.replay import ReplayBuffer

        buffer = ReplayBuffer(case.count, FIELDS)
        buffer.add(**case.stored)
        if case.batches == 1:
            return sampler(lambda: buffer.sample(case.batch, library=library), _read)
        many = case.batches
        return sampler(lambda: buffer.sample(case.batch, many, library=library), _read)

    return prepare


def _one_by_one(case: Uniform) -> Sampler:
    from loopless.replay import ReplayBuffer

    buffer = ReplayBuffer(case.count, FIELDS)
    buffer.add(**case.stored)
    return sampler(lambda: buffer.sample(case.batch), _read, case.batches)


def _prioritized(library: str) -> Callable[[Prioritized], Sampler]:
    def prepare(case: Prioritized) -> Sampler:
        from loopless.replay import PrioritizedReplayBuffer

        buffer = PrioritizedReplayBuffer(case.count, FIELDS, alpha=ALPHA)
        buffer.add(**case.stored)
        buffer.update_priorities(np.arange(case.count), case.priorities)
        fresh = case.fresh

        def draw() -> dict[str, Any]:
            return buffer.sample(case.batch, beta=BETA, library=library)

        return Sampler(
            lambda: buffer.update_priorities(draw()["indices"], fresh),
            _read,
            draw,
            buffer.update_priorities,
        )

    return prepare


def _episodic(case: Trajectories) -> Sampler:
    buffer = _filled(case)
    return sampler(lambda: buffer.sample(case.batch, discount=DISCOUNT), dict)


def _filled(case: Trajectories) -> Any:
    """Return a new buffer, filled row by row."""
    from loopless.replay import EpisodicReplayBuffer

    buffer = EpisodicReplayBuffer(case.rows * STEPS, {"obs": ((2,), np.float32)})
    for obs, terminals in zip(case.obs, case.terminals, strict=True):
        buffer.add_episode(obs=obs, terminals=terminals)
    return buffer


def _ingest(fill: Callable[[Trajectories], Any]) -> Callable[[Trajectories], Sampler]:
    def prepare(case: Trajectories) -> Sampler:
        # The check draws from this buffer, filled once; only filling is timed.
        buffer = fill(case)
        return Sampler(
            lambda: fill(case), dict, lambda: buffer.sample(case.batch, discount=DISCOUNT)
        )

    return prepare


def _padded(case: Trajectories) -> Any:
    from loopless.replay import EpisodicReplayBuffer

    return EpisodicReplayBuffer.from_padded(case.obs, case.terminals)


def _adding(case: Adding) -> Call:
    from loopless.replay import ReplayBuffer

    buffer = ReplayBuffer(case.count, FIELDS)
    for step in case.steps():
        buffer.add(**step)
    step = case.step

    def held(_: None) -> Arrays:
        rows = buffer.sample(case.count, newest=case.count)
        return {name: rows[name] for name in FIELDS}

    return Call(lambda: buffer.add(**step), held)


def _scanned(case: Scanned) -> Sampler:
    import jax

    from loopless.replay import device

    first = {name: values[0] for name, values in case.stored.items()}
    if case.prioritized:
        buffer = device.PrioritizedBuffer.like(first, case.count, alpha=ALPHA)

        def sample(state, key):
            return buffer.sample(state, key, case.batch, beta=BETA)

        steps = Steps(buffer.add, sample, buffer.update_priorities)
    else:
        buffer = device.RingBuffer.like(first, case.count)
        steps = Steps(buffer.add, lambda state, key: buffer.sample(state, key, case.batch), None)
    add = jax.jit(buffer.add, donate_argnums=0)
    return scanned(case, add(buffer.init(), case.stored), steps)


def _ours(name: str, prepare: Callable[[Any], Call], note: str = "") -> Contender:
    return Contender(name, "loopless", "ours", prepare, note=note)


OUR_UNIFORM = (_ours(NUMPY, _uniform("numpy")), _ours(TORCH, _uniform("torch")))
BATCH_BY_BATCH = _ours(ONE_BY_ONE, _one_by_one, "as many calls as a peer needs")
OUR_PRIORITIZED = (_ours(NUMPY, _prioritized("numpy")), _ours(TORCH, _prioritized("torch")))
OUR_EPISODIC = _ours(NUMPY, _episodic)
OUR_ADDING = _ours(NUMPY, _adding)
OUR_INGEST = (
    _ours(NUMPY, _ingest(_filled), "a new buffer, a call a row"),
    _ours(PADDED, _ingest(_padded), "a new buffer, one call"),
)
OUR_SCANNED = _ours(NUMPY, _scanned)
