"""Gymnasium's Acrobot-v1 as pure functions, so that a whole run compiles to one program.

Two rods hang from a pivot, with a motor at the joint between them; the free end is to be swung
above a line one rod's length over the pivot. The motion is that of Sutton and Barto's book, one
Runge-Kutta step of 0.2 s. Imports JAX. Its twin is Gymnasium's own, step for step:
`tests/envs/test_classic_control.py`.
"""

from dataclasses import dataclass
from math import pi
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from loopless.envs.compiled.pendulum import within_a_turn
from loopless.envs.refusals import refuse
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
    """Acrobot-v1. Actions −1, 0, +1 of torque; −1 for every step but the one that arrives.

    Arriving pays 0 and terminates; the time limit sets `truncated` only. The state has JAX's float
    type, the observation (cos θ₁, sin θ₁, cos θ₂, sin θ₂, θ̇₁, θ̇₂) is float32.

    The motion is chaotic: a float32 episode parts from Gymnasium's float64 one, as any two do that
    start a rounding apart. Single steps agree to 1e-6 in float32, but near the greatest speeds,
    where a step of 0.2 s itself magnifies a rounding a thousandfold, only to 4e-3 of 28 rad/s. A
    free end within a rounding of the line may count as below it here and above it there.
    """

    max_steps: int = 500

    obs_shape: ClassVar[tuple[int, ...]] = (6,)
    obs_dtype: ClassVar[str] = "float32"
    actions: ClassVar[int] = 3

    def __post_init__(self) -> None:
        refuse("envs: Acrobot", check_count("max_steps", self.max_steps))

    def reset(self, key: jax.Array) -> tuple[AcrobotState, jax.Array]:
        """All four numbers uniform between −0.1 and 0.1."""
        return self.at(jax.random.uniform(key, (4,), float, -START, START))

    def at(self, motion: jax.Array) -> tuple[AcrobotState, jax.Array]:
        """An episode that starts at (θ₁, θ₂, θ̇₁, θ̇₂)."""
        state = AcrobotState(jnp.asarray(motion, float), jnp.int32(0))
        return state, self.observe(state)

    def step(self, state: AcrobotState, action: jax.Array, key: jax.Array):
        """(state, obs, reward, terminated, truncated). Nothing is random, so `key` is not read."""
        torque = jnp.asarray(action - 1, state.motion.dtype)
        one = rates(state.motion, torque)
        two = rates(state.motion + SECONDS / 2 * one, torque)
        three = rates(state.motion + SECONDS / 2 * two, torque)
        four = rates(state.motion + SECONDS * three, torque)
        moved = state.motion + SECONDS / 6 * (one + 2 * two + 2 * three + four)

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
        """(cos θ₁, sin θ₁, cos θ₂, sin θ₂, θ̇₁, θ̇₂) as float32."""
        upper, lower, *speeds = state.motion
        shown = [jnp.cos(upper), jnp.sin(upper), jnp.cos(lower), jnp.sin(lower), *speeds]
        return jnp.stack(shown).astype(jnp.float32)


def rates(motion: jax.Array, torque: jax.Array) -> jax.Array:
    """How fast the four numbers change: rods of mass, length and inertia 1, centred at ½."""
    upper, lower, spin, twist = motion
    cosine, sine = jnp.cos(lower), jnp.sin(lower)
    inertia, shared = 3.5 + cosine, 1.25 + 0.5 * cosine
    pull = 0.5 * GRAVITY * jnp.sin(upper + lower)
    load = pull + 1.5 * GRAVITY * jnp.sin(upper) - sine * twist * (0.5 * twist + spin)
    push = torque + shared / inertia * load - 0.5 * spin**2 * sine - pull
    lower_gains = push / (1.25 - shared**2 / inertia)
    upper_gains = -(shared * lower_gains + load) / inertia
    return jnp.stack([spin, twist, upper_gains, lower_gains])
