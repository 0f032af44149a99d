"""Events and their updates one by one: what `dqn` fuses, in plain Python loops.

`--update loop` trains with it, to compare and to debug; tests hold `learn` against it. Imports
`dqn`. Tests: `tests/train/test_dqn_updates.py`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loopless.train.dqn.algorithm import Algorithm, Carry, CompiledRun, Learner, Report


class Loop:
    """The functions of an `algorithm`, each compiled on its own."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.config, self.replay = algorithm.config, algorithm.replay
        self._sample = jax.jit(algorithm.sample, static_argnums=3)
        self._target_values = jax.jit(algorithm.target_values)
        self._update = jax.jit(algorithm.update)
        self._batch = jax.jit(lambda batches, i: jax.tree.map(lambda x: x[i], batches))
        self._update_priorities = jax.jit(getattr(self.replay, "update_priorities", None) or id)

    def learn(
        self, learner: Learner, replay: Any, key: jax.Array, beta: jax.Array
    ) -> tuple[Learner, Any, Report]:
        """The same as `Algorithm.learn`."""
        config, reports, written, priorities = self.config, [], [], None
        exact = config.prioritized == "exact"
        keys = jax.random.split(key, config.draws)
        batches = None if exact else self._sample(replay, key, beta, config.draws)
        for draw in range(config.draws):
            if exact:
                batch = self._sample(replay, keys[draw], beta, None)
            else:
                batch = self._batch(batches, draw)
            for _ in range(config.repeats):
                next_q = self._target_values(learner, batch)
                learner, report, priorities = self._update(learner, batch, next_q)
                reports.append(report)
            if exact:
                replay = self._update_priorities(replay, batch["indices"], priorities)
            written.append((batch["indices"], priorities))
        if config.prioritized == "block":
            indices, priorities = (jnp.concatenate(parts) for parts in zip(*written, strict=True))
            replay = self._update_priorities(replay, indices, priorities)
        shape = (config.draws, config.repeats)
        report = jax.tree.map(lambda *parts: np.stack(parts).reshape(shape), *reports)
        return learner, replay, report


def chunk_by_loop(run: CompiledRun, events: int, learning: bool) -> Any:
    """The same as `CompiledRun.chunk`, event by event."""
    algorithm, loop = run.algorithm, Loop(run.algorithm)
    collect, add = jax.jit(run.collect), jax.jit(algorithm.replay.add, donate_argnums=0)
    follow = jax.jit(algorithm.follow)

    def chunk(carry: Carry, key: jax.Array, first: jax.Array) -> tuple:
        seen, reports = [], []
        for number in range(int(first), int(first) + events):
            for_acting, for_learning = jax.random.split(jax.random.fold_in(key, number))
            carry, rows, episodes = collect(key, jnp.int32(number), for_acting, carry)
            replay, learner = add(carry.replay, rows), carry.learner
            if learning:
                step = jnp.int32((number + 1) * algorithm.config.train_every)
                args = (learner, replay, for_learning, algorithm.beta(step))
                learner, replay, report = loop.learn(*args)
                learner = follow(learner, step)
                reports.append(report)
            carry = carry._replace(learner=learner, replay=replay)
            seen.append(episodes)
        together = jax.tree.map(lambda *parts: jnp.stack(parts), *seen).together()
        if not learning:
            return carry, (together, None)
        return carry, (together, jax.tree.map(lambda *parts: jnp.mean(jnp.stack(parts)), *reports))

    return chunk


def hosted_event_by_loop(algorithm: Algorithm) -> Any:
    """The same as `hosted_event` of a learning run."""
    loop, follow = Loop(algorithm), jax.jit(algorithm.follow)
    add = jax.jit(algorithm.replay.add, donate_argnums=0)

    def event(carry: tuple, rows: dict, valid: Any, key: jax.Array, number: Any) -> tuple:
        learner, replay = carry
        replay = add(replay, rows, valid)
        step = jnp.int32((number + 1) * algorithm.config.train_every)
        args = (learner, replay, key, algorithm.beta(step))
        learner, replay, report = loop.learn(*args)
        return (follow(learner, step), replay), jnp.stack([part.mean() for part in report])

    return event
