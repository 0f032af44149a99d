"""Which network a config asks for: one of ours, or one that the user brings (`nets/own.py`)."""

from collections.abc import Callable
from typing import Any

import jax

from loopless.envs import objects
from loopless.envs.spaces import Box
from loopless.nets import own
from loopless.nets.distributions import Head
from loopless.nets.mlp import as_vector, rebuilder
from loopless.runs.failures import BadConfig
from loopless.train.engine.options import uses_convolutions

__all__ = ["own_actor_critic", "own_q_network", "rebuilder_of", "uses_convolutions"]


def own_q_network(config: Any, obs: Box, actions: int, key: jax.Array) -> Any:
    """Return the user's Q-network; None if the config names none."""
    if config.network:
        return _checked(own.q_network, _factory(config), obs.shape, actions, key)
    return None


def own_actor_critic(config: Any, obs: Box, head: Head, key: jax.Array) -> Any:
    """Return the user's network of policy and value; None if the config names none."""
    if config.network:
        arguments = obs.shape, head, config.log_std_start, key
        return _checked(own.actor_critic, _factory(config), *arguments)
    return None


def rebuilder_of(config: Any, make: Callable[[], Any]) -> Any:
    """Return the function from a vector of weights to the network that `make` makes.

    A network of the user's may hold arrays beside its weights, so it is made; of ours the shapes
    are enough.
    """
    return as_vector(make())[1] if config.network else rebuilder(make)


def refuse_export(config: Any) -> None:
    """Raise BadConfig if the network is the user's: only they know how NumPy would compute it."""
    if config.network:
        reason = f"the network of this run is {config.network}, which an export cannot describe."
        raise BadConfig([f"{reason} `loopless.load_policy` of the run's folder acts with it."])


def _factory(config: Any) -> own.Factory:
    return objects.load(config.network, "network")


def _checked(make: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return make(*arguments)
    except ValueError as error:
        raise BadConfig([str(error)]) from error
