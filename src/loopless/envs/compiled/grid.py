"""The grid task, compiled. Its rules are `grid_task.GridTask`'s.

Imports JAX. Its other face is `grid_gym.GridEnv`; both are compared in
`tests/envs/test_grid_faces.py`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from loopless.envs.grids.task import GridTask


class GridState(NamedTuple):
    """Where the agent is, and how many steps the episode has taken."""

    position: jax.Array
    steps: jax.Array


class Grid(GridTask):
    """`grid_task.GridTask` as pure functions."""

    def reset(self, key: jax.Array) -> tuple[GridState, jax.Array]:
        """An episode that starts at any of the starts."""
        starts = jnp.asarray(self.start_states)
        position = starts[jax.random.randint(key, (), 0, len(starts))]
        return GridState(position, jnp.int32(0)), jnp.asarray(self.observations)[position]

    def step(self, state: GridState, action: jax.Array, key: jax.Array):
        """(state, obs, reward, terminated, truncated); `key` is read where a move may vary."""
        ways = jnp.asarray(self.world.targets)[state.position, action]
        chosen = 0
        if len(ways) > 1:
            u = jax.random.uniform(key, (), jnp.float32)  # below 1, and so some sum is above it
            chosen = jnp.argmax(u < jnp.asarray(self.reached)[state.position, action])
        after = GridState(ways[chosen], state.steps + 1)
        arrived = jnp.asarray(self.world.goals)[after.position]
        return (
            after,
            jnp.asarray(self.observations)[after.position],
            arrived.astype(jnp.float32),
            arrived,
            after.steps >= self.max_steps,
        )
