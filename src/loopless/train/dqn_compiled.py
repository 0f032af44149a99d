"""DQN in compiled mode: environment and learner are one program, many events a call.

Imports `dqn_run` and `envs`. Tests: `tests/train/test_dqn_runs.py`.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loopless.envs import autoreset, make_compiled
from loopless.runs import trees
from loopless.runs.checkpoint import Checkpoint
from loopless.runs.clock import Clock
from loopless.train.dqn import CompiledRun, Learner, build
from loopless.train.dqn_config import DQN
from loopless.train.dqn_loop import chunk_by_loop
from loopless.train.dqn_run import EVALUATION, Run, evaluation


class Compiled(Run):
    """Environment and learner in one program; with `seeds`, so many of them side by side."""

    def __init__(self, config: DQN) -> None:
        env = make_compiled(config.env)
        world = autoreset(env, config.envs)
        algorithm = build(config, world.obs_space, env.actions)
        super().__init__(config, algorithm)
        self.episodes = np.zeros((config.seeds,) if config.seeds > 1 else (), np.int64)
        self.run = CompiledRun(algorithm, world)
        judge = CompiledRun(algorithm, autoreset(env, config.eval_episodes))
        keys = [jax.random.key(config.seed + i) for i in range(config.seeds)]
        if config.seeds == 1:
            self.key, many = keys[0], lambda function, axes: function
        else:
            self.key = jnp.stack(keys)
            many = jax.vmap
        self.carry = jax.jit(many(self.run.init, 0))(self.key)
        self._chunks = {}
        self._many = many
        self._evaluate = jax.jit(many(judge.evaluate, 0))

    @property
    def learner(self) -> Learner:
        return self.carry.learner

    def advance(self, clock: Clock) -> Mapping[str, Any]:
        events, learning = self.schedule.after(self.event)
        with clock("learn"):
            chunk = self._chunk(events, learning)
            self.carry, (episodes, report) = chunk(self.carry, self.key, np.int32(self.event))
            jax.block_until_ready(self.carry.learner)
        self.event += events
        with clock("log"):
            return self._row(episodes, report)

    def _chunk(self, events: int, learning: bool) -> Any:
        """The compiled function of so many events."""
        if (events, learning) not in self._chunks:
            if self.config.update == "loop":
                chunk = chunk_by_loop(self.run, events, learning)
            else:
                chunk = partial(self.run.chunk, events=events, learning=learning)
                chunk = jax.jit(self._many(chunk, (0, 0, None)), donate_argnums=0)
            self._chunks[events, learning] = chunk
        return self._chunks[events, learning]

    def _row(self, episodes: Any, report: Any) -> dict[str, Any]:
        count = np.asarray(episodes.ended)
        self.episodes = self.episodes + count
        with np.errstate(divide="ignore", invalid="ignore"):
            score = np.asarray(episodes.total_return) / count
            length = np.asarray(episodes.total_length) / count
        row = {"episodes": self.episodes, "return_mean": score, "length_mean": length}
        row |= {"return_min": np.asarray(episodes.least), "return_max": np.asarray(episodes.most)}
        ring = getattr(self.carry.replay, "ring", self.carry.replay)
        row["replay_size"] = np.asarray(ring.size)
        return row | self.describe(report)

    def evaluate(self) -> Mapping[str, Any]:
        key = (
            jax.vmap(jax.random.fold_in, (0, None)) if self.config.seeds > 1 else jax.random.fold_in
        )
        returns, lengths = self._evaluate(self.learner.weights, key(self.key, EVALUATION))
        return evaluation(np.asarray(returns), np.asarray(lengths))

    def arrays(self) -> Mapping[str, Any]:
        return trees.flatten(self._tree())

    def _tree(self) -> dict[str, Any]:
        learner = self.carry.learner
        rest = self.carry._replace(learner=learner._replace(weights=None))
        numbers = {"event": np.int64(self.event), "episodes": self.episodes}
        return {"weights": {"online": learner.weights}, "carry": rest, **numbers}

    def restore(self, checkpoint: Checkpoint) -> str:
        found = trees.unflatten(self._tree(), checkpoint.arrays)
        learner = found["carry"].learner._replace(weights=found["weights"]["online"])
        self.carry = found["carry"]._replace(learner=learner)
        self.event, self.episodes = int(found["event"]), found["episodes"]
        return ""
