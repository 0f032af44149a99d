"""Buffers inside a compiled scan: add, draw, update, again and again without leaving the device.

Every drawn batch passes a barrier and is then added up, field by field, as if a network took it:
nothing can be left out. Imports JAX when prepared. Tests:
`tests/suites/replay/test_bench_samplers.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from loopless.bench.contest import Contender, Verdict
from suites.replay.samplers import Arrays, Sampler
from suites.replay.transitions import (
    ALPHA,
    BETA,
    FIELDS,
    Prioritized,
    even_draws,
    short,
    transitions,
)

REPEATS = 100


@dataclass(frozen=True)
class Steps:
    """A buffer's pure functions: add(state, rows), sample(state, key), update(state, i, p)."""

    add: Callable[[Any, Any], Any]
    sample: Callable[[Any, Any], Any]
    update: Callable[[Any, Any, Any], Any] | None


@dataclass(frozen=True)
class Scanned:
    """`REPEATS` times in one scan: add a step of `envs`, if any; draw; update, if prioritized."""

    count: int
    batch: int
    prioritized: bool = False
    envs: int = 0

    @property
    def label(self) -> str:
        law = "prioritized" if self.prioritized else "uniform"
        adding = f"add {self.envs}, " if self.envs else ""
        return f"{law}, {REPEATS} × ({adding}draw {self.batch}) of {short(self.count)}"

    @property
    def size(self) -> int:
        return self.count

    @property
    def changes(self) -> bool:
        """Whether a step of the scan leaves another state behind."""
        return self.prioritized or self.envs > 0

    @property
    def stored(self) -> Arrays:
        return transitions(self.count)

    @property
    def step(self) -> Arrays:
        """What is added again and again: the first rows of what is stored."""
        return {name: values[: self.envs] for name, values in self.stored.items()}

    @cached_property
    def law(self) -> Prioritized:
        """The same draws on the host: their priorities, and their check."""
        return Prioritized(self.count, self.batch)

    def check(self, contender: Contender, call: Sampler, output: Any) -> Verdict:
        """After one scan; what it added lies where the ring began."""
        if self.prioritized:
            return self.law.check(contender, call, output)
        held, written = np.arange(self.count), REPEATS * self.envs
        if self.envs:
            held[:written] %= self.envs
        return Verdict(even_draws(call, self.stored, held))


def scanned(case: Scanned, state: Any, steps: Steps) -> Sampler:
    """The timed scan over a donated state; and for the check, draws that leave it."""
    import jax

    fresh = jax.numpy.asarray(case.law.fresh)
    rows = {name: jax.numpy.asarray(values) for name, values in case.step.items()}
    taken = [*FIELDS, "weights"] if case.prioritized else [*FIELDS]

    def once(state, key):
        if case.envs:
            state = steps.add(state, rows)
        batch = jax.lax.optimization_barrier(steps.sample(state, key))
        if steps.update is not None:
            state = steps.update(state, batch["indices"], fresh)
        return state, sum(batch[name].sum(dtype=jax.numpy.float32) for name in taken)

    @partial(jax.jit, donate_argnums=0)
    def many(state, key):
        keys = jax.random.split(key, REPEATS + 1)
        state, sums = jax.lax.scan(once, state, keys[1:])
        return state, sums, keys[0]

    @jax.jit
    def many_draws(state, key):
        keys = jax.random.split(key, REPEATS + 1)
        return jax.lax.map(lambda own: once(state, own)[1], keys[1:]), keys[0]

    draw_one = jax.jit(steps.sample)
    key = jax.random.key(0)

    def run() -> None:
        nonlocal state, key
        if case.changes:
            state, sums, key = many(state, key)
        else:  # a carry that nothing writes to would be copied
            sums, key = many_draws(state, key)
        jax.block_until_ready(sums)

    def draw() -> Any:
        nonlocal key
        key, own = jax.random.split(key)
        return draw_one(state, own)

    def update(indices: np.ndarray, priorities: np.ndarray) -> None:
        nonlocal state
        assert steps.update is not None
        state = jax.jit(steps.update)(state, indices, priorities)

    def read(batch: Any) -> Arrays:
        return {name: np.array(values) for name, values in batch.items()}

    if steps.update is None:
        return Sampler(run, read, draw)
    update(np.arange(case.count), case.law.priorities)
    return Sampler(run, read, draw, update)


def _ours(case: Scanned) -> Sampler:
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


OURS = Contender("loopless", "loopless", "ours", _ours)
