"""Networks that users bring: Equinox modules of one observation, applied to batches of them.

A module takes one observation, as Equinox's own layers do; pictures come as numbers from 0 to 1.
For Q-learning it returns one value for each action. For policy gradients it returns the policy's
outputs and the value of the state.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from loopless.nets.distributions import Head

Factory = Callable[[tuple[int, ...], int, jax.Array], Any]  # (obs shape, outputs, key) → module


class OwnQNetwork(eqx.Module):
    """Maps observations [..., *shape] to values [..., actions], by the user's `module`."""

    module: Any
    dims: int = eqx.field(static=True)

    def __call__(self, obs: jax.Array) -> jax.Array:
        return _over_batch(self.module, self.dims, obs)


class OwnActorCritic(eqx.Module):
    """What `ActorCritic` is to a policy without memory, by the user's `module`."""

    module: Any
    own: jax.Array
    dims: int = eqx.field(static=True)

    def memory(self, envs: int) -> tuple:
        """Return the memory of a policy before its first step: there is none."""
        return ()

    def __call__(self, obs: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return (params, own, values) of obs [..., *shape]."""
        params, values = _over_batch(self.module, self.dims, obs)
        return params, self.own, values.reshape(obs.shape[: obs.ndim - self.dims])

    def step(self, memory: Any, obs: jax.Array, starts: jax.Array) -> tuple:
        """Return (params, own, values, memory) of one step."""
        return *self(obs), memory

    def unroll(self, memory: Any, obs: jax.Array, starts: jax.Array) -> tuple:
        """Return (params, own, values, memory) of steps in their order."""
        return *self(obs), memory

    def value_after(self, memories: Any, obs: jax.Array) -> jax.Array:
        """Return values [...] of obs [..., *shape]."""
        return self(obs)[2]


def q_network(make: Factory, shape: tuple[int, ...], actions: int, key: jax.Array) -> OwnQNetwork:
    """Return the network of a factory; ValueError says how it must be different."""
    net = OwnQNetwork(make(shape, actions, key), len(shape))
    outputs = _outputs(net, shape)
    if getattr(outputs, "shape", None) != (actions,):
        raise ValueError(
            f"network must return one value for each of {actions} actions, shape ({actions},), for "
            f"one observation of shape {shape}; it returned {_shapes(outputs)}."
        )
    return net


def actor_critic(
    make: Factory, shape: tuple[int, ...], head: Head, log_std: float, key: jax.Array
) -> OwnActorCritic:
    """Return the network of a factory; ValueError says how it must be different."""
    net = OwnActorCritic(make(shape, head.outputs, key), head.start(log_std)[1], len(shape))
    outputs = _outputs(lambda obs: _over_batch(net.module, net.dims, obs), shape)
    is_pair = isinstance(outputs, tuple) and len(outputs) == 2
    if not is_pair or outputs[0].shape != (head.outputs,) or outputs[1].shape not in ((), (1,)):
        raise ValueError(
            f"network must return (outputs, value), of shapes ({head.outputs},) and (), for one "
            f"observation of shape {shape}; it returned {_shapes(outputs)}."
        )
    return net


def _over_batch(module: Any, dims: int, obs: jax.Array) -> Any:
    leading = obs.shape[: obs.ndim - dims]
    x = obs.reshape(-1, *obs.shape[obs.ndim - dims :])
    x = x.astype(jnp.float32) / 255 if x.dtype == jnp.uint8 else x.astype(jnp.float32)
    outputs = jax.vmap(module)(x)
    return jax.tree.map(lambda y: y.reshape(*leading, *y.shape[1:]), outputs)


def _outputs(net: Callable, shape: tuple[int, ...]) -> Any:
    return jax.eval_shape(net, jax.ShapeDtypeStruct(shape, jnp.float32))


def _shapes(outputs: Any) -> str:
    return str(jax.tree.map(lambda x: getattr(x, "shape", type(x).__name__), outputs))
