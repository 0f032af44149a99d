"""The updates of DQN one by one, in plain Python loops: the twin of `DQNAlgorithm.learn`.

`--update loop` trains with it, to compare and to debug; tests compare the fused updates with it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loopless.train.dqn.algorithm import DQNAlgorithm, DQNLearner
from loopless.train.engine.settings import Settings, as_program, traced_settings


class Loop:
    """The functions of an `algorithm`, each compiled separately and called in a loop."""

    def __init__(self, algorithm: DQNAlgorithm) -> None:
        self.config, self.replay = algorithm.config, algorithm.replay
        self.beta, settings = algorithm.beta, traced_settings(algorithm.config)

        def compiled(method: str, static: tuple[int, ...] = ()) -> Callable:
            program = jax.jit(as_program(algorithm, method), static_argnums=static)
            return lambda first, *others: program(first, settings, *others)

        self.update_target = compiled("update_target")
        self.add = jax.jit(algorithm.replay.add, donate_argnums=0)
        self._sample = compiled("sample", static=(4,))
        self._target_values, self._update = compiled("target_values"), compiled("update")
        self._batch = jax.jit(lambda batches, i: jax.tree.map(lambda x: x[i], batches))
        raised = partial(getattr(self.replay, "update_priorities", id), alpha=self.config.alpha)
        self._update_priorities = jax.jit(raised)

    def learn(self, learner: DQNLearner, replay: Any, key: jax.Array, beta: jax.Array) -> tuple:
        """Make the updates of an event, as `DQNAlgorithm.learn` does."""
        config, reports, new_priorities, priorities = self.config, [], [], None
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
            new_priorities.append((batch["indices"], priorities))
        if config.prioritized == "block":
            indices, priorities = map(jnp.concatenate, zip(*new_priorities, strict=True))
            replay = self._update_priorities(replay, indices, priorities)
        shape = (config.draws, config.repeats)
        report = jax.tree.map(lambda *parts: np.stack(parts).reshape(shape), *reports)
        return learner, replay, report

    def learn_event(self, learner: DQNLearner, replay: Any, key: jax.Array, number: Any) -> tuple:
        """Make the updates of event `number`, then move the target network."""
        step = jnp.int32((number + 1) * self.config.train_every)
        learner, replay, report = self.learn(learner, replay, key, self.beta(step))
        return self.update_target(learner, step), replay, report


def chunk_by_loop(program: Any, learning: bool) -> Callable:
    """Return a function that does the same as `CompiledDQN.chunk`, event by event."""
    loop, collect = Loop(program.algorithm), jax.jit(as_program(program, "collect"))

    def chunk(state: Any, settings: Settings, key: jax.Array, first: Any, events: Any) -> tuple:
        ended, reports = [], []
        for number in range(int(first), int(first) + int(events)):
            for_acting, for_learning = jax.random.split(jax.random.fold_in(key, number))
            arguments = key, jnp.int32(number), for_acting
            state, transitions, episodes = collect(state, settings, *arguments)
            replay, learner = loop.add(state.replay, transitions), state.learner
            if learning:
                learner, replay, report = loop.learn_event(learner, replay, for_learning, number)
                reports.append(report)
            state = state._replace(learner=learner, replay=replay)
            ended.append(episodes)
        episodes = jax.tree.map(lambda *parts: jnp.stack(parts), *ended).reduce()
        if not learning:
            return state, (episodes, None)
        report = jax.tree.map(lambda *parts: jnp.mean(jnp.stack(parts)), *reports)
        return state, (episodes, report)

    return chunk


def hosted_event_by_loop(algorithm: DQNAlgorithm) -> Callable:
    """Return a function that does the same as `hosted.learn_event` of a learning run."""
    loop = Loop(algorithm)

    def event(state: tuple, transitions: dict, valid: Any, key: jax.Array, number: Any) -> tuple:
        learner, replay = state
        replay = loop.add(replay, transitions, valid)
        learner, replay, report = loop.learn_event(learner, replay, key, number)
        return (learner, replay), jnp.stack([part.mean() for part in report])

    return event
