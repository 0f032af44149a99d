"""PPO in compiled mode: environments and learner are one program, with many rollouts in a call.

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
from loopless.train.engine.episodes import EpisodeSummary, play_once
from loopless.train.engine.rollouts import Rollout
from loopless.train.engine.run import CompiledRun, compile_chunk
from loopless.train.engine.schedules import Chunks
from loopless.train.engine.settings import as_program
from loopless.train.ppo.algorithm import PPOAlgorithm, PPOLearner, PPOReport, build
from loopless.train.ppo.config import PPO


def make(config: PPO) -> CompiledRun:
    """Return the compiled run of `config`."""
    env = make_compiled(config.env, **config.env_kwargs)
    world, evaluated = autoreset(env, config.envs), autoreset(env, config.eval_episodes)
    algorithm = build(config, world.obs_space, world.action_space, world.max_steps)
    program = CompiledPPO(algorithm, world, evaluated)
    return CompiledRun(config, program, chunks(config), config.rollout_size)


def chunks(config: PPO) -> Chunks:
    """Return how many rollouts a run has, and how many there are between two rows of metrics."""
    size = config.rollout_size
    return Chunks(-(-config.steps // size), max(1, config.log_every // size))


def describe(
    algorithm: PPOAlgorithm, learner: PPOLearner, rollouts: int, report: PPOReport
) -> dict[str, Any]:
    """Return a row of metrics after so many rollouts."""
    config = algorithm.config
    row: dict[str, Any] = {
        "updates": np.asarray(learner.updates),
        "skipped_updates": np.asarray(learner.skipped),
    }
    row |= {name: np.asarray(value) for name, value in report._asdict().items()}
    if config.algorithm == "a2c":
        del row["approximate_kl"], row["clip_fraction"]
    if config.target_kl is not None:
        row["stopped_updates"] = np.asarray(learner.stopped)
    coefficients = algorithm.coefficients(max(0, rollouts - 1), np)
    row["learning_rate"] = float(coefficients["learning_rate"])
    for name, end in (("clip", config.clip_end), ("entropy_coefficient", config.entropy_end)):
        row |= {} if end is None else {name: float(coefficients[name])}
    return row


class PPOState(NamedTuple):
    """The state of a compiled run between two rollouts."""

    learner: PPOLearner
    running: Any  # the environments
    obs: jax.Array  # to act on
    memory: Any  # of the policy
    starts: jax.Array  # [envs]: whether an episode starts with `obs`


@dataclass(frozen=True, eq=False)
class CompiledPPO:
    """The functions of a run in compiled environments (see `envs.autoreset`)."""

    algorithm: PPOAlgorithm
    world: Any
    evaluated: Any  # the environments of evaluations

    def init(self, key: jax.Array) -> PPOState:
        """Return the state before the first rollout."""
        for_weights, _ = jax.random.split(key)
        learner = self.algorithm.init(for_weights)
        running, obs = self.world.reset(key)
        memory = self.algorithm.rebuild(learner.weights).memory(self.world.envs)
        return PPOState(learner, running, obs, memory, jnp.ones(self.world.envs, bool))

    def compile(self, spread: Callable, learning: bool) -> Callable:
        """Return the compiled chunk; every rollout learns."""
        chunk = as_program(self, "chunk")
        return compile_chunk(spread(chunk, (0, None, 0, None, None)))

    def chunk(
        self, state: PPOState, key: jax.Array, first: jax.Array, rollouts: jax.Array
    ) -> tuple[PPOState, tuple[EpisodeSummary, jax.Array]]:
        """Make so many rollouts from number `first` on, and learn; `key` is the run's.

        The report is one array: many small ones would take longer to compile and to run.

        Their number is an argument, so that a shorter last chunk needs no further compilation.
        """

        def run_one(i, sums):
            state, episodes, total = sums
            state, (more, report) = self.rollout(state, key, first + i)
            return state, episodes.merge(more), total + report

        zeros = jnp.zeros(len(PPOReport._fields), state.learner.weights.dtype)
        start = state, EpisodeSummary.empty(), zeros
        state, episodes, total = lax.fori_loop(0, rollouts, run_one, start)
        return state, (episodes, total / rollouts)

    def rollout(self, state: PPOState, run_key: jax.Array, number: jax.Array) -> tuple:
        """Step the environments, then make the updates."""
        for_acting, for_learning = jax.random.split(jax.random.fold_in(run_key, number))
        acted = state.learner.acting()
        state, rollout, episodes = self.collect(state, run_key, number, for_acting)
        learner, report = self.algorithm.learn(state.learner, acted, rollout, for_learning, number)
        return state._replace(learner=learner), (episodes, report)

    def collect(
        self, state: PPOState, run_key: jax.Array, number: jax.Array, key: jax.Array
    ) -> tuple:
        """Make the environment steps of rollout `number`; return state, rollout, episodes."""
        algorithm, world = self.algorithm, self.world
        steps, head = algorithm.config.horizon, algorithm.head
        acting = state.learner.acting()
        net = algorithm.rebuild(acting["online"])

        def step(now, x):
            running, obs, memory, starts = now
            noise, draws = x
            mask = world.mask(running)
            params, log_std, _, memory = net.step(
                memory, algorithm.normalize_obs(acting, obs), starts
            )
            action = head(params, log_std, mask).sample(noise)
            running, after = world.step(running, head.to_env(action), draws)
            one_step = Rollout(
                obs, after.next_obs, action, after.reward, after.terminated, after.truncated,
                starts, masks=mask,
            )  # fmt: skip
            ended = (after.ended, after.episode_return, after.episode_length)
            return (running, after.obs, memory, after.ended), (one_step, ended)

        times = number * steps + jnp.arange(steps, dtype=jnp.int32)
        xs = head.noise(key, (steps, world.envs)), world.draws(run_key, times)
        start = state.running, state.obs, state.memory, state.starts
        (running, obs, memory, starts), (rollout, ended) = lax.scan(step, start, xs)
        rollout = rollout._replace(
            all_obs=jnp.concatenate((rollout.all_obs, obs[None])),
            starts=jnp.concatenate((rollout.starts, starts[None])),
            memory=state.memory,
        )
        state = PPOState(state.learner, running, obs, memory, starts)
        return state, rollout, EpisodeSummary.summarize(*ended)

    def evaluate(self, acting: Mapping[str, jax.Array], key: jax.Array) -> tuple:
        """Return the returns and lengths of one episode in each env, by the likeliest actions."""
        algorithm, envs = self.algorithm, self.evaluated.envs
        net = algorithm.rebuild(acting["online"])
        starts = jnp.zeros(envs, bool)

        def act(memory, obs, mask):
            params, log_std, _, memory = net.step(
                memory, algorithm.normalize_obs(acting, obs), starts
            )
            return memory, algorithm.head.to_env(algorithm.head(params, log_std, mask).mode())

        most = algorithm.config.eval_max_steps
        return play_once(self.evaluated, act, net.memory(envs), key, most)

    def describe(self, state: PPOState, event: int, report: jax.Array) -> dict[str, Any]:
        """Return a row of metrics after `event` rollouts."""
        report_of = PPOReport(*np.moveaxis(np.asarray(report), -1, 0))
        return describe(self.algorithm, state.learner, event, report_of)
