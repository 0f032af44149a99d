"""DQN in hosted mode: Gymnasium environments on the host, and a learner in compiled calls.

`engine.run.HostedRun` drives it. Small networks act on the host, too, so that no step waits for a
device. The policies are at the end.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loopless.compiled.mlp import choose, generator
from loopless.envs import Block, EnvError, HostedEnvs
from loopless.envs.hosted.blocks import Transfer
from loopless.nets.acting import Actor
from loopless.nets.mlp import layer_maker
from loopless.nets.q_network import fold, plain_layers
from loopless.replay import device
from loopless.runs.progress.clock import Clock
from loopless.train.dqn.algorithm import DQNAlgorithm, DQNLearner, DQNReport, build
from loopless.train.dqn.compiled import chunks, describe
from loopless.train.dqn.config import DQN
from loopless.train.engine.players import hosted_envs
from loopless.train.engine.run import HostedRun, split
from loopless.train.engine.settings import Settings, as_program, traced_settings, with_settings

FIELDS = ("obs", "action", "reward", "next_obs", "terminated", "truncated")


def make(config: DQN) -> HostedRun:
    """Return the hosted run of `config`."""
    return HostedRun(config, HostedDQN(config), chunks(config), config.train_every)


class HostedDQN:
    """A learner, its replay buffer, and environments that are acted in on the host."""

    def __init__(self, config: DQN) -> None:
        self.config = config
        self.envs = hosted_envs(
            config,
            config.envs,
            vectorization=config.vectorization,
            seed=config.seed,
            step_timeout=config.step_timeout or None,
        )
        try:
            self.algorithm = build(config, self.envs.obs_space, self.envs.actions)
        except BaseException:
            self.envs.close()
            raise
        self.key = jax.random.key(config.seed)
        for_weights, _, _ = jax.random.split(self.key, 3)
        self.settings = traced_settings(config)
        self.state = jax.jit(as_program(self.algorithm, "init"))(for_weights, self.settings)
        self.policy = make_policy(self.algorithm, self.learner.weights, config.seed)
        self._greedy = make_policy(self.algorithm, self.learner.weights, config.seed)
        self.steps = config.train_every // config.envs
        self.per_call = config.overlap_events if config.overlap else 1
        # Two blocks in turn: with overlap the learner may still read one while the other fills.
        self.blocks = {n: [self._transfer(n) for _ in range(2)] for n in {1, self.per_call}}
        self.has_fillers = self.envs.vectorization in ("native", "envpool")
        self.pending: np.ndarray | None = None  # SARSA: the actions chosen for the next step
        size = chunks(config).size
        draw = lambda key, first: jax.random.key_data(learning_keys(key, first, size))  # noqa: E731
        self._draw_keys = jax.jit(draw)
        self._keys = np.empty(0)  # of the events that remain in the chunk
        self._calls: dict[tuple[int, bool], Callable] = {
            (n, learning): jax.jit(self._call(n, learning), donate_argnums=0)
            for n in self.blocks
            for learning in (False, True)
        }
        if config.update == "loop":
            from loopless.train.dqn.loop import hosted_event_by_loop

            loop = hosted_event_by_loop(self.algorithm)
            self._calls[1, True] = lambda state, _, words: self._events(1, loop, state, words)

    @property
    def learner(self) -> DQNLearner:
        return self.state[0]

    @property
    def replay(self) -> Any:
        return self.state[1]

    # --- calls of the learner ------------------------------------------------------------------

    def _transfer(self, events: int) -> Transfer:
        """Return memory for the transitions of so many events, and for their numbers and keys."""
        steps, key = events * self.steps, jax.random.key_data(self.key)
        extra = {"number": ((events,), "int32"), "key": ((events, *key.shape), "uint32")}
        if self.config.sarsa:
            extra["next_action"] = (steps, self.config.envs), "int32"
        return Transfer(self.envs, steps, extra)

    def _call(self, events: int, learning: bool) -> Callable:
        def call(state: tuple, settings: Settings, words: Any) -> tuple:
            event = partial(learn_event, with_settings(self.algorithm, settings), learning)
            return self._events(events, event, state, words)

        return call

    def _events(self, events: int, event: Callable, state: tuple, words: Any) -> tuple:
        """Run so many events, one after the other, on a block that is packed into `words`."""
        block = self.blocks[events][0].unpack(words)
        names = [*FIELDS, "next_action"] if self.config.sarsa else FIELDS
        names = [*names, "valid"] if self.has_fillers else names
        size = self.steps * self.config.envs
        fields = {name: block[name].reshape(events, size, *block[name].shape[2:]) for name in names}
        keys = jax.random.wrap_key_data(block["key"], impl=jax.random.key_impl(self.key))

        def run_one(state: tuple, x: tuple) -> tuple:
            transitions, key, number = x
            valid = transitions.pop("valid", None)
            return event(state, transitions, valid, key, number)

        xs = fields, keys, block["number"]
        if events == 1:
            return run_one(state, jax.tree.map(lambda x: x[0], xs))
        return jax.lax.scan(run_one, state, xs)

    def start_chunk(self, event: int, events: int) -> None:
        """Draw the keys of all events of a chunk in one call."""
        self._keys = np.asarray(self._draw_keys(self.key, np.int32(event)))

    def advance(self, event: int, end: int, learning: bool, clock: Clock) -> tuple:
        """Act and learn for some events; return how many, the ended episodes, and a report."""
        n = self.per_call if end - event >= self.per_call else 1
        call, transfer = self._calls[n, learning], self.blocks[n][0]
        self.blocks[n].reverse()
        with clock("env"):
            block = self._collect(event, transfer.block, clock)
        with clock("learn"):
            transfer.own["number"][...] = np.arange(event, event + n)
            transfer.own["key"][...] = self._keys[:n]
            if self.config.sarsa:
                transfer.own["next_action"][...] = self._next_actions(block)
            if self.config.overlap:
                self.policy.take(self.learner.weights)
            self.state, report = call(self.state, self.settings, transfer.words)
            if not self.config.overlap:
                self.policy.take(self.learner.weights)
        self._keys = self._keys[n:]
        return n, block.episodes, report

    # --- acting --------------------------------------------------------------------------------

    def _collect(self, number: int, block: Block, clock: Clock) -> Block:
        level = float(self.algorithm.explore(number * self.config.train_every, np))
        self.policy.explore(self.config.exploration, level)
        before = self.envs.act_seconds
        policy = self._act_ahead if self.config.sarsa else self.policy
        self.envs.collect(policy, block.steps, out=block)
        if self.config.keeps_once(self.envs.obs_space):
            check_stacks(self.envs, block)
        clock.move("env", "act", self.envs.act_seconds - before)
        return block

    def _act_ahead(self, obs: np.ndarray) -> np.ndarray:
        """Act for SARSA: at first as chosen at the end of the last block, then by the policy."""
        decided, self.pending = self.pending, None
        return self.policy(obs) if decided is None else decided

    def _next_actions(self, block: Any) -> np.ndarray:
        """Return the actions taken next; at the end of an episode, what the policy would do."""
        self.pending = pending = self.policy(block.last_obs).copy()
        after = np.concatenate((block.action[1:], pending[None])).astype(np.int32)
        ended = block.terminated | block.truncated
        if ended.any():
            after[ended] = self.policy(block.next_obs[ended])
        return after

    def greedy_policy(self) -> Any:
        """Return a policy that acts without exploration, by the current weights."""
        self._greedy.take(self.learner.weights)
        self._greedy.explore("epsilon", 0.0)
        return self._greedy

    # --- metrics and checkpoints ---------------------------------------------------------------

    def describe(self, event: int, report: np.ndarray, learning: bool) -> dict[str, Any]:
        """Return a row of metrics after `event` events."""
        step, means = event * self.config.train_every, DQNReport(*report) if learning else None
        return describe(self.algorithm, self.learner, self.replay, step, means)

    def tree(self) -> dict[str, Any]:
        """Return all that a checkpoint saves, except for the counters of the run."""
        acting, learner = split(self.learner)
        random = {"policy": self.policy.random}
        return {"weights": acting, "learner": learner, "replay": self.replay, **random}

    def restore(self, tree: Mapping[str, Any], event: int) -> None:
        """Continue from a saved tree, with new episodes."""
        learner = tree["learner"].with_acting(tree["weights"])
        self.state = learner, jax.jit(partial(end_episodes, self.algorithm))(tree["replay"])
        self.policy.random[:] = tree["policy"]
        self.policy.take(learner.weights)
        self.envs.restart(self.config.seed + event + 1)
        self.pending = None


def learn_event(
    algorithm: DQNAlgorithm,
    learning: bool,
    state: tuple,
    transitions: dict,
    valid: Any,
    key,
    number,
) -> tuple[tuple[DQNLearner, Any], jax.Array]:
    """Add the transitions of event `number`, and learn; return the report's means as one array."""
    learner, replay = state
    replay = algorithm.replay.add(replay, transitions, valid)
    if not learning:
        return (learner, replay), jnp.full(len(DQNReport._fields), jnp.nan, jnp.float32)
    step = (number + 1) * algorithm.config.train_every
    learner, replay, report = algorithm.learn(learner, replay, key, algorithm.beta(step))
    return (algorithm.update_target(learner, step), replay), jnp.stack(
        [part.mean() for part in report]
    )


