"""Gymnasium's classic control tasks as pure functions, so that a whole run compiles to one program.

Four tasks: CartPole-v1, Pendulum-v1, MountainCarContinuous-v0 and Acrobot-v1. Numbers in capitals
are those of Gymnasium's source, in SI units and radians.
"""

from dataclasses import dataclass
from math import pi
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from loopless.envs import refuse
from loopless.envs.spaces import Box, choices
from loopless.refusals import check_count


class ClassicState(NamedTuple):
    """Positions and speeds, and how many steps the episode has taken."""

    motion: jax.Array
    steps: jax.Array


@dataclass(frozen=True)
class Classic:
    """What the four tasks share: float32 observations, and a time limit that truncates."""

    max_steps: int

    obs_dtype: ClassVar[str] = "float32"

    def __post_init__(self) -> None:
        refuse(f"envs: {type(self).__name__}", check_count("max_steps", self.max_steps))

    def observe(self, motion: jax.Array) -> jax.Array:
        """Return what an agent sees of a motion: here, all of it."""
        return motion.astype(jnp.float32)

    def start(self, motion: jax.Array) -> tuple[ClassicState, jax.Array]:
        """Return the first state of an episode, and its observation."""
        return ClassicState(motion, jnp.int32(0)), self.observe(motion)

    def result(self, state: ClassicState, motion, reward, terminated) -> tuple:
        """Return (state, obs, reward, terminated, truncated) after a step from `state`."""
        after = ClassicState(motion, state.steps + 1)
        return after, self.observe(motion), reward, terminated, after.steps >= self.max_steps


@dataclass(frozen=True)
class CartPole(Classic):
    """CartPole-v1. Reward 1 for every step; terminated when the pole falls or the cart leaves.

    A pole stands on a cart; each action pushes the cart left (0) or right (1) with a fixed force.
    The motion (x, ẋ, θ, θ̇) is that of Barto, Sutton and Anderson 1983 (Florian's equations without
    friction), one Euler step of 0.02 s. It has JAX's float type (float64 under x64, as Gymnasium's
    has).
    """

    max_steps: int = 500

    obs_shape: ClassVar[tuple[int, ...]] = (4,)
    actions: ClassVar[int] = 2
    GRAVITY, FORCE, SECONDS = 9.8, 10.0, 0.02
    POLE_MASS, TOTAL_MASS, HALF_LENGTH = 0.1, 1.1, 0.5
    FARTHEST, STEEPEST, START = 2.4, 12 * 2 * pi / 360, 0.05

    def reset(self, key: jax.Array) -> tuple[ClassicState, jax.Array]:
        """Start with all four numbers uniform between −0.05 and 0.05."""
        return self.at(jax.random.uniform(key, (4,), float, -self.START, self.START))

    def at(self, motion: jax.Array) -> tuple[ClassicState, jax.Array]:
        """Start an episode at (x, ẋ, θ, θ̇)."""
        return self.start(jnp.asarray(motion, float))

    def step(self, state: ClassicState, action: jax.Array, key: jax.Array):
        """Return (state, obs, reward, terminated, truncated). `key` is not used."""
        _, speed, angle, spin = state.motion
        push = jnp.where(action == 1, self.FORCE, -self.FORCE)
        cosine, sine = jnp.cos(angle), jnp.sin(angle)
        drive = (push + self.POLE_MASS * self.HALF_LENGTH * spin**2 * sine) / self.TOTAL_MASS
        inertia = self.HALF_LENGTH * (4 / 3 - self.POLE_MASS * cosine**2 / self.TOTAL_MASS)
        tilt = (self.GRAVITY * sine - cosine * drive) / inertia
        thrust = drive - self.POLE_MASS * self.HALF_LENGTH * tilt * cosine / self.TOTAL_MASS

        motion = state.motion + self.SECONDS * jnp.stack([speed, thrust, spin, tilt])
        is_off = jnp.abs(motion[0]) > self.FARTHEST
        return self.result(
            state, motion, jnp.float32(1), is_off | (jnp.abs(motion[2]) > self.STEEPEST)
        )


