"""Our trainer in this suite: by default, with `--encode batches`, and several seeds in one program.

A call is a chunk with its row of metrics. Importing this imports JAX, so the suite does it late.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from functools import partial
from typing import Any, cast
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

from loopless.bench.contest import Contender
from loopless.runs.progress.clock import Clock
from loopless.train.allo.algorithm import build
from loopless.train.allo.data import Batch
from loopless.train.allo.run import ALLORun
from suites.allo_speed.cases import (
    BY_BATCHES,
    OURS,
    TOLERANCE,
    Follower,
    Indices,
    Layers,
    Learning,
    million_operations,
)
from suites.dqn_speed.slices import Worker

SEEDS = 8
CHUNK = 500  # steps in a call
ENDLESS = {"steps": 10**9, "log_every": CHUNK, "plot_every": 0}
TOGETHER = f"loopless, {SEEDS} seeds in one program"
TOGETHER_ON_TWO = f"{TOGETHER}, on two cores"


def started(case: Learning, **changes: Any) -> ALLORun:
    """Return a run of our trainer whose chunks are `CHUNK` steps, and which does not end."""
    return ALLORun(case.config(**ENDLESS | changes))


def follow(run: ALLORun, stream: Indices) -> np.ndarray:
    """Return the features of all states after learning from these indices, starting as seed 0."""
    algorithm, update = run.algorithm, jax.jit(run.algorithm.update)
    learner = algorithm.init(jax.random.key(0), jnp.float32(run.config.barrier[0]))
    for step, drawn in enumerate(stream):
        rows = Batch(*map(jnp.asarray, drawn))
        learner, _ = update(learner, run.table, rows, jnp.int32(step))
    return np.asarray(algorithm.evaluate(learner, run.table)["learned"])


def first_layers(case: Learning) -> Layers:
    """Return the encoder of seed 0 before its first step."""
    algorithm = build(case.config(), cast(Any, None), case.coordinates)  # draws nothing
    return algorithm.network(jax.random.key(0)).layers()


def _prepare(case: Learning, **changes: Any) -> Follower:
    run = started(case, **changes)
    return Follower(partial(run.advance, Clock()), lambda _: None, partial(follow, run))


CONTENDER = Contender(
    OURS, "loopless", "ours", _prepare, TOLERANCE, note="a compiled chunk of steps, sampling within"
)
ENCODED_BY_BATCHES = Contender(
    BY_BATCHES, "loopless", "ours", partial(_prepare, encode="batches"), TOLERANCE,
    note="what was drawn is encoded, in place of each distinct state once",
)  # fmt: skip
IN_ONE_PROGRAM = Contender(TOGETHER, "loopless", "ours", partial(_prepare, seeds=SEEDS), TOLERANCE)


def followed(case: Learning, worker: Worker) -> Follower:
    """Return a call that times a run in another process, and checks a run in this one."""
    return Follower(worker, lambda _: None, partial(follow, started(case)))


def on_two_cores(stack: ExitStack) -> Contender:
    """Return the contender with all seeds in a process with two cores, which `stack` ends."""

    def prepare(case: Learning) -> Follower:
        return followed(case, stack.enter_context(Worker(case, ENDLESS | {"seeds": SEEDS})))

    note = "a process of its own on two cores, threads not limited"
    return Contender(TOGETHER_ON_TWO, "loopless", "ours", prepare, TOLERANCE, note=note)


def count_operations(case: Learning, **changes: Any) -> float:
    """Return the millions of floating-point operations of one update, without sampling.

    XLA does not count what our native code computes, so here XLA makes all matrix products itself.
    """
    from loopless.arrays.xla_cpu import product as jax_product

    run = started(case, **changes)
    learner = run.algorithm.init(jax.random.key(0), jnp.float32(0.5))
    drawn = Batch(*map(jnp.asarray, case.stream[0]))
    step = jax.jit(run.algorithm.update)
    with patch.object(jax_product, "LEAST", math.inf):
        lowered = step.lower(learner, run.table, drawn, jnp.int32(0))
    return million_operations(lowered)
