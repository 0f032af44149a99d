"""Several agents in one program: on a CPU each core has its own of them, one after the other.

An operation of `vmap` goes over the weights of all agents, which no cache holds, and only a large
one is worth several cores. One agent after the other stays in cache, and cores share nothing: they
are devices of one program, which `commands.prepare` asks JAX for. An accelerator wants large
operations, and there it is `vmap`. Imports JAX. Tests: `tests/train/test_agents.py`.
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
Axes = Sequence[int | None]  # of arguments: 0, agents are its first axis; None, it is for all


def for_all(function: Callable, axes: Axes) -> Callable:
    """The function of one agent as one of all, who are the first axis of its results.

    It takes a state, and gives it back as it is then, and something else. Of states that are given
    up (donated), one at most is copied.
    """

    def in_turn(states: Any, *rest: Any) -> tuple:
        def one(states: Any, given: tuple) -> tuple:
            number, mine = given
            own = jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, number, 0, False), states)
            new, told = function(own, *_joined(rest, axes[1:], mine))
            put = lambda all, x: lax.dynamic_update_index_in_dim(all, x, number, 0)  # noqa: E731
            return jax.tree.map(put, states, new), told

        return lax.scan(one, states, (jnp.arange(_count(states)), _apart(rest, axes[1:])))

    return _spread(function, in_turn, axes)


def each(function: Callable, axes: Axes) -> Callable:
    """The same for a function that takes and gives anything; what it is given, it does not keep."""

    def in_turn(*arguments: Any) -> Any:
        one = lambda mine: function(*_joined(arguments, axes, mine))  # noqa: E731
        return lax.map(one, _apart(arguments, axes))

    return _spread(function, in_turn, axes)


def placed(data: Any, axis: int | None, agents: int) -> Any:
    """Data that all calls read, where they want it: to be moved once, not at every call."""
    mesh = _cores(agents)
    return data if mesh.size == 1 else jax.device_put(data, NamedSharding(mesh, _part(axis)))


def _spread(function: Callable, in_turn: Callable, axes: Axes) -> Callable:
    """For agents on all devices: a single one as it is, several on one device `in_turn`."""

    def on_one(*arguments: Any) -> Any:
        if _count(_apart(arguments, axes)) > 1:
            return in_turn(*arguments)
        mine = jax.tree.map(lambda x: x[0], _apart(arguments, axes))
        return jax.tree.map(lambda x: x[None], function(*_joined(arguments, axes, mine)))

    def on_all(*arguments: Any) -> Any:
        count = _count(_apart(arguments, axes))
        if count > 1 and jax.default_backend() != "cpu":
            return jax.vmap(function, axes)(*arguments)
        mesh = _cores(count)
        if mesh.size == 1:
            return on_one(*arguments)
        # The check would have loops that begin with constants say that these differ by core.
        own = {"in_specs": tuple(map(_part, axes)), "out_specs": Spread(AGENTS), "check_vma": False}
        return jax.shard_map(on_one, mesh=mesh, **own)(*arguments)

    return on_all


def _cores(agents: int) -> Mesh:
    """As many as can have the same number of agents each."""
    devices = jax.local_devices() if jax.default_backend() == "cpu" else jax.local_devices()[:1]
    return Mesh(np.array(devices[: even_share(agents, len(devices))]), (AGENTS,))


def _part(axis: int | None) -> Spread:
    return Spread() if axis is None else Spread(AGENTS)


def _apart(arguments: Sequence[Any], axes: Axes) -> list:
    """Those of which each agent has its own."""
    return [x for x, axis in zip(arguments, axes, strict=True) if axis is not None]


def _joined(arguments: Sequence[Any], axes: Axes, mine: list) -> list:
    """The arguments of an agent, to whom `mine` are its own."""
    own = iter(mine)
    return [x if axis is None else next(own) for x, axis in zip(arguments, axes, strict=True)]


def _count(states: Any) -> int:
    return len(jax.tree.leaves(states)[0])
