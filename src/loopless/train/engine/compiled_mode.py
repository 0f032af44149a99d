"""A run in compiled mode, of any trainer: one program for environment and learner, or for many.

A trainer gives the pure functions; here they are compiled, called chunk by chunk, saved and
restored. With `seeds`, all agents are one program. Imports `agents`, `runs` and `run`. Tests:
`tests/train/test_dqn_runs.py`, `tests/train/test_ppo_runs.py`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loopless.runs import trees
from loopless.runs.checkpoint import Checkpoint
from loopless.runs.progress.clock import Clock
from loopless.train.engine.agents import Axes, each, for_all
from loopless.train.engine.episodes import EVALUATION, evaluation
from loopless.train.engine.run import Run


class CompiledMode(Run):
    """`carry` is the state of all agents; its `learner` has what is learned."""

    carry: Any
    key: jax.Array

    def begin(self, init: Callable, judge: Callable) -> None:
        """init: key → carry. judge: (the arrays that act, key) → returns and lengths."""
        config = self.config
        self.episodes = np.zeros((config.seeds,) if config.seeds > 1 else (), np.int64)
        keys = [jax.random.key(config.seed + i) for i in range(config.seeds)]
        self.key = keys[0] if config.seeds == 1 else jnp.stack(keys)
        self.carry = jax.jit(self.many(init, (0,), each))(self.key)
        self._chunks: dict[tuple, Any] = {}
        self._evaluate = jax.jit(self.many(judge, (0, 0), each))

    def many(self, function: Callable, axes: Axes, how: Callable = for_all) -> Callable:
        """The function for all agents; a single one has no axis."""
        return function if self.config.seeds == 1 else how(function, axes)

    def compiled(self, *which: Any) -> Callable:
        """What trains such a chunk: (carry, key, first event) → carry, (Episodes, report)."""
        raise NotImplementedError

    @property
    def learner(self) -> Any:
        return self.carry.learner

    def advance(self, clock: Clock) -> Mapping[str, Any]:
        which = self.schedule.after(self.event)
        with clock("learn"):
            chunk = self._chunk(*which)
            self.carry, (episodes, report) = chunk(self.carry, self.key, np.int32(self.event))
            jax.block_until_ready(self.carry.learner)
        self.event += which[0]
        with clock("log"):
            row = episodes.row(self.episodes)
            self.episodes = row["episodes"]
            return row | self.describe(report)

    def _chunk(self, *which: Any) -> Any:
        """The compiled function of such a chunk."""
        if which not in self._chunks:
            self._chunks[which] = self.compiled(*which)
        return self._chunks[which]

    def evaluate(self) -> Mapping[str, Any]:
        key = (
            jax.vmap(jax.random.fold_in, (0, None)) if self.config.seeds > 1 else jax.random.fold_in
        )
        acting, _ = self.learner.parted()
        returns, lengths = self._evaluate(acting, key(self.key, EVALUATION))
        return evaluation(np.asarray(returns), np.asarray(lengths))

    def arrays(self) -> Mapping[str, Any]:
        return trees.flatten(self._tree())

    def _tree(self) -> dict[str, Any]:
        acting, rest = self.learner.parted()
        numbers = {"event": np.int64(self.event), "episodes": self.episodes}
        return {"weights": acting, "carry": self.carry._replace(learner=rest), **numbers}

    def restore(self, checkpoint: Checkpoint) -> str:
        found = trees.unflatten(self._tree(), checkpoint.arrays)
        learner = found["carry"].learner.with_(found["weights"])
        self.carry = found["carry"]._replace(learner=learner)
        self.event, self.episodes = int(found["event"]), found["episodes"]
        return ""