def learning_keys(run_key: jax.Array, first: jax.Array, events: int) -> jax.Array:
    """Return the learning keys of events from number `first` on, the same as in compiled mode."""
    numbers = first + jnp.arange(events, dtype=jnp.int32)
    return jax.vmap(lambda n: jax.random.split(jax.random.fold_in(run_key, n))[1])(numbers)


def check_stacks(envs: HostedEnvs, block: Block) -> None:
    """Raise EnvError unless each successor is the observation before it, moved by one frame."""
    step = envs.obs_space.shape[-1] // envs.obs_space.stack
    same = (block.next_obs[..., :-step] == block.obs[..., step:]).all((2, 3, 4))
    if not (same | ~block.valid).all():
        raise EnvError(
            f"envs: {envs.env_id}: a picture should be the last {envs.obs_space.stack} frames, and "
            f"has others than the picture before it. Use --frames twice."
        )


def end_episodes(algorithm: DQNAlgorithm, replay: Any) -> Any:
    """Mark the newest transitions as truncated, because those added next do not continue them."""
    if isinstance(replay, device.FramesState):
        inner = end_episodes(
            dataclasses.replace(algorithm, replay=algorithm.replay.inner), replay.inner
        )
        return replay._replace(inner=inner, ended=jnp.ones_like(replay.ended))
    plain = device.RingBuffer(
        algorithm.replay.capacity, dict(algorithm.replay.fields), envs=algorithm.config.envs
    )
    ring = getattr(replay, "ring", replay)
    back = jnp.minimum(ring.size, algorithm.config.envs)
    head = (ring.head - back) % plain.capacity
    slots = (head + jnp.arange(algorithm.config.envs)) % plain.capacity
    newest = {n: v for n, v in plain.gather(ring, slots).items() if n != "indices"}
    newest["truncated"] = jnp.ones_like(newest["truncated"])
    shorter = ring._replace(head=head, size=ring.size - back)
    marked = plain.add(shorter, newest)
    marked = jax.tree.map(partial(jnp.where, ring.size > 0), marked, ring)
    return replay._replace(ring=marked) if hasattr(replay, "ring") else marked


