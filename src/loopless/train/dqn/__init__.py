"""Deep Q-learning. Read `algorithm.py` first; `config.py` has the settings.

The commands call these functions. JAX is imported when one of them is called, not before.
"""

from collections.abc import Mapping
from typing import Any

from loopless.train.dqn.config import DQN


def make(config: DQN) -> Any:
    """Return the run that `config` describes: a `CompiledRun` or a `HostedRun`."""
    from loopless.train.engine.players import is_hosted

    if is_hosted(config):  # only then is Numba needed
        from loopless.train.dqn import hosted

        return hosted.make(config)
    from loopless.train.dqn import compiled

    return compiled.make(config)


def player(config: DQN, weights: Mapping[str, Any]) -> Any:
    """Return a player who takes the best action by the network."""
    from loopless.train.dqn.algorithm import build
    from loopless.train.dqn.hosted import make_policy
    from loopless.train.engine.players import Player

    def policy(config: DQN, weights: Mapping[str, Any], envs: Any) -> Any:
        return make_policy(build(config, envs.obs_space, envs.actions), weights["online"], 0)

    return Player(config, weights, policy)


def export(config: DQN, weights: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arrays of a policy, and a card that says how to use them."""
    import jax.numpy as jnp

    from loopless.nets.q_network import plain_layers
    from loopless.train.dqn.algorithm import build
    from loopless.train.engine.export import describe_network, describe_observations
    from loopless.train.engine.networks import refuse_export
    from loopless.train.engine.players import evaluation_envs

    refuse_export(config)
    with evaluation_envs(config, 1, 0) as envs:
        obs, actions = envs.obs_space, envs.actions
        net = build(config, obs, actions).rebuild(jnp.asarray(weights["online"]))
    arrays, layers, start = describe_network(plain_layers(net), net.images)
    card = {
        "env": config.env,
        "observation": describe_observations(obs),
        "actions": actions,
        "first_action": getattr(envs.action_space, "start", 0),
        "activation": config.activation,
        **layers,
        "use": start + "For each layer but the last: x = activation(x @ weight + bias). Last: "
        "values = x @ weight + bias. The action is argmax(values), the first of equals, counted "
        "from the start of the action space.",
    }
    return arrays, card
