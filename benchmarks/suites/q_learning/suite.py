"""The suite `q_learning`: K updates in one call against eager PyTorch and peers.

The cases and their checks are in `updates.py`, eager PyTorch and the proposals in `plain.py`, other
libraries in `peers.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np

from loopless.bench.contest import Call, Contender, Contest
from loopless.bench.result import Headline, Measurement, Result
from loopless.bench.suites import Options, Say
from loopless.bench.targets import Rows, as_fast, attach, beside, values
from loopless.bench.timing import Budget
from pages import Lines, grid, grouped, proposals, section
from suites.processes import jax, jnp, prepare_like_training
from suites.promises import limit, per_item
from suites.q_learning import plain, updates
from suites.q_learning.peers import BASELINES, PEERS, SBX, can
from suites.q_learning.plain import EAGER, FUSED_ADAM, PROPOSALS
from suites.q_learning.updates import STORED, TOLERANCE, Layers, Learned, Update

Shape = tuple[int, tuple[int, ...]]

SHAPES: tuple[Shape, ...] = ((32, (64,)), (64, (256, 128)), (128, (120, 84)))
CALLS = (1, 2, 4, 8, 32)
QUICK_CALLS = (1, 32)
FOUNDING = Update(32, (64,), draws=4, repeats=8)
SAMPLE_S = 2e-3

TITLES = {
    "update": "One update, sampling included, of K in a call: median time, ± half the quartiles",
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
    contest = Contest(result, Budget(SAMPLE_S, total_s=total), say, options.peers)
    prepare_like_training(options.threads)
    rules = FOUNDING.rules
    result.settings |= {"double": rules.double, "gamma": rules.gamma, "max_norm": rules.max_norm}
    result.settings |= {"optimizer": "Adam", "learning_rate": rules.rate, "loss": "huber"}
    result.settings |= {"stored": STORED, "jax_async_dispatch": False}
    shapes, calls = (SHAPES[:1], QUICK_CALLS) if options.quick else (SHAPES, CALLS)
    cases = [Update(*shape, draws) for shape in shapes for draws in calls]
    measure([*cases, FOUNDING], contest)
    if options.ablate:
        measure_proposals(Update(*SHAPES[0], CALLS[-1]), contest)


def measure(cases: Iterable[Update], contest: Contest) -> None:
    """Time calls of K updates, whose rows have the time of one update."""
    for case in cases:
        able = [each for each in PEERS if can(each, case)]
        contenders = (OURS, *plain.EAGER_CONTENDERS, *able, BY_HAND)
        contest.run("update", case, contenders, partial(judge_update, case))


def measure_proposals(case: Update, contest: Contest) -> None:
    contenders = (OURS, plain.EAGER_CONTENDERS[0], *PROPOSALS)
    contest.run("proposals", case, contenders, partial(per_update, case))


def page(result: Result) -> list[Lines]:
    """Lay out the results page: a table for each shape, and the proposals."""
    shapes = grouped(section(result, "update"), lambda row: row.case.rpartition(", ")[0])
    tables = [
        grid(
            f"one update, {shape}",
            [replace(row, case=row.case.removeprefix(f"{shape}, ")) for row in rows],
        )
        for shape, rows in shapes.items()
    ]
    return [*tables, *proposals(result, "measured")]


JUDGED_AT = 32  # updates in one call
FASTER: dict[tuple, float] = {(32, (64,)): 20.0, (64, (256, 128)): 4.0, (128, (120, 84)): 4.0}
WHOLE_UPDATE: dict[tuple, float] = {(32, (64,)): 100.0}  # microseconds, sampling included


def per_update(case: Update, rows: Rows) -> list[Measurement]:
    """Convert times of a call to times of one gradient step."""
    return [per_item(row, case.updates) for row in rows]


def judge_update(case: Update, rows: Rows) -> list[Measurement]:
    rows, shape = per_update(case, rows), (case.batch, case.hidden)
    if case.draws != JUDGED_AT:
        return rows
    times = values(rows)
    targets = as_fast(rows, FUSED, {EAGER: FASTER[shape]} if shape in FASTER else {})
    measured = [name for name in (FUSED_ADAM, BASELINES, SBX) if times.get(name)]
    rows = attach(rows, FUSED, [*targets, *beside(rows, FUSED, measured)])
    most = {FUSED: WHOLE_UPDATE[shape]} if shape in WHOLE_UPDATE else {}
    return limit(rows, most, "µs an update", scale=1e6)


FUSED, PLAIN = "loopless", "reference: NumPy by hand"


def _fused(case: Update) -> Call:
    from loopless.envs.spaces import Box
    from loopless.train.dqn.algorithm import build
    from loopless.train.dqn.config import DQN

    rules = case.rules
    config = DQN(
        hidden=case.hidden, batch_size=case.batch, updates=case.draws, repeats=case.repeats,
        double=rules.double, gamma=rules.gamma, learning_rate=rules.rate, loss="huber",
        max_gradient_norm=rules.max_norm, buffer_size=STORED,
    )  # fmt: skip
    algorithm = build(config, Box((updates.OBS,)), updates.ACTIONS)
    learner, replay = jax.jit(algorithm.init)(jax.random.key(0))
    learner = learner._replace(
        weights=jnp.asarray(as_vector(case.online)), target=jnp.asarray(as_vector(case.target))
    )
    rows = case.stored | {"truncated": np.zeros(STORED, bool)}
    rows["action"] = rows["action"].astype(np.int32)
    replay = jax.jit(algorithm.replay.add, donate_argnums=0)(replay, rows)
    run_key, beta = jax.random.key(case.seed), jnp.float32(1)

    @partial(jax.jit, donate_argnums=0)
    def learn(carry, key, number):
        learner, replay = carry
        key = jax.random.fold_in(key, number)
        learner, replay, report = algorithm.learn(learner, replay, key, beta)
        return (learner, replay), report.loss.mean()

    @jax.jit
    def drawn(replay, key, number):
        key = jax.random.fold_in(key, number)
        return algorithm.sample(replay, key, beta, config.draws)["indices"]

    carry, number = (learner, replay), np.int32(0)

    def run() -> None:
        nonlocal carry, number
        carry, loss = learn(carry, run_key, number)
        loss.block_until_ready()
        number += np.int32(1)

    def read(_: None) -> Learned:
        indices = [drawn(carry[1], run_key, np.int32(call)) for call in range(number)]
        layers = as_layers(np.asarray(carry[0].weights), case.online)
        return Learned(np.concatenate(indices), layers, rules)

    return Call(run, read)


def as_vector(layers: Layers) -> np.ndarray:
    return np.concatenate([part.ravel() for layer in layers for part in layer])


def as_layers(vector: np.ndarray, like: Layers) -> Layers:
    """Cut a vector into layers of the shapes of `like`."""
    sizes = [part.size for layer in like for part in layer]
    parts = iter(np.split(vector, np.cumsum(sizes)[:-1]))
    return [(next(parts).reshape(w.shape), next(parts).reshape(b.shape)) for w, b in like]


def _plain(case: Update) -> Call:
    by_hand = updates.Plain(case.online, case.target, case.rules, np.float32)
    generator, stored = np.random.default_rng(case.seed), case.stored
    drawn: list[np.ndarray] = []
    remembers = True

    def run() -> None:
        for _ in range(case.draws):
            rows = generator.integers(0, STORED, case.batch)
            if remembers:
                drawn.append(rows)
            batch = {name: values[rows] for name, values in stored.items()}
            for _ in range(case.repeats):
                by_hand.update(batch)

    def read(_: None) -> Learned:
        nonlocal remembers
        remembers = False
        return Learned(np.stack(drawn), by_hand.online.layers, case.rules)

    return Call(run, read)


OURS = Contender(FUSED, "loopless", "ours", _fused, TOLERANCE)
BY_HAND = Contender(PLAIN, "numpy", "reference", _plain, TOLERANCE)
