"""The worlds and grids of this library, compiled: every step looks up its result in tables.

The rules are those of `envs.worlds.rules` and `envs.grids.world.GridTask`, which also have
Gymnasium environments (`envs.worlds.gym`, `envs.grids.gym`).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from loopless.envs.grids.world import GridTask
from loopless.envs.worlds.rules import ChainWorld, MaskedWorld, MemoryWorld, PixelsWorld


class TableState(NamedTuple):
    """The number of the state, and how many steps the episode has taken."""

    position: jax.Array
    steps: jax.Array


class Table:
    """The tables of a world as pure functions; the world itself is the other base class."""

    starts: Any
    next_states: Any
    rewards: Any
    terminates: Any
    observations: Any
    is_late: Any

    def reset(self, key: jax.Array) -> tuple[TableState, jax.Array]:
        """Start an episode in any state that may come first."""
        position = jax.random.randint(key, (), 0, self.starts, jnp.int32)
        return TableState(position, jnp.int32(0)), jnp.asarray(self.observations)[position]

    def step(self, state: TableState, action: jax.Array, key: jax.Array):
        """Return (state, obs, reward, terminated, truncated). `key` is not used."""
        here = (state.position, action)
        after = TableState(jnp.asarray(self.next_states)[here], state.steps + 1)
        return (
            after,
            jnp.asarray(self.observations)[after.position],
            jnp.asarray(self.rewards)[here],
            jnp.asarray(self.terminates)[here],
            self.is_late(after.steps),
        )


class Chain(ChainWorld, Table):
    """`ChainWorld` as pure functions."""


class Memory(MemoryWorld, Table):
    """`MemoryWorld` as pure functions."""


class Masked(MaskedWorld, Table):
    """`MaskedWorld` as pure functions."""

    def action_mask(self, state: TableState) -> jax.Array:
        """Return which actions are legal now."""
        return jnp.asarray(self.legal)[state.position]


class Grid(GridTask):
    """`GridTask` as pure functions."""

    def reset(self, key: jax.Array) -> tuple[TableState, jax.Array]:
        """Start an episode at any of the starts."""
        starts = jnp.asarray(self.start_states)
        position = starts[jax.random.randint(key, (), 0, len(starts))]
        return TableState(position, jnp.int32(0)), jnp.asarray(self.observations)[position]

    def step(self, state: TableState, action: jax.Array, key: jax.Array):
        """Return (state, obs, reward, terminated, truncated); `key` decides uncertain moves."""
        targets = jnp.asarray(self.world.targets)[state.position, action]
        outcome = 0
        if len(targets) > 1:
            u = jax.random.uniform(key, (), jnp.float32)  # below 1, and so below the last sum
            outcome = jnp.argmax(u < jnp.asarray(self.cumulative_chances)[state.position, action])
        after = TableState(targets[outcome], state.steps + 1)
        arrived = jnp.asarray(self.world.goals)[after.position]
        return (
            after,
            jnp.asarray(self.observations)[after.position],
            arrived.astype(jnp.float32),
            arrived,
            after.steps >= self.max_steps,
        )


class PixelsState(NamedTuple):
    """The cells of agent and goal, and how many steps the episode has taken."""

    agent: jax.Array
    goal: jax.Array
    steps: jax.Array


class Pixels(PixelsWorld):
    """`PixelsWorld` as pure functions."""

    def reset(self, key: jax.Array) -> tuple[PixelsState, jax.Array]:
        """Put agent and goal on two different cells, every pair equally likely."""
        count = self.cells**2
        agent, ahead = jax.random.randint(
            key, (2,), jnp.array([0, 1]), jnp.array([count, count]), jnp.int32
        )
        state = PixelsState(agent, (agent + ahead) % count, jnp.int32(0))
        return state, self.picture(state)

    def step(self, state: PixelsState, action: jax.Array, key: jax.Array):
        """Return (state, obs, reward, terminated, truncated). `key` is not used."""
        agent = jnp.asarray(self.next_cells)[state.agent, action]
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
        """Return [height, width, 3] uint8 with the agent in red and the goal in green."""
        spots = jnp.asarray(self.spots)
        agent, goal = spots[state.agent], spots[state.goal]
        return jnp.stack([agent, goal, jnp.zeros_like(agent)], -1)
