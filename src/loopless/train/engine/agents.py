"""Several agents in one program: on a CPU each core has some of them, one after the other.

With `vmap`, each operation would read the weights of all agents, which fit into no cache, and only
large operations gain from several cores. Here the weights of one agent at a time stay in cache,
and the cores share nothing: each is a device of its own, which `commands.prepare` asks JAX for. An
accelerator needs large operations, so there the agents are a `vmap`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spread

from loopless.process import even_share

AGENTS = "agents"
Axes = Sequence[int | None]  # per argument: 0 if its first axis is agents, None if all share it


def advance_agents(function: Callable, axes: Axes) -> Callable:
    """Turn `function` of one agent's state into a function of all agents' states.

    The function returns the new state and one further result; agents are the first axis of both. If
    the states are donated, only one agent's state is copied at a time.
    """

    def in_turn(states: Any, *rest: Any) -> tuple:
        def advance_one(states: Any, agent: tuple) -> tuple:
            number, own_rest = agent
            state = jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, number, 0, False), states)
            state, result = function(state, *_merge(rest, axes[1:], own_rest))
            put = lambda all, x: lax.dynamic_update_index_in_dim(all, x, number, 0)  # noqa: E731
            return jax.tree.map(put, states, state), result

        numbers = jnp.arange(_count(states))
        return lax.scan(advance_one, states, (numbers, _per_agent(rest, axes[1:])))

    return _spread(function, in_turn, axes)


def map_agents(function: Callable, axes: Axes) -> Callable:
    """Turn `function` of one agent's arguments into one of all agents'; nothing is donated.

    The agents are the first axis of the result.
    """

    def in_turn(*arguments: Any) -> Any:
        run_one = lambda own: function(*_merge(arguments, axes, own))  # noqa: E731
        return lax.map(run_one, _per_agent(arguments, axes))

    return _spread(function, in_turn, axes)


def place(data: Any, axis: int | None, agents: int) -> Any:
    """Return data placed on the devices that will read it, so that no call has to move it."""
    mesh = _mesh(agents)
    return data if mesh.size == 1 else jax.device_put(data, NamedSharding(mesh, _spec(axis)))


def _spread(function: Callable, in_turn: Callable, axes: Axes) -> Callable:
    """Spread agents over devices; where a device has several of them, it calls `in_turn`."""

    def on_one_device(*arguments: Any) -> Any:
        if _count(_per_agent(arguments, axes)) > 1:
            return in_turn(*arguments)
        own = jax.tree.map(lambda x: x[0], _per_agent(arguments, axes))
        return jax.tree.map(lambda x: x[None], function(*_merge(arguments, axes, own)))

    def on_all_devices(*arguments: Any) -> Any:
        count = _count(_per_agent(arguments, axes))
        if count > 1 and jax.default_backend() != "cpu":
            return jax.vmap(function, axes)(*arguments)
        mesh = _mesh(count)
        if mesh.size == 1:
            return on_one_device(*arguments)
        # check_vma would refuse loops that begin with constants, which are the same on all devices.
        specs = {"in_specs": tuple(map(_spec, axes)), "out_specs": Spread(AGENTS)}
        return jax.shard_map(on_one_device, mesh=mesh, **specs, check_vma=False)(*arguments)

    return on_all_devices


def _mesh(agents: int) -> Mesh:
    """Return a mesh of as many devices as can each have the same number of agents."""
    devices = jax.local_devices() if jax.default_backend() == "cpu" else jax.local_devices()[:1]
    return Mesh(np.array(devices[: even_share(agents, len(devices))]), (AGENTS,))


def _spec(axis: int | None) -> Spread:
    return Spread() if axis is None else Spread(AGENTS)


def _per_agent(arguments: Sequence[Any], axes: Axes) -> list:
    """Return the arguments of which each agent has its own."""
    return [x for x, axis in zip(arguments, axes, strict=True) if axis is not None]


def _merge(arguments: Sequence[Any], axes: Axes, own: list) -> list:
    """Return all arguments of one agent: its `own` ones, and those that all agents share."""
    own_arguments = iter(own)
    return [
        x if axis is None else next(own_arguments) for x, axis in zip(arguments, axes, strict=True)
    ]


def _count(states: Any) -> int:
    return len(jax.tree.leaves(states)[0])
