"""PPO as the commands see it: make a run, play a policy, export it.

Imports the rest of PPO. Tests: `tests/train/test_ppo_runs.py`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from loopless.envs import HostedEnvs
from loopless.train.engine.players import Player, is_hosted, judged_envs
from loopless.train.ppo.acting import policy_of
from loopless.train.ppo.algorithm import build
from loopless.train.ppo.compiled import Compiled
from loopless.train.ppo.config import PPO
from loopless.train.ppo.export import described_policy
from loopless.train.ppo.hosted import Hosted


def make(config: PPO) -> Compiled | Hosted:
    """The run that `config` describes."""
    return Hosted(config) if is_hosted(config) else Compiled(config)


class PPOPlayer(Player):
    """The likeliest action by the policy."""

    def policy(self, envs: HostedEnvs) -> Any:
        algorithm = build(self.config, envs.obs_space, envs.action_space, envs.max_steps)
        return policy_of(algorithm, self.weights, 0, greedy=True)


def player(config: PPO, weights: Mapping[str, np.ndarray]) -> PPOPlayer:
    return PPOPlayer(config, weights)


def exported(
    config: PPO, weights: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays of a policy, and a card that says how to use them."""
    with judged_envs(config, 1, 0) as envs:
        algorithm = build(config, envs.obs_space, envs.action_space, envs.max_steps)
    return described_policy(algorithm, weights)
