"""DQN as the commands see it: make a run, play a policy, export it.

Imports the rest of DQN. Tests: `tests/train/test_commands.py`.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from loopless.envs import HostedEnvs
from loopless.nets.q_network import plain_layers
from loopless.train.dqn.algorithm import build
from loopless.train.dqn.compiled import Compiled
from loopless.train.dqn.config import DQN
from loopless.train.dqn.hosted import Hosted, policy_of
from loopless.train.engine.export import described
from loopless.train.engine.players import Player, is_hosted, judged_envs


def make(config: DQN) -> Compiled | Hosted:
    """The run that `config` describes."""
    return Hosted(config) if is_hosted(config) else Compiled(config)


class DQNPlayer(Player):
    """The best action by the network."""

    def policy(self, envs: HostedEnvs) -> Any:
        algorithm = build(self.config, envs.obs_space, envs.actions)
        return policy_of(algorithm, self.weights["online"], 0)


def player(config: DQN, weights: Mapping[str, np.ndarray]) -> DQNPlayer:
    return DQNPlayer(config, weights)


def exported(
    config: DQN, weights: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays of a policy, and a card that says how to use them."""
    with judged_envs(config, 1, 0) as envs:
        obs, actions = envs.obs_space, envs.actions
        net = build(config, obs, actions).rebuild(jnp.asarray(weights["online"]))
    arrays, layers, start = described(plain_layers(net), net.images)
    card = {
        "env": config.env,
        "observation": {"shape": list(obs.shape), "dtype": obs.dtype},
        "actions": actions,
        "activation": config.activation,
        **layers,
        "use": start + "For each layer but the last: x = activation(x @ weight + bias). Last: "
        "values = x @ weight + bias. The action is argmax(values), the first of equals, counted "
        "from the start of the action space.",
    }
    return arrays, card