@dataclass(frozen=True)
class Pendulum(Classic):
    """Pendulum-v1. Reward −(θ² + 0.1 θ̇² + 0.001 torque²), of the state before the step.

    A rod hangs from a pivot and is to be swung up (θ = 0) and kept there by a torque too weak to
    lift it in one go. Nothing terminates; a torque beyond ±2 counts as ±2. The motion (θ, θ̇) has
    JAX's float type. Gymnasium lets θ grow turn by turn; here it stays within ±π, so that float32
    stays precise.
    """

    max_steps: int = 200

    obs_shape: ClassVar[tuple[int, ...]] = (3,)
    GRAVITY, SECONDS, FASTEST, STRONGEST = 10.0, 0.05, 8.0, 2.0
    START = (pi, 1.0)
    action_space: ClassVar[Box] = Box((1,), "float32", -STRONGEST, STRONGEST)

    @property
    def actions(self) -> int:
        return choices(self.action_space, "envs: Pendulum-v1")

    def reset(self, key: jax.Array) -> tuple[ClassicState, jax.Array]:
        """Start at any angle, turning by up to 1 rad/s."""
        most = jnp.array(self.START)
        return self.at(jax.random.uniform(key, (2,), float, -most, most))

    def at(self, motion: jax.Array) -> tuple[ClassicState, jax.Array]:
        """Start an episode at (θ, θ̇)."""
        angle, spin = jnp.asarray(motion, float)
        return self.start(jnp.stack([within_a_turn(angle), spin]))

    def step(self, state: ClassicState, action: jax.Array, key: jax.Array):
        """Return (state, obs, reward, terminated, truncated). `key` is not used."""
        angle, spin = state.motion
        torque = jnp.clip(action[0], -self.STRONGEST, self.STRONGEST)
        cost = angle**2 + 0.1 * spin**2 + 0.001 * torque**2
        spin = spin + self.SECONDS * (1.5 * self.GRAVITY * jnp.sin(angle) + 3.0 * torque)
        spin = jnp.clip(spin, -self.FASTEST, self.FASTEST)
        motion = jnp.stack([within_a_turn(angle + self.SECONDS * spin), spin])
        return self.result(state, motion, -cost.astype(jnp.float32), jnp.bool_(False))

    def observe(self, motion: jax.Array) -> jax.Array:
        """Return (cos θ, sin θ, θ̇) as float32."""
        angle, spin = motion
        return jnp.stack([jnp.cos(angle), jnp.sin(angle), spin]).astype(jnp.float32)


@dataclass(frozen=True)
class MountainCarContinuous(Classic):
    """MountainCarContinuous-v0. Every step costs 0.1 force², and the one that arrives pays 100.

    A car in a valley is to reach the hill on its right with an engine too weak to climb it without
    a run-up. Arriving terminates. A force beyond ±1 moves the car as ±1 does, and is paid for in
    full. The motion (x, ẋ) is float32 whatever JAX's float type, as Gymnasium's is after its first
    step, and so are all comparisons: a position within one rounding (3e-8) of the goal or of the
    wall may fall on its other side.
    """

    max_steps: int = 999

    obs_shape: ClassVar[tuple[int, ...]] = (2,)
    LEFTMOST, RIGHTMOST, GOAL = -1.2, 0.6, 0.45
    FASTEST, STRONGEST, POWER, SLOPE = 0.07, 1.0, 0.0015, 0.0025
    START = (-0.6, -0.4)
    action_space: ClassVar[Box] = Box((1,), "float32", -STRONGEST, STRONGEST)

    @property
    def actions(self) -> int:
        return choices(self.action_space, "envs: MountainCarContinuous-v0")

    def reset(self, key: jax.Array) -> tuple[ClassicState, jax.Array]:
        """Start at rest, near the bottom of the valley."""
        position = jax.random.uniform(key, (), jnp.float32, *self.START)
        return self.at(jnp.stack([position, jnp.zeros_like(position)]))

    def at(self, motion: jax.Array) -> tuple[ClassicState, jax.Array]:
        """Start an episode at (x, ẋ)."""
        return self.start(jnp.asarray(motion, jnp.float32))

    def step(self, state: ClassicState, action: jax.Array, key: jax.Array):
        """Return (state, obs, reward, terminated, truncated). `key` is not used."""
        position, speed = state.motion
        unclipped = action[0].astype(jnp.float32)
        force = jnp.clip(unclipped, -self.STRONGEST, self.STRONGEST)
        speed = speed + force * self.POWER - self.SLOPE * jnp.cos(3 * position)
        speed = jnp.clip(speed, -self.FASTEST, self.FASTEST)
        position = jnp.clip(position + speed, self.LEFTMOST, self.RIGHTMOST)
        at_the_wall = (position <= self.LEFTMOST) & (speed < 0)
        speed = jnp.where(at_the_wall, jnp.zeros_like(speed), speed)

        arrived = (position >= self.GOAL) & (speed >= 0)
        reward = jnp.where(arrived, jnp.float32(100), jnp.float32(0)) - 0.1 * unclipped**2
        return self.result(state, jnp.stack([position, speed]), reward, arrived)


