"""Gymnasium's Pendulum-v1 as pure functions, so that a whole run compiles to one program.

A rod hangs from a pivot and is to be swung up and kept upright by a torque too weak to lift it in
one go.
"""

from dataclasses import dataclass
from math import pi
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from loopless.envs import refuse
from loopless.envs.spaces import Box, choices
from loopless.refusals import check_count

GRAVITY = 10.0
SECONDS = 0.05
FASTEST = 8.0
STRONGEST = 2.0
START = (pi, 1.0)


class PendulumState(NamedTuple):
    """(θ, θ̇) [2] with θ within ±π and 0 upright, and how many steps the episode has taken."""

    motion: jax.Array
    steps: jax.Array


@dataclass(frozen=True)
class Pendulum:
    """Pendulum-v1. Reward −(θ² + 0.1 θ̇² + 0.001 torque²), of the state before the step.

    Nothing terminates; the time limit sets `truncated`. A torque beyond ±2 counts as ±2. The
    state has JAX's float type, the observation (cos θ, sin θ, θ̇) is float32. Gymnasium lets θ grow
    turn by turn; here it stays within ±π, so that float32 stays precise.
    """

    max_steps: int = 200

    obs_shape: ClassVar[tuple[int, ...]] = (3,)
    obs_dtype: ClassVar[str] = "float32"
    action_space: ClassVar[Box] = Box((1,), "float32", -STRONGEST, STRONGEST)

    def __post_init__(self) -> None:
        refuse("envs: Pendulum", check_count("max_steps", self.max_steps))

    @property
    def actions(self) -> int:
        return choices(self.action_space, "envs: Pendulum-v1")

    def reset(self, key: jax.Array) -> tuple[PendulumState, jax.Array]:
        """Start at any angle, turning by up to 1 rad/s."""
        most = jnp.array(START)
        return self.at(jax.random.uniform(key, (2,), float, -most, most))

    def at(self, motion: jax.Array) -> tuple[PendulumState, jax.Array]:
        """Start an episode at (θ, θ̇)."""
        angle, spin = jnp.asarray(motion, float)
        state = PendulumState(jnp.stack([within_a_turn(angle), spin]), jnp.int32(0))
        return state, self.observe(state)

    def step(self, state: PendulumState, action: jax.Array, key: jax.Array):
        """Return (state, obs, reward, terminated, truncated). `key` is not used."""
        angle, spin = state.motion
        torque = jnp.clip(action[0], -STRONGEST, STRONGEST)
        cost = angle**2 + 0.1 * spin**2 + 0.001 * torque**2
        spin = spin + SECONDS * (1.5 * GRAVITY * jnp.sin(angle) + 3.0 * torque)
        spin = jnp.clip(spin, -FASTEST, FASTEST)
        angle = within_a_turn(angle + SECONDS * spin)
        after = PendulumState(jnp.stack([angle, spin]), state.steps + 1)
        return (
            after,
            self.observe(after),
            -cost.astype(jnp.float32),
            jnp.bool_(False),
            after.steps >= self.max_steps,
        )

    def observe(self, state: PendulumState) -> jax.Array:
        """Return (cos θ, sin θ, θ̇) as float32."""
        angle, spin = state.motion
        return jnp.stack([jnp.cos(angle), jnp.sin(angle), spin]).astype(jnp.float32)


def within_a_turn(angle: jax.Array) -> jax.Array:
    """Return the same angle within ±π; one that is there already is returned unchanged."""
    return angle - 2 * pi * jnp.round(angle / (2 * pi))
