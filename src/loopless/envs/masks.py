"""Which actions are legal now: how environments say it, and how a policy gets it.

A mask has one boolean for each action, true where it is legal. If an action is several choices at
once, the booleans of the first choice come first: [sum(sizes)]. A Gymnasium environment has masks
if it has a method `action_masks()`, or else if its infos hold "action_mask" from the first reset
on. Box actions have no masks.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from loopless.envs import EnvError
from loopless.envs.spaces import Discrete, MultiDiscrete, Space

METHOD, KEY = "action_masks", "action_mask"


def width(space: Space) -> int:
    """Return how many booleans the mask of an action has; 0 if its space has no masks."""
    if isinstance(space, Discrete):
        return space.n
    return sum(space.sizes) if isinstance(space, MultiDiscrete) else 0


def readers(envs: Sequence[Any], infos: Sequence[Mapping]) -> list[Callable[[Mapping], Any]]:
    """Return for each environment a function from the info of a step or reset to the mask.

    infos: those of the first resets. Returns [] if the environments have no masks.
    """
    if envs[0].has_wrapper_attr(METHOD):
        methods = [env.get_wrapper_attr(METHOD) for env in envs]
        return [lambda _, method=method: method() for method in methods]
    if any(KEY in info for info in infos):
        return [lambda info: info.get(KEY)] * len(envs)
    return []


def vector_reader(env: Any, infos: Mapping) -> Callable[[Mapping], tuple[Any, Any]] | None:
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


def check(mask: Any, space: Space, what: str) -> Any:
    """Return `mask` if it fits `space`; else raise EnvError."""
    if np.shape(mask) != (width(space),):
        received = "missing" if mask is None else f"of shape {np.shape(mask)}"
        raise EnvError(
            f"{what}: an action mask is {received}; {space} needs one of shape "
            f"({width(space)},), true where an action is legal, after every reset and step."
        )
    return mask


def select(masks: Any, present: Any, rows: np.ndarray, space: Space, what: str) -> np.ndarray:
    """Return the masks of the environments `rows` [envs]; EnvError if one is missing."""
    if masks is None or (present is not None and not np.all(present[rows])):
        raise EnvError(
            f'{what}: gave infos["{KEY}"] when it was reset, and later not for every environment. '
            f"Give it after every reset and step."
        )
    masks = np.asarray(masks)[rows]
    if masks.dtype == object:  # Gymnasium's way of batching lists
        masks = np.array(masks.tolist())
    if masks.shape != (rows.sum(), width(space)):
        raise EnvError(
            f"{what}: action masks are [envs, ...] = {(len(rows), *masks.shape[1:])}; {space} "
            f"needs {(len(rows), width(space))}."
        )
    return masks


def takes_mask(policy: Callable) -> bool:
    """Return whether `policy` takes a mask after the observations."""
    try:
        inspect.signature(policy).bind(None, None)
    except (TypeError, ValueError):  # it takes one argument, or has no signature
        return False
    return True
