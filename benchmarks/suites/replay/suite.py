"""The suite `replay`: buffers against loops, peers, and what the founding note proposed.

The cases and their checks are in `cases.py`, other libraries in `peers.py`, loops and the proposed
table in `plain.py`. `measure` lists what is raced against what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import loopless as ll
from loopless.bench.contest import Call, Case, Contender, Contest, Judge
from loopless.bench.machine import prepare_libraries
from loopless.bench.result import Headline, Result
from loopless.bench.suites import Options, Say
from loopless.bench.targets import Rows, as_fast, at_least, attach, beside, ratio, values
from loopless.bench.timing import Budget
from pages import tables
from suites.processes import jax
from suites.promises import fastest
from suites.replay import cases, peers, plain
from suites.replay.cases import FIELDS, Arrays, Sampler, sampler
from suites.replay.peers import BASELINES, CPPRB, FLASHBAX, TORCHRL
from suites.replay.plain import LOOP, PROPOSED, SEARCH, TABLE

TITLES = {
    "uniform": "Uniform draws, five fields as in CartPole: median time, ± half the quartile range",
    "one call": "Many small batches: one call of ours, a call a batch for the others",
    "prioritized": "Prioritized: draw, weights, update",
    "episodic": "Pairs of one segment at a truncated-geometric gap, 1000 rows × 1001 steps",
    "adding": "Adding to a full buffer",
    "device": "Inside a jitted scan on the CPU",
}
HOST = "uniform", "one call", "prioritized", "episodic", "adding"
page = tables(("host", HOST, "contender"), ("in a jitted scan", ("device",), "case"))
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


def run(options: Options, result: Result, say: Say) -> None:
    """Measure everything. Rows are added to `result` as they come; Ctrl-C passes through."""
    budget = Budget(SAMPLE_S, total_s=0.12, most_samples=50) if options.quick else Budget(SAMPLE_S)
    contest = Contest(result, budget, say, options.peers)
    prepare_libraries(options.threads)
    result.settings |= {"alpha": cases.ALPHA, "beta": cases.BETA, "discount": cases.DISCOUNT}
    result.settings |= {"row_steps": cases.STEPS, "segment_steps": cases.SEGMENT}
    result.settings |= {"jax_async_dispatch": False, "caches": "warm"}
    quick = options.quick
    sizes, batches = (SIZES[:1], EPISODIC_BATCHES[:1]) if quick else (SIZES, EPISODIC_BATCHES)
    measure(sizes, batches, contest, quick=quick)
    measure_scanned(sizes, contest)


def measure(
    sizes: Sequence[int],
    batches: Iterable[int],
    contest: Contest,
    *,
    rows: int = ROWS,
    quick: bool = False,
) -> None:
    """Race the buffers on the host; only two sections use all sizes, the others the first one."""
    # The prioritized loop takes a second for a batch, so a quick run leaves it out.
    slow = replace(plain.PRIORITIZED_LOOP, largest=10_000) if quick else plain.PRIORITIZED_LOOP
    steps = -(-sizes[0] // ENVS) * ENVS
    races: list[tuple[str, Case, Iterable[Contender], Judge]] = [
        *(
            ("uniform", cases.Uniform(n, BATCH),
             (*OUR_UNIFORM, *peers.UNIFORM_PEERS, plain.UNIFORM_LOOP), partial(judge_uniform, n))
            for n in sizes
        ),
        ("one call", cases.Uniform(sizes[0], SMALL, MANY),
         (*OUR_UNIFORM, BATCH_BY_BATCH, *peers.UNIFORM_PEERS), judge_one_call),
        *(("prioritized", cases.Prioritized(n, BATCH),
           (*OUR_PRIORITIZED, *peers.PRIORITIZED_PEERS, slow), partial(judge, "prioritized"))
          for n in sizes),
        *(("episodic", cases.Trajectories(rows, n), (OUR_EPISODIC, SEARCH, TABLE),
           partial(judge, "episodic"))
          for n in batches),
        ("adding", cases.Adding(steps, ENVS), (OUR_ADDING, *peers.ADDING_PEERS),
         partial(judge, "adding")),
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
    peer, seconds = fastest(rows, "peer")
    text = f"{ONE_CALL_FACTOR:g} × as fast as calls of the fastest peer ({peer})"
    faster = ratio(seconds, values(rows).get(NUMPY))
    return attach(rows, NUMPY, [at_least(ONE_CALL_FACTOR, faster, text)])


def measure_scanned(sizes: Iterable[int], contest: Contest) -> None:
    """Race what compiled trainers do: draw; add and draw; draw by priority and update."""
    contenders = OUR_SCANNED, peers.FLASHBAX_SCANNED
    for count in sizes:
        for prioritized, envs in ((False, 0), (False, ENVS), (True, 0)):
            case = cases.Scanned(count, BATCH, prioritized, envs)
            contest.run("device", case, contenders, partial(judge, "device"))


NUMPY, TORCH = "loopless", "loopless, PyTorch"


def _read(output: dict[str, Any]) -> Arrays:
    """Flatten fields of shape [B, ...] or [K, B, ...] to one batch axis."""
    depth = output["reward"].ndim
    arrays = {name: np.asarray(values) for name, values in output.items()}
    return {name: values.reshape(-1, *values.shape[depth:]) for name, values in arrays.items()}


def _uniform(case: cases.Uniform, library: str = "numpy", at_once: bool = True) -> Sampler:
    buffer = ll.ReplayBuffer(case.count, FIELDS)
    buffer.add(**case.stored)
    if case.batches == 1 or not at_once:
        return sampler(partial(buffer.sample, case.batch, library=library), _read, case.batches)
    return sampler(partial(buffer.sample, case.batch, case.batches, library=library), _read)


def _prioritized(case: cases.Prioritized, library: str = "numpy") -> Sampler:
    buffer = ll.PrioritizedReplayBuffer(case.count, FIELDS, alpha=cases.ALPHA)
    buffer.add(**case.stored)
    draw = partial(buffer.sample, case.batch, beta=cases.BETA, library=library)
    return case.sampler(draw, buffer.update_priorities, _read)


def _episodic(case: cases.Trajectories) -> Sampler:
    buffer = ll.EpisodicReplayBuffer.from_padded(case.obs, case.terminals)
    return sampler(partial(buffer.sample, case.batch, discount=cases.DISCOUNT), dict)


def _adding(case: cases.Adding) -> Call:
    buffer = ll.ReplayBuffer(case.count, FIELDS)
    for step in case.steps():
        buffer.add(**step)
    step = case.step

    def read(_: None) -> Arrays:
        rows = buffer.sample(case.count, newest=case.count)
        return {name: rows[name] for name in FIELDS}

    return Call(lambda: buffer.add(**step), read)


def _scanned(case: cases.Scanned) -> Sampler:
    from loopless.replay import device

    first, settings = {name: values[0] for name, values in case.stored.items()}, dict[str, Any]()
    if case.prioritized:
        buffer = device.PrioritizedBuffer.like(first, case.count, alpha=cases.ALPHA)
        settings["beta"], update = cases.BETA, buffer.update_priorities
    else:
        buffer, update = device.RingBuffer.like(first, case.count), None

    def sample(state, key):
        return buffer.sample(state, key, case.batch, **settings)

    state = jax.jit(buffer.add, donate_argnums=0)(buffer.init(), case.stored)
    return peers.scanned(case, state, buffer.add, sample, update)


def _ours(name: str, prepare: Callable[[Any], Call], note: str = "") -> Contender:
    return Contender(name, "loopless", "ours", prepare, note=note)


OUR_UNIFORM = (_ours(NUMPY, _uniform), _ours(TORCH, partial(_uniform, library="torch")))
BATCH_BY_BATCH = _ours(
    "loopless, a call a batch", partial(_uniform, at_once=False), "as many calls as a peer needs"
)
OUR_PRIORITIZED = (_ours(NUMPY, _prioritized), _ours(TORCH, partial(_prioritized, library="torch")))
OUR_EPISODIC = _ours(NUMPY, _episodic)
OUR_ADDING = _ours(NUMPY, _adding)
OUR_SCANNED = _ours(NUMPY, _scanned)
