"""Gymnasium's MountainCarContinuous-v0 as pure functions, for use in a compiled program.

A car in a valley is to reach the hill on its right with an engine too weak to climb it without a
run-up.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from loopless.envs import refuse
from loopless.envs.spaces import Box, choices
from loopless.refusals import check_count

LEFTMOST, RIGHTMOST, GOAL = -1.2, 0.6, 0.45
FASTEST = 0.07
STRONGEST, POWER = 1.0, 0.0015
SLOPE = 0.0025
START = (-0.6, -0.4)


class MountainCarState(NamedTuple):
    """(x, ẋ) [2] float32, and how many steps the episode has taken."""

    motion: jax.Array
    steps: jax.Array


@dataclass(frozen=True)
class MountainCarContinuous:
    """MountainCarContinuous-v0. Every step costs 0.1 force², and the one that arrives pays 100.

    Arriving terminates; the time limit sets `truncated` only. A force beyond ±1 moves the car as ±1
    does, and is paid for in full. The state is float32 whatever JAX's float type, as Gymnasium's is
    after its first step, and so are all comparisons: a position within one rounding (3e-8) of
    the goal or of the wall may fall on its other side.
    """

    max_steps: int = 999

    obs_shape: ClassVar[tuple[int, ...]] = (2,)
    obs_dtype: ClassVar[str] = "float32"
    action_space: ClassVar[Box] = Box((1,), "float32", -STRONGEST, STRONGEST)

    def __post_init__(self) -> None:
        refuse("envs: MountainCarContinuous", check_count("max_steps", self.max_steps))

    @property
    def actions(self) -> int:
        return choices(self.action_space, "envs: MountainCarContinuous-v0")

    def reset(self, key: jax.Array) -> tuple[MountainCarState, jax.Array]:
        """Start at rest, near the bottom of the valley."""
        position = jax.random.uniform(key, (), jnp.float32, *START)
        return self.at(jnp.stack([position, jnp.zeros_like(position)]))

    def at(self, motion: jax.Array) -> tuple[MountainCarState, jax.Array]:
        """Start an episode at (x, ẋ)."""
        motion = jnp.asarray(motion, jnp.float32)
        return MountainCarState(motion, jnp.int32(0)), motion

    def step(self, state: MountainCarState, action: jax.Array, key: jax.Array):
        """Return (state, obs, reward, terminated, truncated). `key` is not used."""
        position, speed = state.motion
        unclipped = action[0].astype(jnp.float32)
        force = jnp.clip(unclipped, -STRONGEST, STRONGEST)
        speed = speed + force * POWER - SLOPE * jnp.cos(3 * position)
        speed = jnp.clip(speed, -FASTEST, FASTEST)
        position = jnp.clip(position + speed, LEFTMOST, RIGHTMOST)
        at_the_wall = (position <= LEFTMOST) & (speed < 0)
        speed = jnp.where(at_the_wall, jnp.zeros_like(speed), speed)

        arrived = (position >= GOAL) & (speed >= 0)
        after = MountainCarState(jnp.stack([position, speed]), state.steps + 1)
        reward = jnp.where(arrived, jnp.float32(100), jnp.float32(0)) - 0.1 * unclipped**2
        return after, after.motion, reward, arrived, after.steps >= self.max_steps
