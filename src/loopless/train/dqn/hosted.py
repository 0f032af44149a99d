"""DQN in hosted mode: Gymnasium environments on the host, the learner one compiled call an event.

Small networks act on the host, too: no round trip to a device at any step. Imports `dqn_modes` and
`envs`. Tests: `tests/train/test_dqn_runs.py`.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loopless.compiled.mlp import Actor, choose, generator
from loopless.envs import Block, HostedEnvs
from loopless.envs.hosted.blocks import Transfer
from loopless.nets.q_network import fold, plain_layers
from loopless.runs import trees
from loopless.runs.checkpoint import Checkpoint
from loopless.runs.progress.clock import Clock
from loopless.train.dqn.algorithm import (
    Algorithm,
    Learner,
    Report,
    build,
    cut,
    hosted_event,
    learning_keys,
)
from loopless.train.dqn.config import DQN
from loopless.train.dqn.loop import hosted_event_by_loop
from loopless.train.dqn.run import Run
from loopless.train.engine.episodes import EVALUATION, evaluation, hosted_row
from loopless.train.engine.players import first_episodes, judged_envs

ROWS = ("obs", "action", "reward", "next_obs", "terminated", "truncated")


class Hosted(Run):
    """Gymnasium environments on the host; the learner is one compiled call an event."""

    def __init__(self, config: DQN) -> None:
        self.envs = HostedEnvs(
            config.env, config.envs, vectorization=config.vectorization, seed=config.seed
        )
        try:
            super().__init__(config, build(config, self.envs.obs_space, self.envs.actions))
        except BaseException:
            self.envs.close()
            raise
        self.key = jax.random.key(config.seed)
        for_weights, _, _ = jax.random.split(self.key, 3)
        self.carry = jax.jit(self.algorithm.init)(for_weights)
        self.policy = policy_of(self.algorithm, self.carry[0].weights, config.seed)
        self.judge = policy_of(self.algorithm, self.carry[0].weights, config.seed)
        self.judged: HostedEnvs | None = None
        self.steps = config.train_every // config.envs
        self.per_call = config.overlap_events if config.overlap else 1
        # Two blocks in turn: with overlap the learner may still read one while the other fills.
        self.blocks = {n: [self._transfer(n) for _ in range(2)] for n in {1, self.per_call}}
        self.fillers = self.envs.vectorization in ("native", "envpool")
        self.pending: np.ndarray | None = None  # SARSA: the action decided on for what comes next
        self._keys = jax.jit(lambda *x: jax.random.key_data(learning_keys(*x)), static_argnums=2)
        self._calls: dict[tuple[int, bool], Any] = {
            (n, learning): jax.jit(
                partial(self._call, n, partial(hosted_event, self.algorithm, learning)),
                donate_argnums=0,
            )
            for n in self.blocks
            for learning in (False, True)
        }
        if config.update == "loop":
            self._calls[1, True] = partial(self._call, 1, hosted_event_by_loop(self.algorithm))

    @property
    def learner(self) -> Learner:
        return self.carry[0]

    @property
    def replay(self) -> Any:
        return self.carry[1]

    def _transfer(self, events: int) -> Transfer:
        """A block for so many events, and beside it what else they are told."""
        steps, key = events * self.steps, jax.random.key_data(self.key)
        own = {"number": ((events,), "int32"), "key": ((events, *key.shape), "uint32")}
        if self.config.sarsa:
            own["next_action"] = (steps, self.config.envs), "int32"
        return Transfer(self.envs, steps, own)

    def _call(self, events: int, event: Any, carry: tuple, words: Any) -> tuple:
        """So many events, one after the other, on all that a block holds, told in one array."""
        there = self.blocks[events][0].unpack(words)
        names = [*ROWS, "next_action"] if self.config.sarsa else ROWS
        names = [*names, "valid"] if self.fillers else names
        size = self.steps * self.config.envs
        rows = {name: there[name].reshape(events, size, *there[name].shape[2:]) for name in names}
        keys = jax.random.wrap_key_data(there["key"], impl=jax.random.key_impl(self.key))

        def one(carry: tuple, told: tuple) -> tuple:
            rows, key, number = told
            valid = rows.pop("valid", None)
            return event(carry, rows, valid, key, number)

        told = rows, keys, there["number"]
        if events == 1:
            return one(carry, jax.tree.map(lambda x: x[0], told))
        return jax.lax.scan(one, carry, told)

    def advance(self, clock: Clock) -> Mapping[str, Any]:
        events, learning = self.schedule.after(self.event)
        end, reports, returns, lengths = self.event + events, [], [], []
        with clock("learn"):
            keys = np.asarray(self._keys(self.key, np.int32(self.event), events))
        while self.event < end:
            n = self.per_call if end - self.event >= self.per_call else 1
            call, there = self._calls[n, learning], self.blocks[n][0]
            self.blocks[n].reverse()
            with clock("env"):
                block = self._collect(self.event, there.block, clock)
            with clock("learn"):
                there.own["number"][...] = np.arange(self.event, self.event + n)
                there.own["key"][...] = keys[:n]
                if self.config.sarsa:
                    there.own["next_action"][...] = self._next_actions(block)
                if self.config.overlap:
                    self.policy.take(self.carry[0].weights)
                self.carry, report = call(self.carry, there.words)
                if not self.config.overlap:
                    self.policy.take(self.carry[0].weights)
                reports.append(report)
            self.event, keys = self.event + n, keys[n:]
            returns.append(block.episodes.episode_return)
            lengths.append(block.episodes.episode_length)
        with clock("learn"):
            means = np.mean(np.vstack([np.asarray(report) for report in reports]), 0)
        with clock("log"):
            return self._row(np.concatenate(returns), np.concatenate(lengths), means, learning)

    def _collect(self, number: int, block: Block, clock: Clock) -> Block:
        level = float(self._level(number))
        self.policy.explore(self.config.exploration, level)
        before = self.envs.act_seconds
        policy = self._ahead if self.config.sarsa else self.policy
        self.envs.collect(policy, block.steps, out=block)
        clock.move("env", "act", self.envs.act_seconds - before)
        return block

    def _level(self, number: int) -> float:
        config = self.config
        share = min(1.0, number * config.train_every / max(1, config.explore_steps))
        return config.explore_start + share * (config.explore_end - config.explore_start)

    def _ahead(self, obs: np.ndarray) -> np.ndarray:
        """SARSA: what was decided when the block before ended, then the policy."""
        decided, self.pending = self.pending, None
        return self.policy(obs) if decided is None else decided

    def _next_actions(self, block: Any) -> np.ndarray:
        """What was done next; at ends, where nothing was, what the policy would have done."""
        self.pending = pending = self.policy(block.last_obs).copy()
        after = np.concatenate((block.action[1:], pending[None])).astype(np.int32)
        ended = block.terminated | block.truncated
        if ended.any():
            after[ended] = self.policy(block.next_obs[ended])
        return after

    def _row(self, returns, lengths, means, learning: bool) -> dict[str, Any]:
        row = hosted_row(self.episodes, returns, lengths)
        self.episodes = row["episodes"]
        return row | self.describe(Report(*means) if learning else None)

    def evaluate(self) -> Mapping[str, Any]:
        config = self.config
        if self.judged is None:
            self.judged = judged_envs(config, config.eval_episodes, config.seed)
        self.judged.restart(config.seed + EVALUATION)
        self.judge.take(self.carry[0].weights)
        self.judge.explore("epsilon", 0.0)
        return evaluation(*first_episodes(self.judged, self.judge))

    def arrays(self) -> Mapping[str, Any]:
        return trees.flatten(self._tree())

    def _tree(self) -> dict[str, Any]:
        learner, replay = self.carry
        return {
            "weights": {"online": learner.weights},
            "learner": learner._replace(weights=None),
            "replay": replay,
            "event": np.int64(self.event),
            "episodes": np.int64(self.episodes),
            "policy": self.policy.random,
        }

    def restore(self, checkpoint: Checkpoint) -> str:
        found = trees.unflatten(self._tree(), checkpoint.arrays)
        learner = found["learner"]._replace(weights=found["weights"]["online"])
        self.carry = learner, jax.jit(partial(cut, self.algorithm))(found["replay"])
        self.event, self.episodes = int(found["event"]), int(found["episodes"])
        self.policy.random[:] = found["policy"]
        self.policy.take(learner.weights)
        self.envs.restart(self.config.seed + self.event + 1)
        self.pending = None
        return "environments cannot be saved: their episodes were started anew"

    def close(self) -> None:
        self.envs.close()
        if self.judged is not None:
            self.judged.close()


class _MLPPolicy(Actor):
    """An MLP acts in compiled host code, from the learner's vector of weights."""

    def __init__(self, algorithm: Algorithm, weights: jax.Array, seed: int) -> None:
        net = algorithm.rebuild(weights)
        self._duelling = net.value is not None
        super().__init__(plain_layers(net), algorithm.config.activation, seed)

    def take(self, weights: Any) -> None:
        """Act with the learner's vector of weights from now on."""
        vector = np.asarray(weights)
        if not self._duelling:  # the vector is the layers, one after the other
            self.weights[:] = vector
            return
        width, actions = int(self.sizes[-2]), int(self.sizes[-1])
        body, head = np.split(vector, [vector.size - (width + 1) * (actions + 1)])
        advantage, value = np.split(head, [(width + 1) * actions])
        folded = fold(
            advantage[: width * actions].reshape(width, actions), advantage[width * actions :],
            value[:width].reshape(width, 1), value[width:],
        )  # fmt: skip
        np.concatenate([body, *(part.ravel() for part in folded)], out=self.weights)

    def explore(self, kind: str, level: float) -> None:
        self.epsilon, self.temperature = (level, 0.0) if kind == "epsilon" else (0.0, level)


class _DevicePolicy:
    """Any other network acts by a compiled call on the device."""

    def __init__(self, algorithm: Algorithm, weights: jax.Array, seed: int) -> None:
        self._values = jax.jit(algorithm.values)
        self.random = generator(seed)
        self.epsilon, self.temperature = 0.0, 0.0
        self.take(weights)

    def take(self, weights: jax.Array) -> None:
        # A copy: the learner's own is given up to the next update.
        self._weights = jnp.array(weights)

    def explore(self, kind: str, level: float) -> None:
        self.epsilon, self.temperature = (level, 0.0) if kind == "epsilon" else (0.0, level)

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        actions = np.empty(len(obs), np.int64)
        values = np.asarray(self._values(self._weights, obs))
        choose(values, self.epsilon, self.temperature, self.random, actions)
        return actions


def policy_of(algorithm: Algorithm, weights: Any, seed: int) -> Any:
    """What acts by these weights on the host, as fast as its kind of network can."""
    images = algorithm.rebuild(weights).images is not None
    return (_DevicePolicy if images else _MLPPolicy)(algorithm, weights, seed)
