"""Environments: compiled ones for use inside a scan, and every Gymnasium one, hosted.

Hosted mode runs without JAX, and compiled mode without Gymnasium, so most names load on first use.
What both modes share and needs no library is here: the errors, and the record of a step.
"""

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from loopless import refusals

if TYPE_CHECKING:
    from loopless.envs.compiled import compiled_ids, is_compiled, make_compiled
    from loopless.envs.compiled.autoreset import Autoreset, CompiledEnv, autoreset
    from loopless.envs.hosted.blocks import Block, Episodes
    from loopless.envs.hosted.envs import HostedEnvs
    from loopless.envs.spaces import Box, Discrete, MultiDiscrete, Space


class EnvError(ValueError):
    """An environment that cannot be made, or that misbehaved: what, where, and what to do.

    Commands print its message and end with its exit code.
    """

    exit_code = 2


class EnvFault(EnvError):
    """An environment that raised, hung, or returned what no environment may return."""

    exit_code = 70


class NonFiniteError(EnvError):
    """An environment gave NaN or infinity: sub-environment `env`, at its step `step` from 0."""

    exit_code = 70

    def __init__(self, message: str, *, env: int, step: int) -> None:
        super().__init__(message)
        self.env = env
        self.step = step


refuse = partial(refusals.refuse, error=EnvError)  # raises one EnvError that lists all problems


class VectorStep(NamedTuple):
    """One step of all environments, the same in both modes; every field is [envs, ...].

    next_obs: what the action led to, from which a value is bootstrapped; at an end this is the
        final observation, never a reset's.
    reward, terminated, truncated: of this step. Both ends may be set at once.
    valid: false where nothing happened (the reset step of a NEXT_STEP environment).
    obs: what to act on next; after an end, the first observation of the new episode.
    mask: which actions are legal on `obs`, [envs, n] booleans (`envs/spaces.py`); None if the
        environments have no masks.
    episode_return, episode_length: of the running episode, this step included; they are final
        where `ended`, and start again after it.
    """

    next_obs: Any
    reward: Any
    terminated: Any
    truncated: Any
    valid: Any
    obs: Any
    episode_return: Any
    episode_length: Any
    mask: Any = None

    @property
    def ended(self) -> Any:
        """Return where an episode ended with this step."""
        return (self.terminated | self.truncated) & self.valid


_HOMES = {
    "Autoreset": "compiled.autoreset",
    "Block": "hosted.blocks",
    "Box": "spaces",
    "CompiledEnv": "compiled.autoreset",
    "Discrete": "spaces",
    "Episodes": "hosted.blocks",
    "HostedEnvs": "hosted.envs",
    "MultiDiscrete": "spaces",
    "Space": "spaces",
    "autoreset": "compiled.autoreset",
    "compiled_ids": "compiled",
    "is_compiled": "compiled",
    "make_compiled": "compiled",
}
__all__ = sorted((*_HOMES, "EnvError", "EnvFault", "NonFiniteError", "VectorStep"))  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
