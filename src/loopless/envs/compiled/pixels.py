"""The grid seen as a picture, compiled. Its rules are `worlds.PixelsWorld`'s.

Imports JAX. Its other face is `gym_worlds.PixelsEnv`; both are compared in
`tests/envs/test_worlds.py`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from loopless.envs.worlds.chain_and_pixels import PixelsWorld


class PixelsState(NamedTuple):
    """The fields of agent and goal, and how many steps the episode has taken."""

    agent: jax.Array
    goal: jax.Array
    steps: jax.Array


class Pixels(PixelsWorld):
    """`worlds.PixelsWorld` as pure functions."""

    def reset(self, key: jax.Array) -> tuple[PixelsState, jax.Array]:
        """Agent and goal on two different fields, every pair equally likely."""
        fields = self.cells**2
        agent, ahead = jax.random.randint(
            key, (2,), jnp.array([0, 1]), jnp.array([fields, fields]), jnp.int32
        )
        state = PixelsState(agent, (agent + ahead) % fields, jnp.int32(0))
        return state, self.picture(state)

    def step(self, state: PixelsState, action: jax.Array, key: jax.Array):
        """(state, obs, reward, terminated, truncated). Nothing is random, so `key` is not read."""
        agent = jnp.asarray(self.next_fields)[state.agent, action]
        after = PixelsState(agent, state.goal, state.steps + 1)
        arrived = agent == state.goal
        return (
            after,
            self.picture(after),
            arrived.astype(jnp.float32),
            arrived,
            after.steps >= self.max_steps,
        )

    def picture(self, state: PixelsState) -> jax.Array:
        """[height, width, 3] uint8: agent in red, goal in green."""
        spots = jnp.asarray(self.spots)
        agent, goal = spots[state.agent], spots[state.goal]
        return jnp.stack([agent, goal, jnp.zeros_like(agent)], -1)
