"""Which actions are legal now: where an environment tells it, and how a policy hears of it.

A mask has one boolean for each action, true where it is legal; of several choices at once, those
of the first come first: [sum(sizes)]. A Gymnasium environment has masks if it has a method
`action_masks()`, or else if its infos hold "action_mask", from the first reset on. Those of Box
actions mean nothing and are not read. Imports NumPy. Tests: `tests/envs/test_masks.py`.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from loopless.envs.refusals import EnvError
from loopless.envs.spaces import Discrete, MultiDiscrete, Space

METHOD, KEY = "action_masks", "action_mask"


def width(space: Space) -> int:
    """How many booleans the mask of an action has; 0 if its space knows no masks."""
    if isinstance(space, Discrete):
        return space.n
    return sum(space.sizes) if isinstance(space, MultiDiscrete) else 0


def readers(envs: Sequence[Any], infos: Sequence[Mapping]) -> list[Callable[[Mapping], Any]]:
    """For each environment, what gives its mask after a step or a reset with that info.

    infos: those of the first resets. Nothing if the environments have no masks.
    """
    if envs[0].has_wrapper_attr(METHOD):
        methods = [env.get_wrapper_attr(METHOD) for env in envs]
        return [lambda _, method=method: method() for method in methods]
    if any(KEY in info for info in infos):
        return [lambda info: info.get(KEY)] * len(envs)
    return []


def vector_reader(env: Any, infos: Mapping) -> Callable[[Mapping], tuple[Any, Any]] | None:
    """The same for a vector environment: masks [envs, n], and which of them were given (or None).

    Its own `action_masks()` counts, and that of the environments inside, if it calls them.
    """
    inner = getattr(env, "unwrapped", env)
    if hasattr(inner, METHOD):
        return lambda _: (inner.action_masks(), None)
    if hasattr(inner, "call") and all(inner.call("has_wrapper_attr", METHOD)):
        return lambda _: (np.array(inner.call(METHOD)), None)
    if KEY in infos:
        return lambda infos: (infos.get(KEY), infos.get(f"_{KEY}"))
    return None


def checked(mask: Any, space: Space, what: str) -> Any:
    """`mask`, if it is one of `space`; else EnvError."""
    if np.shape(mask) != (width(space),):
        raise EnvError(
            f"{what}: an action mask is {_seen(mask)}; {space} needs one of shape "
            f"({width(space)},), true where an action is legal, after every reset and step."
        )
    return mask


def picked(masks: Any, given: Any, rows: np.ndarray, space: Space, what: str) -> np.ndarray:
    """The masks of `rows` [envs] of a vector environment's; EnvError if one is missing."""
    if masks is None or (given is not None and not np.all(given[rows])):
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


def hears(policy: Callable) -> bool:
    """Whether `policy` takes a mask behind the observations."""
    try:
        inspect.signature(policy).bind(None, None)
    except (TypeError, ValueError):  # it takes one argument, or does not tell
        return False
    return True


def _seen(mask: Any) -> str:
    return "missing" if mask is None else f"of shape {np.shape(mask)}"
