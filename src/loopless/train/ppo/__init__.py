"""Proximal policy optimization. Read `algorithm.py` first; `config.py` has the settings.

The commands call these functions. JAX is imported when one of them is called, not before.
"""

from collections.abc import Mapping
from typing import Any

from loopless.train.ppo.config import PPO


def make(config: PPO) -> Any:
    """Return the run that `config` describes: a `CompiledRun` or a `HostedRun`."""
    from loopless.train.engine.players import is_hosted

    if is_hosted(config):  # only then is Numba needed
        from loopless.train.ppo import hosted

        return hosted.make(config)
    from loopless.train.ppo import compiled

    return compiled.make(config)


def player(config: PPO, weights: Mapping[str, Any]) -> Any:
    """Return a player who takes the likeliest action by the policy."""
    from loopless.train.engine.players import Player
    from loopless.train.ppo.algorithm import build
    from loopless.train.ppo.policy import make_policy

    def policy(config: PPO, weights: Mapping[str, Any], envs: Any) -> Any:
        algorithm = build(config, envs.obs_space, envs.action_space, envs.max_steps)
        return make_policy(algorithm, weights, 0, greedy=True)

    return Player(config, weights, policy)


def export(config: PPO, weights: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arrays of a policy, and a card that says how to use them."""
    from loopless.envs.spaces import Discrete
    from loopless.train.engine.networks import refuse_export
    from loopless.train.engine.players import evaluation_envs
    from loopless.train.ppo.algorithm import build
    from loopless.train.ppo.policy import describe_policy

    refuse_export(config)
    with evaluation_envs(config, 1, 0) as envs:
        algorithm = build(config, envs.obs_space, envs.action_space, envs.max_steps)
        actions = envs.action_space
    arrays, card = describe_policy(algorithm, weights)
    if isinstance(actions, Discrete):
        card["first_action"] = actions.start
    return arrays, card
