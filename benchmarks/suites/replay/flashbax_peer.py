"""flashbax's item buffers: called from the host like the others, and inside a compiled scan.

Imports JAX and flashbax when prepared. Tests: `tests/suites/replay/test_bench_samplers.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from loopless.bench.contest import Call, Contender
from loopless.bench.machine import warnings_of_peers_ignored
from suites.replay.device import Scanned, Steps, scanned
from suites.replay.samplers import Arrays, Sampler, sampler
from suites.replay.transitions import ALPHA, BETA, Adding, Prioritized, Uniform

FLASHBAX = "flashbax"


def _filled(stored: Arrays, batch: int, prioritized: bool = False) -> tuple[Any, Any]:
    """A buffer and its state, full."""
    with warnings_of_peers_ignored():
        import flashbax
        import jax

    count = len(stored["obs"])
    sizes: dict[str, Any] = {"max_length": count, "min_length": 1, "sample_batch_size": batch}
    if prioritized:
        make = flashbax.make_prioritised_item_buffer
        buffer = make(**sizes, add_batches=True, priority_exponent=ALPHA, device="cpu")
    else:
        buffer = flashbax.make_item_buffer(**sizes, add_batches=True)
    rows = {name: jax.numpy.asarray(values) for name, values in stored.items()}
    state = buffer.init({name: values[0] for name, values in rows.items()})
    return buffer, jax.jit(buffer.add, donate_argnums=0)(state, rows)


def _as_numpy(output: Any) -> Arrays:
    return {name: np.array(values) for name, values in output.items()}


def _uniform(case: Uniform) -> Sampler:
    buffer, state = _filled(case.stored, case.batch)
    import jax

    @jax.jit
    def sample(state, key):
        key, own = jax.random.split(key)
        return buffer.sample(state, own).experience, key

    key = jax.random.key(0)

    def draw() -> Any:
        nonlocal key
        batch, key = sample(state, key)
        return jax.block_until_ready(batch)

    return sampler(draw, _as_numpy, case.batches)


def weighted(sample: Any, count: int) -> dict[str, Any]:
    """A prioritised sample with the weights that flashbax leaves to its callers."""
    weights = (count * sample.probabilities) ** -BETA
    return sample.experience | {"indices": sample.indices, "weights": weights / weights.max()}


def _prioritized(case: Prioritized) -> Sampler:
    buffer, state = _filled(case.stored, case.batch, prioritized=True)
    import jax

    @jax.jit
    def sample(state, key):
        key, own = jax.random.split(key)
        return weighted(buffer.sample(state, own), case.count), key

    set_priorities = jax.jit(buffer.set_priorities, donate_argnums=0)
    key, fresh = jax.random.key(0), jax.numpy.asarray(case.fresh)

    def draw() -> Any:
        nonlocal key
        batch, key = sample(state, key)
        return jax.block_until_ready(batch)

    def update(indices: Any, priorities: Any) -> None:
        nonlocal state
        state = jax.block_until_ready(set_priorities(state, indices, priorities))

    update(np.arange(case.count), case.priorities)
    return Sampler(lambda: update(draw()["indices"], fresh), _as_numpy, draw, update)


def _adding(case: Adding) -> Call:
    buffer, state = _filled(case.stored, 1)
    import jax

    add, step = jax.jit(buffer.add, donate_argnums=0), case.step

    def run() -> None:
        nonlocal state
        state = jax.block_until_ready(add(state, step))

    def held(_: None) -> Arrays:
        return {name: np.array(values[0]) for name, values in state.experience.items()}

    return Call(run, held)


def _scanned(case: Scanned) -> Sampler:
    buffer, state = _filled(case.stored, case.batch, case.prioritized)

    def sample(state, key):
        drawn = buffer.sample(state, key)
        return weighted(drawn, case.count) if case.prioritized else drawn.experience

    update = buffer.set_priorities if case.prioritized else None
    return scanned(case, state, Steps(buffer.add, sample, update))


UNIFORM = Contender(FLASHBAX, "flashbax", "peer", _uniform, note="jitted; a key split in each call")
PRIORITIZED = Contender(
    FLASHBAX,
    "flashbax",
    "peer",
    _prioritized,
    note="jitted sample and set_priorities; weights from its probabilities",
)
ADDING = Contender(FLASHBAX, "flashbax", "peer", _adding, note="jitted add, state donated")
SCANNED = Contender(FLASHBAX, "flashbax", "peer", _scanned, note="item and prioritised item buffer")
