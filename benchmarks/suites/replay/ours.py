"""Our own buffers on the host, each full and called as its users call it.

Imports loopless when prepared. Tests: `tests/suites/replay/test_bench_samplers.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from loopless.bench.contest import Call, Contender
from suites.replay.samplers import Arrays, Sampler, sampler
from suites.replay.trajectories import DISCOUNT, STEPS, Trajectories
from suites.replay.transitions import ALPHA, BETA, FIELDS, Adding, Prioritized, Uniform

NUMPY = "loopless"
TORCH = "loopless, PyTorch"
ONE_BY_ONE = "loopless, a call a batch"
PADDED = "loopless, from_padded"


def read(output: dict[str, Any]) -> Arrays:
    """[B, ...] or [K, B, ...] as rows."""
    depth = output["reward"].ndim
    arrays = {name: np.asarray(values) for name, values in output.items()}
    return {name: values.reshape(-1, *values.shape[depth:]) for name, values in arrays.items()}


def _uniform(library: str) -> Callable[[Uniform], Sampler]:
    def prepare(case: Uniform) -> Sampler:
        from loopless.replay import ReplayBuffer

        buffer = ReplayBuffer(case.count, FIELDS)
        buffer.add(**case.stored)
        if case.batches == 1:
            return sampler(lambda: buffer.sample(case.batch, library=library), read)
        many = case.batches
        return sampler(lambda: buffer.sample(case.batch, many, library=library), read)

    return prepare


def _one_by_one(case: Uniform) -> Sampler:
    from loopless.replay import ReplayBuffer

    buffer = ReplayBuffer(case.count, FIELDS)
    buffer.add(**case.stored)
    return sampler(lambda: buffer.sample(case.batch), read, case.batches)


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
            read,
            draw,
            buffer.update_priorities,
        )

    return prepare


def _episodic(case: Trajectories) -> Sampler:
    buffer = _filled(case)
    return sampler(lambda: buffer.sample(case.batch, discount=DISCOUNT), dict)


def _filled(case: Trajectories) -> Any:
    """A new buffer, filled row by row."""
    from loopless.replay import EpisodicReplayBuffer

    buffer = EpisodicReplayBuffer(case.rows * STEPS, {"obs": ((2,), np.float32)})
    for obs, terminals in zip(case.obs, case.terminals, strict=True):
        buffer.add_episode(obs=obs, terminals=terminals)
    return buffer


def _ingest(fill: Callable[[Trajectories], Any]) -> Callable[[Trajectories], Sampler]:
    def prepare(case: Trajectories) -> Sampler:
        # Made once, so that what a draw gives is that of this buffer; timed is the filling alone.
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


UNIFORM = (
    Contender(NUMPY, "loopless", "ours", _uniform("numpy")),
    Contender(TORCH, "loopless", "ours", _uniform("torch")),
)
BATCH_BY_BATCH = Contender(
    ONE_BY_ONE, "loopless", "ours", _one_by_one, note="as many calls as a peer needs"
)
PRIORITIZED = (
    Contender(NUMPY, "loopless", "ours", _prioritized("numpy")),
    Contender(TORCH, "loopless", "ours", _prioritized("torch")),
)
EPISODIC = Contender(NUMPY, "loopless", "ours", _episodic)
ADDING = Contender(NUMPY, "loopless", "ours", _adding)
INGEST = (
    Contender(NUMPY, "loopless", "ours", _ingest(_filled), note="a new buffer, a call a row"),
    Contender(PADDED, "loopless", "ours", _ingest(_padded), note="a new buffer, one call"),
)
