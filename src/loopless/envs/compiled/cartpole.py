"""Gymnasium's CartPole-v1 as pure functions, so that a whole run compiles to one program.

A pole stands on a cart; each action pushes the cart left (0) or right (1) with a fixed force. The
motion is that of Barto, Sutton and Anderson 1983 (Florian's equations without friction), one
Euler step of 0.02 s.
"""

from dataclasses import dataclass
from math import pi
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from loopless.envs import refuse
from loopless.refusals import check_count

GRAVITY = 9.8
POLE_MASS = 0.1
TOTAL_MASS = 1.0 + POLE_MASS
HALF_LENGTH = 0.5
FORCE = 10.0
SECONDS = 0.02
FARTHEST = 2.4
STEEPEST = 12 * 2 * pi / 360
START = 0.05


class CartPoleState(NamedTuple):
    """(x, ẋ, θ, θ̇) [4], and how many steps the episode has taken."""

    motion: jax.Array
    steps: jax.Array


@dataclass(frozen=True)
class CartPole:
    """CartPole-v1. Reward 1 for every step; terminated when the pole falls or the cart leaves.

    The state has JAX's float type (float64 under x64, as Gymnasium's has), the observation is
    float32. The time limit sets `truncated` only.
    """

    max_steps: int = 500

    obs_shape: ClassVar[tuple[int, ...]] = (4,)
    obs_dtype: ClassVar[str] = "float32"
    actions: ClassVar[int] = 2

    def __post_init__(self) -> None:
        refuse("envs: CartPole", check_count("max_steps", self.max_steps))

    def reset(self, key: jax.Array) -> tuple[CartPoleState, jax.Array]:
        """Start with all four numbers uniform between −0.05 and 0.05."""
        return self.at(jax.random.uniform(key, (4,), float, -START, START))

    def at(self, motion: jax.Array) -> tuple[CartPoleState, jax.Array]:
        """Start an episode at (x, ẋ, θ, θ̇)."""
        motion = jnp.asarray(motion, float)
        return CartPoleState(motion, jnp.int32(0)), motion.astype(jnp.float32)

    def step(self, state: CartPoleState, action: jax.Array, key: jax.Array):
        """Return (state, obs, reward, terminated, truncated). `key` is not used."""
        _, speed, angle, spin = state.motion
        push = jnp.where(action == 1, FORCE, -FORCE)
        cosine, sine = jnp.cos(angle), jnp.sin(angle)
        drive = (push + POLE_MASS * HALF_LENGTH * spin**2 * sine) / TOTAL_MASS
        inertia = HALF_LENGTH * (4 / 3 - POLE_MASS * cosine**2 / TOTAL_MASS)
        tilt = (GRAVITY * sine - cosine * drive) / inertia
        thrust = drive - POLE_MASS * HALF_LENGTH * tilt * cosine / TOTAL_MASS

        rate = jnp.stack([speed, thrust, spin, tilt])
        after = CartPoleState(state.motion + SECONDS * rate, state.steps + 1)
        fallen = (jnp.abs(after.motion[0]) > FARTHEST) | (jnp.abs(after.motion[2]) > STEEPEST)
        return (
            after,
            after.motion.astype(jnp.float32),
            jnp.float32(1),
            fallen,
            after.steps >= self.max_steps,
        )
