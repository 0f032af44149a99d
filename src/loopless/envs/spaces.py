"""Observation and action spaces, in small descriptions that both modes share.

Networks and buffers are sized from these, so that no trainer asks whether its environment is
compiled or hosted. They are hashable, so that a compiled function may take them as static
arguments.
"""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from loopless.envs import EnvError


@dataclass(frozen=True)
class Discrete:
    """One choice out of `n`, numbered from 0."""

    n: int

    shape: ClassVar[tuple[int, ...]] = ()
    dtype: ClassVar[str] = "int32"


@dataclass(frozen=True)
class MultiDiscrete:
    """Several choices at once, the i-th out of `sizes[i]`, each numbered from 0."""

    sizes: tuple[int, ...]

    dtype: ClassVar[str] = "int32"

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.sizes),)


@dataclass(frozen=True)
class Box:
    """Numbers of a shape and a dtype, between `low` and `high` (one bound, or one per number)."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: float | tuple[float, ...] = -np.inf
    high: float | tuple[float, ...] = np.inf

    @property
    def is_image(self) -> bool:
        """Return whether this is a picture [height, width, channels] of bytes."""
        return len(self.shape) == 3 and self.dtype == "uint8"


Space: TypeAlias = Discrete | MultiDiscrete | Box


def observations(space, what: str) -> Box:
    """Return how observations of a Gymnasium `space` are stored; EnvError if they cannot be.

    Bytes stay bytes, every other Box becomes float32, and a Discrete is one-hot float32.
    """
    kind = type(space).__name__
    if kind == "Discrete":
        return Box((int(space.n),), "float32", 0.0, 1.0)
    if kind == "Box" and np.dtype(space.dtype).kind in "buif":
        dtype = "uint8" if space.dtype == np.uint8 else "float32"
        return Box(tuple(space.shape), dtype, _bound(space.low), _bound(space.high))
    raise EnvError(
        f"{what}: observations are {space}, which is not supported. Supported are Box of numbers "
        f"(uint8 images included) and Discrete (as one-hot float32). For a Dict or a Tuple wrap "
        f"the environment in gymnasium.wrappers.FlattenObservation and register that."
    )


def actions(space, what: str) -> Space:
    """Return the description of a Gymnasium action `space`; EnvError if it is of another kind."""
    kind = type(space).__name__
    if kind == "Discrete":
        return Discrete(int(space.n))
    if kind == "MultiDiscrete" and space.nvec.ndim == 1 and not np.any(space.start):
        return MultiDiscrete(tuple(space.nvec.tolist()))
    if kind == "Box" and np.dtype(space.dtype).kind == "f":
        return Box(tuple(space.shape), "float32", _bound(space.low), _bound(space.high))
    raise EnvError(
        f"{what}: actions are {space}, which is not supported. Supported are Discrete, "
        f"MultiDiscrete (flat, from 0) and Box of floats."
    )


def choices(space: Space, what: str) -> int:
    """Return how many discrete actions there are; EnvError if they are of another kind."""
    if isinstance(space, Discrete):
        return space.n
    raise EnvError(f"{what}: actions are {space}, not Discrete.")


def _bound(array: np.ndarray) -> float | tuple[float, ...]:
    flat = np.asarray(array, np.float64).ravel()
    if not flat.size or (flat == flat[0]).all():
        return float(flat[0]) if flat.size else 0.0
    return tuple(flat.tolist())
