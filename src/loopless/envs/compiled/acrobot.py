"""Gymnasium's Acrobot-v1 as pure functions, so that a whole run compiles to one program.

Two rods hang from a pivot, with a motor at the joint between them; the free end is to be swung
above a line one rod's length over the pivot. The motion is that of Sutton and Barto's book, one
Runge-Kutta step of 0.2 s.
"""

from dataclasses import dataclass
from math import pi
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from loopless.envs import refuse
from loopless.envs.compiled.pendulum import within_a_turn
from loopless.refusals import check_count

GRAVITY = 9.8
SECONDS = 0.2
FASTEST = (4 * pi, 9 * pi)
HEIGHT = 1.0
START = 0.1


class AcrobotState(NamedTuple):
    """(θ₁, θ₂, θ̇₁, θ̇₂) [4], angles within ±π, and how many steps the episode has taken.

    θ₁ is the upper rod's angle from hanging down, θ₂ that of the lower rod from the upper.
    """

    motion: jax.Array
    steps: jax.Array


@dataclass(frozen=True)
class Acrobot:
    """Acrobot-v1. Actions 0, 1, 2 are torques −1, 0, +1; every step pays −1 until one arrives.

    Arriving pays 0 and terminates; the time limit sets `truncated` only. The state has JAX's float
    type, the observation (cos θ₁, sin θ₁, cos θ₂, sin θ₂, θ̇₁, θ̇₂) is float32.

    The motion is chaotic: a float32 episode drifts away from Gymnasium's float64 one, as do any two
    that start one rounding apart. Single steps agree to 1e-6 in float32, but only to 4e-3 near the
    greatest speeds (28 rad/s), where a step of 0.2 s magnifies a rounding a thousandfold. A free
    end within one rounding of the line may count as below it here and above it in Gymnasium.
    """

    max_steps: int = 500

    obs_shape: ClassVar[tuple[int, ...]] = (6,)
    obs_dtype: ClassVar[str] = "float32"
    actions: ClassVar[int] = 3

    def __post_init__(self) -> None:
        refuse("envs: Acrobot", check_count("max_steps", self.max_steps))

    def reset(self, key: jax.Array) -> tuple[AcrobotState, jax.Array]:
        """Start with all four numbers uniform between −0.1 and 0.1."""
        return self.at(jax.random.uniform(key, (4,), float, -START, START))

    def at(self, motion: jax.Array) -> tuple[AcrobotState, jax.Array]:
        """Start an episode at (θ₁, θ₂, θ̇₁, θ̇₂)."""
        state = AcrobotState(jnp.asarray(motion, float), jnp.int32(0))
        return state, self.observe(state)

    def step(self, state: AcrobotState, action: jax.Array, key: jax.Array):
        """Return (state, obs, reward, terminated, truncated). `key` is not used."""
        torque = jnp.asarray(action - 1, state.motion.dtype)
        k1 = rates(state.motion, torque)
        k2 = rates(state.motion + SECONDS / 2 * k1, torque)
        k3 = rates(state.motion + SECONDS / 2 * k2, torque)
        k4 = rates(state.motion + SECONDS * k3, torque)
        moved = state.motion + SECONDS / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

        most = jnp.array(FASTEST, moved.dtype)
        motion = jnp.concatenate([within_a_turn(moved[:2]), jnp.clip(moved[2:], -most, most)])
        after = AcrobotState(motion, state.steps + 1)
        upper, lower = motion[0], motion[0] + motion[1]
        arrived = -jnp.cos(upper) - jnp.cos(lower) > HEIGHT
        return (
            after,
            self.observe(after),
            jnp.where(arrived, jnp.float32(0), jnp.float32(-1)),
            arrived,
            after.steps >= self.max_steps,
        )

    def observe(self, state: AcrobotState) -> jax.Array:
        """Return (cos θ₁, sin θ₁, cos θ₂, sin θ₂, θ̇₁, θ̇₂) as float32."""
        upper, lower, *speeds = state.motion
        angles = [jnp.cos(upper), jnp.sin(upper), jnp.cos(lower), jnp.sin(lower)]
        return jnp.stack([*angles, *speeds]).astype(jnp.float32)


def rates(motion: jax.Array, torque: jax.Array) -> jax.Array:
    """Return how fast the four numbers change, for rods of mass, length and inertia 1."""
    upper, lower, spin, twist = motion
    cosine, sine = jnp.cos(lower), jnp.sin(lower)
    inertia, shared = 3.5 + cosine, 1.25 + 0.5 * cosine
    pull = 0.5 * GRAVITY * jnp.sin(upper + lower)
    load = pull + 1.5 * GRAVITY * jnp.sin(upper) - sine * twist * (0.5 * twist + spin)
    push = torque + shared / inertia * load - 0.5 * spin**2 * sine - pull
    lower_gains = push / (1.25 - shared**2 / inertia)
    upper_gains = -(shared * lower_gains + load) / inertia
    return jnp.stack([spin, twist, upper_gains, lower_gains])
