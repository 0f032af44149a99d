"""PPO in hosted mode: Gymnasium environments on the host, the learner one compiled call a rollout.

Imports `ppo_acting`, `ppo_run` and `envs`. Tests: `tests/train/test_ppo_hosted.py`.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from loopless.envs import HostedEnvs
from loopless.envs.hosted.blocks import Block
from loopless.runs import trees
from loopless.runs.checkpoint import Checkpoint
from loopless.runs.progress.clock import Clock
from loopless.train.engine.episodes import EVALUATION, evaluation, hosted_row
from loopless.train.engine.players import first_episodes, judged_envs
from loopless.train.ppo.acting import policy_of
from loopless.train.ppo.algorithm import Learner, Report, Rollout, build, hosted_rollout
from loopless.train.ppo.config import PPO
from loopless.train.ppo.run import Run


class Hosted(Run):
    """Gymnasium environments on the host; the learner is one compiled call a rollout."""

    def __init__(self, config: PPO) -> None:
        self.envs = envs = HostedEnvs(
            config.env, config.envs, vectorization=config.vectorization, seed=config.seed
        )
        try:
            algorithm = build(config, envs.obs_space, envs.action_space, envs.max_steps)
        except BaseException:
            envs.close()
            raise
        super().__init__(config, algorithm)
        self.key = jax.random.key(config.seed)
        self._learner = jax.jit(algorithm.init)(jax.random.split(self.key)[0])
        self.acted = _copied(self._learner.acting)
        self.policy = policy_of(algorithm, self.acted, config.seed)
        self.judge = policy_of(algorithm, self.acted, config.seed, greedy=True)
        self.judged: HostedEnvs | None = None
        # Two of each in turn: with overlap the learner may still read one while the other fills.
        self.blocks = [envs.block(config.horizon) for _ in range(2)]
        head, shape = algorithm.head, (config.horizon, config.envs, *algorithm.head.raw_shape)
        self.raw = [np.zeros(shape, head.raw_dtype) for _ in range(2)]
        self.fillers = envs.vectorization in ("native", "envpool")
        self.starts = np.ones(config.envs, bool)
        self._learn = jax.jit(partial(hosted_rollout, algorithm), donate_argnums=0)

    @property
    def learner(self) -> Learner:
        return self._learner

    def advance(self, clock: Clock) -> Mapping[str, Any]:
        (rollouts,) = self.schedule.after(self.event)
        reports, returns, lengths = [], [], []
        for number in range(self.event, self.event + rollouts):
            with clock("env"):
                rollout, episodes = self._collect(number, clock)
            with clock("learn"):
                reports.append(self._improve(rollout, number))
            self.event = number + 1
            returns.append(episodes.episode_return)
            lengths.append(episodes.episode_length)
        with clock("learn"):
            means = np.mean(np.stack([np.asarray(report) for report in reports]), 0)
        with clock("log"):
            row = hosted_row(self.episodes, np.concatenate(returns), np.concatenate(lengths))
            self.episodes = row["episodes"]
            return row | self.describe(Report(*means))

    def _improve(self, rollout: Rollout, number: int) -> Any:
        acted = None
        if self.config.overlap:
            # The newest weights act from here on, while the learner makes newer ones.
            acted, self.acted = self.acted, _copied(self._learner.acting)
            self.policy.use(self.acted)
        args = (self._learner, acted, rollout, self.key, np.int32(number))
        self._learner, report = self._learn(*args)
        if not self.config.overlap:
            self.policy.use(self._learner.acting)
        return report

    def _collect(self, number: int, clock: Clock) -> tuple[Rollout, Any]:
        block, raw, before = self.blocks[number % 2], self.raw[number % 2], self.envs.act_seconds
        memory = self.policy.begin(block, self.starts, raw)
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
            starts, block.valid if self.fillers else None, block.masks, memory,
        )  # fmt: skip

    def evaluate(self) -> Mapping[str, Any]:
        config = self.config
        if self.judged is None:
            self.judged = judged_envs(config, config.eval_episodes, config.seed)
        self.judged.restart(config.seed + EVALUATION)
        self.judge.use(self._learner.acting)
        self.judge.forget()
        return evaluation(*first_episodes(self.judged, self.judge))

    def arrays(self) -> Mapping[str, Any]:
        return trees.flatten(self._tree())

    def _tree(self) -> dict[str, Any]:
        acting, rest = self._learner.parted()
        return {
            "weights": acting,
            "learner": rest,
            "event": np.int64(self.event),
            "episodes": np.int64(self.episodes),
            "policy": self.policy.random,
        }

    def restore(self, checkpoint: Checkpoint) -> str:
        found = trees.unflatten(self._tree(), checkpoint.arrays)
        self._learner = found["learner"].with_(found["weights"])
        self.event, self.episodes = int(found["event"]), int(found["episodes"])
        self.policy.random[:] = found["policy"]
        self.acted = _copied(self._learner.acting)
        self.policy.use(self.acted)
        self.policy.forget()
        self.starts[:] = True
        self.envs.restart(self.config.seed + self.event + 1)
        return "environments cannot be saved: their episodes were started anew"

    def close(self) -> None:
        self.envs.close()
        if self.judged is not None:
            self.judged.close()


def _copied(acting: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.array(x) for name, x in acting.items()}
