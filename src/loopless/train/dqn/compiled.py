"""DQN in compiled mode: environments and learner are one program, with many events in a call.

`engine.run.CompiledRun` drives it. `chunks` and `describe` serve the hosted mode, too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from loopless.envs import autoreset, make_compiled
from loopless.train.dqn.algorithm import DQNAlgorithm, DQNLearner, DQNReport, build
from loopless.train.dqn.config import DQN
from loopless.train.engine.episodes import EpisodeSummary, play_once
from loopless.train.engine.run import CompiledRun, compile_chunk
from loopless.train.engine.schedules import Chunks
from loopless.train.engine.settings import as_program


def make(config: DQN) -> CompiledRun:
    """Return the compiled run of `config`."""
    env = make_compiled(config.env, **config.env_kwargs)
    world, evaluated = autoreset(env, config.envs), autoreset(env, config.eval_episodes)
    algorithm = build(config, world.obs_space, env.actions)
    program = CompiledDQN(algorithm, world, evaluated)
    return CompiledRun(config, program, chunks(config), config.train_every)


def chunks(config: DQN) -> Chunks:
    """Return which events a run has: first those that only collect, then those that learn."""
    events = -(-config.steps // config.train_every)
    collecting = min(events, -(-config.learning_starts // config.train_every))
    return Chunks(events, max(1, config.log_every // config.train_every), collecting)


def describe(
    algorithm: DQNAlgorithm, learner: DQNLearner, replay: Any, step: int, report: Any
) -> dict[str, Any]:
    """Return a row of metrics at environment step `step`; report: None before learning."""
    config = algorithm.config
    level = "epsilon" if config.exploration == "epsilon" else "temperature"
    row: dict[str, Any] = {
        "replay_size": np.asarray(getattr(replay, "ring", replay).size),
        "updates": np.asarray(learner.updates),
        "skipped_updates": np.asarray(learner.skipped),
        level: float(algorithm.explore(step, np)),
    }
    if report is not None:
        row |= {name: np.asarray(value) for name, value in report._asdict().items()}
        if config.prioritized != "off":
            row["beta"] = float(algorithm.beta(step, np))
    return row


class ActionNoise(NamedTuple):
    """The random numbers behind actions; the kind of exploration decides which fields are set."""

    coin: Any = None
    action: Any = None
    gumbel: Any = None


class DQNState(NamedTuple):
    """The state of a compiled run between two events."""

    learner: DQNLearner
    replay: Any
    running: Any  # the environments
    obs: jax.Array  # to act on
    action: jax.Array  # SARSA: the actions already chosen for `obs`


@dataclass(frozen=True, eq=False)
class CompiledDQN:
    """The functions of a run in compiled environments (see `envs.autoreset`)."""

    algorithm: DQNAlgorithm
    world: Any
    evaluated: Any  # the environments of evaluations

    def init(self, key: jax.Array) -> DQNState:
        """Return the state before the first event."""
        algorithm = self.algorithm
        for_weights, for_action, _ = jax.random.split(key, 3)
        learner, replay = algorithm.init(for_weights)
        running, obs = self.world.reset(key)
        noise = self.noise(for_action, (algorithm.config.envs,))
        q = algorithm.values(learner.weights, obs)
        return DQNState(learner, replay, running, obs, self.choose(q, noise, algorithm.explore(0)))

    def compile(self, spread: Callable, learning: bool) -> Callable:
        """Return the compiled chunk of events that learn, or of those that only collect."""
        if self.algorithm.config.update == "loop":
            from loopless.train.dqn.loop import chunk_by_loop

            return chunk_by_loop(self, learning)
        chunk = as_program(self, "chunk", learning=learning)
        return compile_chunk(spread(chunk, (0, None, 0, None, None)))

    def chunk(
        self, state: DQNState, key: jax.Array, first: jax.Array, events: jax.Array, learning: bool
    ) -> tuple[DQNState, tuple[EpisodeSummary, DQNReport | None]]:
        """Run so many events from number `first` on; `key` is the run's.

        Their number is an argument, so that a shorter last chunk needs no further compilation.
        """

        def run_one(i, sums):
            state, episodes, total = sums
            state, (more, report) = self.event(state, key, first + i, learning)
            report = jax.tree.map(jnp.mean, report)
            return state, episodes.merge(more), jax.tree.map(jnp.add, total, report)

        zero = jnp.zeros((), state.learner.weights.dtype)
        zeros = DQNReport._make([zero] * len(DQNReport._fields)) if learning else None
        start = state, EpisodeSummary.empty(), zeros
        state, episodes, total = lax.fori_loop(0, events, run_one, start)
        return state, (episodes, jax.tree.map(lambda x: x / events, total))

    def event(
        self, state: DQNState, run_key: jax.Array, number: jax.Array, learning: bool
    ) -> tuple[DQNState, tuple[EpisodeSummary, DQNReport | None]]:
        """Step the environments, then make the updates that are due."""
        algorithm, config = self.algorithm, self.algorithm.config
        for_acting, for_learning = jax.random.split(jax.random.fold_in(run_key, number))
        state, transitions, episodes = self.collect(state, run_key, number, for_acting)
        replay, learner = algorithm.replay.add(state.replay, transitions), state.learner
        report = None
        if learning:
            step = (number + 1) * config.train_every
            beta = algorithm.beta(step)
            learner, replay, report = algorithm.learn(learner, replay, for_learning, beta)
            learner = algorithm.update_target(learner, step)
        return state._replace(learner=learner, replay=replay), (episodes, report)

    def collect(
        self, state: DQNState, run_key: jax.Array, number: jax.Array, key: jax.Array
    ) -> tuple:
        """Make the environment steps of event `number`; return state, transitions, episodes."""
        algorithm, config = self.algorithm, self.algorithm.config
        steps = config.train_every // config.envs
        times = number * steps + jnp.arange(steps, dtype=jnp.int32)
        net = algorithm.rebuild(state.learner.weights)

        def step(now, x):
            running, obs, action = now
            noise, draws, level = x
            if not config.sarsa:
                action = self.choose(net(obs), noise, level)
            running, after = self.world.step(running, action, draws)
            transition = {
                "obs": obs, "action": action, "reward": after.reward, "next_obs": after.next_obs,
                "terminated": after.terminated, "truncated": after.truncated,
            }  # fmt: skip
            if config.sarsa:
                # Chosen for the true successor, and taken there unless a new episode begins.
                transition["next_action"] = self.choose(net(after.next_obs), noise, level)
                restart = self.choose(net(after.obs), noise, level)
                action = jnp.where(after.ended, restart, transition["next_action"])
            ended = (after.ended, after.episode_return, after.episode_length)
            return (running, after.obs, action), (transition, ended)

        xs = (
            self.noise(key, (steps, config.envs)),
            self.world.draws(run_key, times),
            algorithm.explore(times * config.envs),
        )
        start = (state.running, state.obs, state.action)
        (running, obs, action), (transitions, ended) = lax.scan(step, start, xs)
        transitions = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), transitions)
        state = state._replace(running=running, obs=obs, action=action)
        return state, transitions, EpisodeSummary.summarize(*ended)

    def noise(self, key: jax.Array, shape: tuple[int, ...]) -> ActionNoise:
        """Draw the random numbers for actions [*shape]."""
        first, second = jax.random.split(key)
        actions = self.algorithm.actions
        if self.algorithm.config.exploration == "boltzmann":
            return ActionNoise(gumbel=jax.random.gumbel(first, (*shape, actions)))
        coin = jax.random.uniform(first, shape)
        return ActionNoise(coin, jax.random.randint(second, shape, 0, actions, jnp.int32))

    def choose(self, q: jax.Array, noise: ActionNoise, level: jax.Array) -> jax.Array:
        """Choose an action for each row of `q` [envs, actions]; each env throws its own coin."""
        if self.algorithm.config.exploration == "boltzmann":
            return jnp.argmax(q / level + noise.gumbel, -1).astype(jnp.int32)
        greedy = jnp.argmax(q, -1).astype(jnp.int32)
        return jnp.where(noise.coin < level, noise.action, greedy)

    def evaluate(self, acting: Mapping[str, jax.Array], key: jax.Array) -> tuple:
        """Return the returns and lengths of one episode in each env, without exploration."""
        net = self.algorithm.rebuild(acting["online"])

        def act(memory, obs, mask):
            return memory, jnp.argmax(net(obs), -1).astype(jnp.int32)

        return play_once(self.evaluated, act, (), key, self.algorithm.config.eval_max_steps)

    def describe(self, state: DQNState, event: int, report: Any) -> dict[str, Any]:
        """Return a row of metrics after `event` events."""
        step = event * self.algorithm.config.train_every
        return describe(self.algorithm, state.learner, state.replay, step, report)
