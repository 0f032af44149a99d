"""Our updates: `Algorithm.learn` of the trainer, compiled, its buffers donated; and plain NumPy.

Imports JAX and the trainer when prepared. Tests: `tests/suites/q_learning/test_bench_updates.py`.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from loopless.bench.contest import Call, Contender
from suites.q_learning.plain import Layers, Plain
from suites.q_learning.updates import ACTIONS, OBS, STORED, TOLERANCE, Learned, Update

FUSED, PLAIN = "loopless", "reference: NumPy by hand"


def _fused(case: Update) -> Call:
    import jax
    import jax.numpy as jnp

    from loopless.envs.spaces import Box
    from loopless.train.dqn.algorithm import build
    from loopless.train.dqn.config import DQN

    rules = case.rules
    config = DQN(
        hidden=case.hidden, batch_size=case.batch, updates=case.draws, repeats=case.repeats,
        double=rules.double, gamma=rules.gamma, learning_rate=rules.rate, loss="huber",
        max_gradient_norm=rules.max_norm, buffer_size=STORED,
    )  # fmt: skip
    algorithm = build(config, Box((OBS,)), ACTIONS)
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
        own = jax.random.fold_in(key, number)
        learner, replay, report = algorithm.learn(learner, replay, own, beta)
        return (learner, replay), report.loss.mean()

    @jax.jit
    def drawn(replay, key, number):
        own = jax.random.fold_in(key, number)
        return algorithm.sample(replay, own, beta, config.draws)["indices"]

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
    """Cut into the shapes of `like`."""
    sizes = [part.size for layer in like for part in layer]
    parts = iter(np.split(vector, np.cumsum(sizes)[:-1]))
    return [(next(parts).reshape(w.shape), next(parts).reshape(b.shape)) for w, b in like]


def _plain(case: Update) -> Call:
    plain = Plain(case.online, case.target, case.rules, np.float32)
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
                plain.update(batch)

    def read(_: None) -> Learned:
        nonlocal remembers
        remembers = False
        return Learned(np.stack(drawn), plain.online, case.rules)

    return Call(run, read)


OURS = Contender(FUSED, "loopless", "ours", _fused, TOLERANCE)
BY_HAND = Contender(PLAIN, "numpy", "reference", _plain, TOLERANCE)