@dataclass(frozen=True)
class Acrobot(Classic):
    """Acrobot-v1. Actions 0, 1, 2 are torques −1, 0, +1; every step pays −1 until one arrives.

    Two rods hang from a pivot, with a motor at the joint between them; the free end is to be swung
    above a line one rod's length over the pivot. Arriving pays 0 and terminates. The motion
    (θ₁, θ₂, θ̇₁, θ̇₂) is that of Sutton and Barto's book, one Runge-Kutta step of 0.2 s, in JAX's
    float type: θ₁ is the upper rod's angle from hanging down, θ₂ that of the lower rod from the
    upper, both within ±π.

    The motion is chaotic: a float32 episode drifts away from Gymnasium's float64 one, as do any two
    that start one rounding apart. Single steps agree to 1e-6 in float32, but only to 4e-3 near the
    greatest speeds (28 rad/s), where a step of 0.2 s magnifies a rounding a thousandfold. A free
    end within one rounding of the line may count as below it here and above it in Gymnasium.
    """

    max_steps: int = 500

    obs_shape: ClassVar[tuple[int, ...]] = (6,)
    actions: ClassVar[int] = 3
    GRAVITY, SECONDS, HEIGHT, START = 9.8, 0.2, 1.0, 0.1
    FASTEST = (4 * pi, 9 * pi)

    def reset(self, key: jax.Array) -> tuple[ClassicState, jax.Array]:
        """Start with all four numbers uniform between −0.1 and 0.1."""
        return self.at(jax.random.uniform(key, (4,), float, -self.START, self.START))

    def at(self, motion: jax.Array) -> tuple[ClassicState, jax.Array]:
        """Start an episode at (θ₁, θ₂, θ̇₁, θ̇₂)."""
        return self.start(jnp.asarray(motion, float))

    def step(self, state: ClassicState, action: jax.Array, key: jax.Array):
        """Return (state, obs, reward, terminated, truncated). `key` is not used."""
        torque = jnp.asarray(action - 1, state.motion.dtype)
        k1 = self.rates(state.motion, torque)
        k2 = self.rates(state.motion + self.SECONDS / 2 * k1, torque)
        k3 = self.rates(state.motion + self.SECONDS / 2 * k2, torque)
        k4 = self.rates(state.motion + self.SECONDS * k3, torque)
        moved = state.motion + self.SECONDS / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

        most = jnp.array(self.FASTEST, moved.dtype)
        motion = jnp.concatenate([within_a_turn(moved[:2]), jnp.clip(moved[2:], -most, most)])
        arrived = -jnp.cos(motion[0]) - jnp.cos(motion[0] + motion[1]) > self.HEIGHT
        reward = jnp.where(arrived, jnp.float32(0), jnp.float32(-1))
        return self.result(state, motion, reward, arrived)

    def observe(self, motion: jax.Array) -> jax.Array:
        """Return (cos θ₁, sin θ₁, cos θ₂, sin θ₂, θ̇₁, θ̇₂) as float32."""
        upper, lower, *speeds = motion
        angles = [jnp.cos(upper), jnp.sin(upper), jnp.cos(lower), jnp.sin(lower)]
        return jnp.stack([*angles, *speeds]).astype(jnp.float32)

    def rates(self, motion: jax.Array, torque: jax.Array) -> jax.Array:
        """Return how fast the four numbers change, for rods of mass, length and inertia 1."""
        upper, lower, spin, twist = motion
        cosine, sine = jnp.cos(lower), jnp.sin(lower)
        inertia, shared = 3.5 + cosine, 1.25 + 0.5 * cosine
        pull = 0.5 * self.GRAVITY * jnp.sin(upper + lower)
        load = pull + 1.5 * self.GRAVITY * jnp.sin(upper) - sine * twist * (0.5 * twist + spin)
        push = torque + shared / inertia * load - 0.5 * spin**2 * sine - pull
        lower_gains = push / (1.25 - shared**2 / inertia)
        upper_gains = -(shared * lower_gains + load) / inertia
        return jnp.stack([spin, twist, upper_gains, lower_gains])


def within_a_turn(angle: jax.Array) -> jax.Array:
    """Return the same angle within ±π; one that is there already is returned unchanged."""
    return angle - 2 * pi * jnp.round(angle / (2 * pi))
