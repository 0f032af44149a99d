"""Observation and action spaces, in small descriptions that both modes share.

Networks and buffers are sized from these, so that no trainer asks whether its environment is
compiled or hosted. They are hashable, so that a compiled function may take them as static
arguments.

A mask says which actions are legal now: one boolean for each action. If an action is several
choices at once, the booleans of the first choice come first: [sum(sizes)]. A Gymnasium environment
has masks if it has a method `action_masks()`, or else if its infos hold "action_mask" from the
first reset on. Box actions have no masks.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np

from loopless.envs import EnvError

METHOD, KEY = "action_masks", "action_mask"


@dataclass(frozen=True)
class Discrete:
    """One choice out of `n`, numbered from 0; the environment numbers them from `start`."""

    n: int
    start: int = field(default=0, repr=False)

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
    """Numbers of a shape and a dtype, between `low` and `high` (one bound, or one per number).

    one_hot_start: if these are one-hot rows of a Discrete space, the number that the first place
    stands for; None for all other observations.
    stack: how many frames a picture is a stack of, in its last axis, the oldest first; 1 if it is
    none; 0 if nothing is known about successive pictures.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: float | tuple[float, ...] = -np.inf
    high: float | tuple[float, ...] = np.inf
    one_hot_start: int | None = field(default=None, repr=False)
    stack: int = field(default=0, repr=False)

    @property
    def is_image(self) -> bool:
        """Return whether this is a picture [height, width, channels] of bytes."""
        return len(self.shape) == 3 and self.dtype == "uint8"

    def bounds(self) -> np.ndarray:
        """Return the lowest and highest numbers [2, size]; [2, 0] if nothing can be outside."""
        size = int(np.prod(self.shape))
        low, high = (np.broadcast_to(np.asarray(x), size) for x in (self.low, self.high))
        lowest, highest = (0, 255) if self.dtype == "uint8" else (-np.inf, np.inf)
        size = size if (low > lowest).any() or (high < highest).any() else 0
        return np.array([low[:size], high[:size]], np.dtype(self.dtype))


Space: TypeAlias = Discrete | MultiDiscrete | Box


def observations(space, what: str) -> Box:
    """Return how observations of a Gymnasium `space` are stored; EnvError if they cannot be.

    Bytes stay bytes, every other Box becomes float32, and a Discrete is one-hot float32.
    """
    kind = type(space).__name__
    if kind == "Discrete":
        return Box((int(space.n),), "float32", 0.0, 1.0, one_hot_start=int(space.start))
    if kind == "Box" and np.dtype(space.dtype).kind in "buif":
        dtype = "uint8" if space.dtype == np.uint8 else "float32"
        return Box(tuple(space.shape), dtype, _bound(space.low), _bound(space.high))
    raise EnvError(
        f"{what}: observations are {space}, which is not supported. Supported are Box of numbers "
        f"(uint8 images included), Discrete (as one-hot float32), and Dict, Tuple, MultiDiscrete "
        f"and MultiBinary of these, flattened, with vectorization sync or async."
    )


def actions(space, what: str) -> Space:
    """Return the description of a Gymnasium action `space`; EnvError if it is of another kind."""
    kind = type(space).__name__
    if kind == "Discrete":
        return Discrete(int(space.n), int(space.start))
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
    raise EnvError(
        f"{what}: actions are {space}, not Discrete, and dqn chooses among actions. Use ppo, which "
        f"takes them."
    )


def _bound(array: np.ndarray) -> float | tuple[float, ...]:
    flat = np.asarray(array, np.float64).ravel()
    if not flat.size or (flat == flat[0]).all():
        return float(flat[0]) if flat.size else 0.0
    return tuple(flat.tolist())


# --- masks


def mask_width(space: Space) -> int:
    """Return how many booleans the mask of an action has; 0 if its space has no masks."""
    if isinstance(space, Discrete):
        return space.n
    return sum(space.sizes) if isinstance(space, MultiDiscrete) else 0


def mask_readers(envs: Sequence[Any], infos: Sequence[Mapping]) -> list[Callable[[Mapping], Any]]:
    """Return for each environment a function from the info of a step or reset to the mask.

    infos: those of the first resets. Returns [] if the environments have no masks.
    """
    if envs[0].has_wrapper_attr(METHOD):
        methods = [env.get_wrapper_attr(METHOD) for env in envs]
        return [lambda _, method=method: method() for method in methods]
    if any(KEY in info for info in infos):
        return [lambda info: info.get(KEY)] * len(envs)
    return []


def vector_mask_reader(env: Any, infos: Mapping) -> Callable[[Mapping], tuple[Any, Any]] | None:
    """Return a function from infos to masks for a vector environment; None if it has no masks.

    The function returns the masks [envs, n], and which of them are present (None: all). It calls
    the environment's own `action_masks()`, or that of the environments inside, or reads the infos.
    """
    inner = getattr(env, "unwrapped", env)
    if hasattr(inner, METHOD):
        return lambda _: (inner.action_masks(), None)
    if hasattr(inner, "call") and all(inner.call("has_wrapper_attr", METHOD)):
        return lambda _: (np.array(inner.call(METHOD)), None)
    if KEY in infos:
        return lambda infos: (infos.get(KEY), infos.get(f"_{KEY}"))
    return None


def check_mask(mask: Any, space: Space, what: str) -> Any:
    """Return `mask` if it fits `space`; else raise EnvError."""
    if np.shape(mask) != (mask_width(space),):
        received = "missing" if mask is None else f"of shape {np.shape(mask)}"
        raise EnvError(
            f"{what}: an action mask is {received}; {space} needs one of shape "
            f"({mask_width(space)},), true where an action is legal, after every reset and step."
        )
    return mask


def select_masks(masks: Any, present: Any, rows: np.ndarray, space: Space, what: str) -> np.ndarray:
    """Return the masks of the environments `rows` [envs]; EnvError if one is missing."""
    if masks is None or (present is not None and not np.all(present[rows])):
        raise EnvError(
            f'{what}: infos["{KEY}"] is missing for some environments, but was there after the '
            f"first reset. Give it after every reset and step."
        )
    masks = np.asarray(masks)[rows]
    if masks.dtype == object:  # Gymnasium's way of batching lists
        masks = np.array(masks.tolist())
    if masks.shape != (rows.sum(), mask_width(space)):
        raise EnvError(
            f"{what}: action masks have shape {(len(rows), *masks.shape[1:])}, but {space} needs "
            f"{(len(rows), mask_width(space))}."
        )
    return masks


def takes_mask(policy: Callable) -> bool:
    """Return whether `policy` takes a mask after the observations."""
    try:
        inspect.signature(policy).bind(None, None)
    except (TypeError, ValueError):  # it takes one argument, or has no signature
        return False
    return True
