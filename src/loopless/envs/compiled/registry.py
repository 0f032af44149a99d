"""Which environments exist compiled, by the id that Gymnasium knows them by.

A trainer asks here before it decides on a mode. Asking imports nothing; making imports JAX.
Tests: `tests/envs/test_registry.py`.
"""

from importlib import import_module
from typing import Any

from loopless.envs.grids.names import COMPILED
from loopless.envs.refusals import EnvError
from loopless.refusals import did_you_mean

_HOMES = {
    "Acrobot-v1": ("acrobot", "Acrobot", {}),
    "CartPole-v1": ("cartpole", "CartPole", {}),
    "MountainCarContinuous-v0": ("mountain_car", "MountainCarContinuous", {}),
    "Pendulum-v1": ("pendulum", "Pendulum", {}),
    "loopless/Chain-v0": ("chain", "Chain", {}),
    "loopless/ChainForever-v0": ("chain", "Chain", {"forever": True}),
    "loopless/Masked-v0": ("tables", "Masked", {}),
    "loopless/Memory-v0": ("tables", "Memory", {}),
    "loopless/Pixels-v0": ("pixels", "Pixels", {}),
    **COMPILED,
}


def compiled_ids() -> tuple[str, ...]:
    """The ids that `make_compiled` knows."""
    return tuple(_HOMES)


def make_compiled(env_id: str, **options: Any) -> Any:
    """The compiled environment of that id, with its fields changed by `options`."""
    if env_id not in _HOMES:
        hint = did_you_mean(env_id, _HOMES, most=3)
        raise EnvError(
            f"envs: no compiled environment {env_id!r}.{hint} Compiled are "
            f"{', '.join(_HOMES)}; any other Gymnasium id runs in hosted mode."
        )
    module, name, fixed = _HOMES[env_id]
    make = getattr(import_module(f"loopless.envs.compiled.{module}"), name)
    try:
        return make(**fixed | options)
    except TypeError as error:
        fields = ", ".join(make.__dataclass_fields__)
        raise EnvError(f"envs: {env_id}: {error}. It takes {fields}.") from None
