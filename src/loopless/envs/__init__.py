"""Environments: compiled ones for use inside a scan, and every Gymnasium one, hosted.

Hosted mode runs without JAX, and compiled mode without Gymnasium, so names load on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loopless.envs.compiled import compiled_ids, make_compiled
    from loopless.envs.compiled.autoreset import Autoreset, CompiledEnv, autoreset
    from loopless.envs.hosted.blocks import Block, Episodes
    from loopless.envs.hosted.envs import HostedEnvs
    from loopless.envs.refusals import EnvError, NonFiniteError
    from loopless.envs.spaces import Box, Discrete, MultiDiscrete, Space, VectorStep

_HOMES = {
    "Autoreset": "compiled.autoreset",
    "Block": "hosted.blocks",
    "Box": "spaces",
    "CompiledEnv": "compiled.autoreset",
    "Discrete": "spaces",
    "EnvError": "refusals",
    "Episodes": "hosted.blocks",
    "HostedEnvs": "hosted.envs",
    "MultiDiscrete": "spaces",
    "NonFiniteError": "refusals",
    "Space": "spaces",
    "VectorStep": "spaces",
    "autoreset": "compiled.autoreset",
    "compiled_ids": "compiled",
    "make_compiled": "compiled",
}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
