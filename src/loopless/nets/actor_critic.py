"""The network for policy gradients: a policy's outputs, and the value of the state."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from loopless.nets.conv import Convolutions, filters_for
from loopless.nets.distributions import Head
from loopless.nets.mlp import MLP, Linear, orthogonal
from loopless.nets.recurrent import CORES, Core, Memory, forget, unroll
from loopless.refusals import check_choice, refuse


class ActorCritic(eqx.Module):
    """Maps obs [..., *shape] to (params [..., head.outputs], own [head.own], values [...]).

    `own` are parameters of the policy that do not depend on the observation, such as log-scales.
    Policy and critic have a body (MLP of the `hidden` widths) each. They share one if `shared`, or
    behind convolutions (`conv`), or before a recurrent `core` ("gru", "lstm").

        observation → convolutions → body → core → policy, value

    Weights are orthogonal at first: gain √2 in bodies, 0.01 for the policy, 1 for the value and
    the core. Biases are 0, log-scales `log_std`.

    `as_vector` has the fields in the order below, so that the vector of an MLP without core begins
    with all that acting needs: body (weight [in, out], bias of each layer), policy, own.
    """

    images: Convolutions | None
    body: MLP
    core: Core | None
    policy: Linear
    own: jax.Array
    critic: MLP | None
    value: Linear
    head: Head = eqx.field(static=True)
    dims: int = eqx.field(static=True)

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        head: Head,
        hidden: tuple[int, ...],
        key: jax.Array,
        *,
        activation: str = "tanh",
        conv: bool = False,
        core: str = "none",
        core_width: int = 64,
        shared: bool = False,
        log_std: float = 0.0,
    ) -> None:
        refuse("ActorCritic", check_choice("core", core, ("none", *CORES)))
        self.head, self.dims, inputs = head, len(obs_shape), int(np.prod(obs_shape))
        images = critic = memory = None
        if conv:
            images = Convolutions(obs_shape, filters_for(obs_shape), activation, key)
            shape = jax.ShapeDtypeStruct(obs_shape, jnp.float32)
            inputs = jax.eval_shape(images, shape).shape[-1]
        body = MLP(inputs, hidden, activation, key)
        width = hidden[-1] if hidden else inputs
        if core != "none":
            memory = CORES[core](width, core_width, key)
            width = core_width
        elif not (shared or conv):
            critic = MLP(inputs, hidden, activation, key)
        policy, value = Linear(width, head.outputs, key), Linear(width, 1, key)
        gains = {"body": 2**0.5, "core": 1.0, "policy": 0.01, "value": 1.0}
        parts = {"body": (images, body, critic), "core": memory, "policy": policy, "value": value}
        parts = orthogonal(parts, key, gains)
        self.images, self.body, self.critic = parts["body"]
        self.core, self.value = parts["core"], parts["value"]
        bias, self.own = head.start(log_std)
        self.policy = eqx.tree_at(lambda layer: layer.bias, parts["policy"], bias)

    def memory(self, envs: int) -> Memory:
        """Return the memory of a policy before its first step: zeros [envs, core_width]."""
        return () if self.core is None else self.core.memory(envs)

    def __call__(self, obs: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return (params, own, values) of obs [..., *shape], for a network without core."""
        if self.core is not None:
            raise ValueError(
                "ActorCritic: a recurrent network needs its memory. Use step or unroll."
            )
        x = self._features(obs)
        return self._heads(self.body(x), x)

    def step(self, memory: Memory, obs: jax.Array, starts: jax.Array) -> tuple:
        """Return (params, own, values, memory) of one step: obs [N, *shape], starts [N]."""
        if self.core is None:
            return *self(obs), memory
        inputs = self.core.inputs(self.body(self._features(obs)))
        memory = self.core.step(forget(memory, starts), inputs)
        x = self.core.read(memory)
        return *self._heads(x, x), memory

    def unroll(self, memory: Memory, obs: jax.Array, starts: jax.Array) -> tuple:
        """Return (params, own, values, memories) of steps in their order: obs [T, N, *shape].

        Where `starts` [T, N] is true, memory is zeroed before the step is read. `memories`
        [T, N, ...] are those after each step, for `value_after` and for the next window.
        """
        if self.core is None:
            return *self(obs), memory
        memories = unroll(self.core, memory, self.body(self._features(obs)), starts)
        x = self.core.read(memories)
        return *self._heads(x, x), memories

    def value_after(self, memories: Memory, obs: jax.Array) -> jax.Array:
        """Return values [...] of obs [..., *shape], each after a step that left its memory."""
        x = self._features(obs)
        if self.core is None:
            return self._heads(self.body(x), x)[2]
        x = self.core.read(self.core.step(memories, self.core.inputs(self.body(x))))
        return self._heads(x, x)[2]

    def _features(self, obs: jax.Array) -> jax.Array:
        if self.images is not None:
            return self.images(obs)
        leading = obs.shape[: obs.ndim - self.dims]
        return obs.reshape(*leading, -1).astype(self.policy.weight.dtype)

    def _heads(self, x: jax.Array, features: jax.Array) -> tuple:
        """Return the heads' outputs for x of the body or core; a separate critic reads features."""
        critic = x if self.critic is None else self.critic(features)
        return self.policy(x), self.own, self.value(critic)[..., 0]
