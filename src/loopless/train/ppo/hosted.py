"""PPO in hosted mode: Gymnasium environments on the host, one compiled call for each rollout.

`engine.run.HostedRun` drives it; the policies that act are in `policy.py`.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from loopless.envs.hosted.blocks import Block
from loopless.runs.progress.clock import Clock
from loopless.train.engine.players import hosted_envs
from loopless.train.engine.rollouts import Rollout
from loopless.train.engine.run import HostedRun, split
from loopless.train.engine.settings import Settings, as_program, traced_settings, with_settings
from loopless.train.ppo.algorithm import PPOAlgorithm, PPOLearner, PPOReport, build
from loopless.train.ppo.compiled import chunks, describe
from loopless.train.ppo.config import PPO
from loopless.train.ppo.policy import make_policy


def make(config: PPO) -> HostedRun:
    """Return the hosted run of `config`."""
    return HostedRun(config, HostedPPO(config), chunks(config), config.rollout_size)


class HostedPPO:
    """A learner, and environments that are acted in on the host."""

    def __init__(self, config: PPO) -> None:
        self.config = config
        self.envs = envs = hosted_envs(
            config,
            config.envs,
            vectorization=config.vectorization,
            seed=config.seed,
            step_timeout=config.step_timeout or None,
        )
        try:
            algorithm = build(config, envs.obs_space, envs.action_space, envs.max_steps)
        except BaseException:
            envs.close()
            raise
        self.algorithm = algorithm
        self.key = jax.random.key(config.seed)
        self.settings = traced_settings(config)
        init = jax.jit(as_program(algorithm, "init"))
        self.learner: PPOLearner = init(jax.random.split(self.key)[0], self.settings)
        self.acted = _copy(self.learner.acting())
        self.policy = make_policy(algorithm, self.acted, config.seed)
        self._greedy = make_policy(algorithm, self.acted, config.seed, greedy=True)
        # Two of each in turn: with overlap the learner may still read one while the other fills.
        self.blocks = [envs.block(config.horizon) for _ in range(2)]
        head, shape = algorithm.head, (config.horizon, config.envs, *algorithm.head.raw_shape)
        self.raw_actions = [np.zeros(shape, head.raw_dtype) for _ in range(2)]
        self.has_fillers = envs.vectorization in ("native", "envpool")
        self.starts = np.ones(config.envs, bool)
        self._learn = jax.jit(partial(learn_rollout, algorithm), donate_argnums=0)

    def start_chunk(self, event: int, events: int) -> None:
        """Prepare for a chunk: here, nothing."""

    def advance(self, event: int, end: int, learning: bool, clock: Clock) -> tuple:
        """Make rollout `event` and learn from it; return 1, the ended episodes, and a report."""
        with clock("env"):
            rollout, episodes = self._collect(event, clock)
        with clock("learn"):
            return 1, episodes, self._improve(rollout, event)

    def _improve(self, rollout: Rollout, number: int) -> Any:
        acted = None
        if self.config.overlap:
            # The newest weights act from here on, while the learner makes newer ones.
            acted, self.acted = self.acted, _copy(self.learner.acting())
            self.policy.use(self.acted)
        arguments = self.settings, acted, rollout, self.key, np.int32(number)
        self.learner, report = self._learn(self.learner, *arguments)
        if not self.config.overlap:
            self.policy.use(self.learner.acting())
        return report

    def _collect(self, number: int, clock: Clock) -> tuple[Rollout, Any]:
        block, raw = self.blocks[number % 2], self.raw_actions[number % 2]
        before, memory = self.envs.act_seconds, self.policy.begin(block, self.starts, raw)
        self.envs.collect(self.policy, self.config.horizon, out=block)
        clock.move("env", "act", self.envs.act_seconds - before)
        return self._rollout(block, raw, memory), block.episodes

    def _rollout(self, block: Block, raw: np.ndarray, memory: Any) -> Rollout:
        starts = np.empty((block.steps + 1, block.envs), bool)
        starts[0] = self.starts
        np.logical_or(block.terminated, block.truncated, out=starts[1:])
        starts[1:] |= ~block.valid
        self.starts = starts[-1].copy()
        return Rollout(
            block.all_obs, block.next_obs, raw, block.reward, block.terminated, block.truncated,
            starts, block.valid if self.has_fillers else None, block.masks, memory,
            self.policy.outputs(),
        )  # fmt: skip

    def greedy_policy(self) -> Any:
        """Return a policy that takes the likeliest actions, by the current weights."""
        self._greedy.use(self.learner.acting())
        self._greedy.forget()
        return self._greedy

    def describe(self, event: int, report: np.ndarray, learning: bool) -> dict[str, Any]:
        """Return a row of metrics after `event` rollouts."""
        return describe(self.algorithm, self.learner, event, PPOReport(*report))

    def tree(self) -> dict[str, Any]:
        """Return all that a checkpoint saves, except for the counters of the run."""
        acting, learner = split(self.learner)
        return {"weights": acting, "learner": learner, "policy": self.policy.random}

    def restore(self, tree: Mapping[str, Any], event: int) -> None:
        """Continue from a saved tree, with new episodes."""
        self.learner = tree["learner"].with_acting(tree["weights"])
        self.policy.random[:] = tree["policy"]
        self.acted = _copy(self.learner.acting())
        self.policy.use(self.acted)
        self.policy.forget()
        self.starts[:] = True
        self.envs.restart(self.config.seed + event + 1)


def learn_rollout(
    algorithm: PPOAlgorithm,
    learner: PPOLearner,
    settings: Settings,
    acted: dict | None,
    rollout: Rollout,
    key: jax.Array,
    number: jax.Array,
) -> tuple[PPOLearner, jax.Array]:
    """Learn from rollout `number`; return the learner, and the report as one array.

    acted: the arrays that acted, if they were not the learner's.
    """
    _, for_learning = jax.random.split(jax.random.fold_in(key, number))
    acted = learner.acting() if acted is None else acted
    algorithm = with_settings(algorithm, settings)
    return algorithm.learn(learner, acted, rollout, for_learning, number)


def _copy(acting: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.array(x) for name, x in acting.items()}
