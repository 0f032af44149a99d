"""Environments: compiled ones for use inside a scan, and every Gymnasium one, hosted."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loopless.envs.blocks import Block, Episodes
    from loopless.envs.compiled import Autoreset, CompiledEnv, autoreset
    from loopless.envs.hosted import HostedEnvs
    from loopless.envs.refusals import EnvError, NonFiniteError
    from loopless.envs.registry import compiled_ids, make_compiled
    from loopless.envs.spaces import Box, Discrete, MultiDiscrete, Space
    from loopless.envs.steps import VectorStep

_HOMES = {
    "Autoreset": "compiled",
    "Block": "blocks",
    "Box": "spaces",
    "CompiledEnv": "compiled",
    "Discrete": "spaces",
    "EnvError": "refusals",
    "Episodes": "blocks",
    "HostedEnvs": "hosted",
    "MultiDiscrete": "spaces",
    "NonFiniteError": "refusals",
    "Space": "spaces",
    "VectorStep": "steps",
    "autoreset": "compiled",
    "compiled_ids": "registry",
    "make_compiled": "registry",
}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str):
    # Hosted mode runs without JAX, and compiled mode without Gymnasium: names load on first use.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
