"""The closed-form chain, compiled. Rules and right answers are `worlds.ChainWorld`'s.

Imports JAX. Its other face is `gym_worlds.ChainEnv`; both are compared in
`tests/envs/test_worlds.py`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from loopless.envs.worlds import ChainWorld


class ChainState(NamedTuple):
    """Where the agent is, and how many steps the episode has taken."""

    position: jax.Array
    steps: jax.Array


class Chain(ChainWorld):
    """`worlds.ChainWorld` as pure functions."""

    def reset(self, key: jax.Array) -> tuple[ChainState, jax.Array]:
        """An episode that starts anywhere."""
        position = jax.random.randint(key, (), 0, self.length, jnp.int32)
        return ChainState(position, jnp.int32(0)), jnp.asarray(self.observations)[position]

    def step(self, state: ChainState, action: jax.Array, key: jax.Array):
        """(state, obs, reward, terminated, truncated). Nothing is random, so `key` is not read."""
        here = (state.position, action)
        after = ChainState(jnp.asarray(self.next_states)[here], state.steps + 1)
        return (
            after,
            jnp.asarray(self.observations)[after.position],
            jnp.asarray(self.rewards)[here],
            jnp.asarray(self.terminates)[here],
            after.steps >= self.max_steps,
        )