# --- policies ----------------------------------------------------------------------------------


class MLPActor(Actor):
    """An MLP that acts in compiled host code, from the learner's vector of weights."""

    def __init__(self, algorithm: DQNAlgorithm, weights: jax.Array, seed: int) -> None:
        net = algorithm.rebuild(weights)
        self._is_dueling = net.value is not None
        super().__init__(plain_layers(net), algorithm.config.activation, seed)

    def take(self, weights: Any) -> None:
        """Act with the learner's vector of weights from now on."""
        vector = np.asarray(weights)
        if not self._is_dueling:  # the vector is the layers, one after the other
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
        """Explore with this epsilon, or at this temperature, from now on."""
        self.epsilon, self.temperature = (level, 0.0) if kind == "epsilon" else (0.0, level)


class DeviceActor:
    """A policy with convolutions, which acts by a compiled call on the device."""

    def __init__(self, algorithm: DQNAlgorithm, weights: jax.Array, seed: int) -> None:
        self._make_layers, module = layer_maker(algorithm.rebuild)
        self._values = jax.jit(lambda layers, obs: module(layers)(obs))
        self.random = generator(seed)
        self.epsilon, self.temperature = 0.0, 0.0
        self.take(weights)

    def take(self, weights: jax.Array) -> None:
        """Act with these weights from now on."""
        # Copies, because the next update donates the learner's; and in layers already, because
        # cutting the vector takes longer than all layers do for one observation.
        self._layers = self._make_layers(weights)

    def explore(self, kind: str, level: float) -> None:
        """Explore with this epsilon, or at this temperature, from now on."""
        self.epsilon, self.temperature = (level, 0.0) if kind == "epsilon" else (0.0, level)

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        actions = np.empty(len(obs), np.int64)
        values = np.asarray(self._values(self._layers, obs))
        choose(values, self.epsilon, self.temperature, self.random, actions)
        return actions


def make_policy(algorithm: DQNAlgorithm, weights: Any, seed: int) -> Any:
    """Return a policy with these weights, as fast as the kind of network allows."""
    plain = not algorithm.config.network and algorithm.rebuild(weights).images is None
    return (MLPActor if plain else DeviceActor)(algorithm, weights, seed)
