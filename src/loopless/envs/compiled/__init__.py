"""Environments as pure JAX functions, by the id that Gymnasium knows them by.

A trainer asks here before it decides on a mode. Asking imports nothing; making imports JAX.
`autoreset.py` runs many of them side by side inside a scan.
"""

from importlib import import_module
from typing import Any

from loopless.envs import EnvError, objects
from loopless.envs.grids import ENV_FIELDS
from loopless.refusals import did_you_mean

_HOMES = {  # module, class, and the fields that differ from its defaults
    "Acrobot-v1": ("classic", "Acrobot", {}),
    "CartPole-v1": ("classic", "CartPole", {}),
    "MountainCarContinuous-v0": ("classic", "MountainCarContinuous", {}),
    "Pendulum-v1": ("classic", "Pendulum", {}),
    "loopless/Chain-v0": ("tables", "Chain", {}),
    "loopless/ChainForever-v0": ("tables", "Chain", {"forever": True}),
    "loopless/Masked-v0": ("tables", "Masked", {}),
    "loopless/Memory-v0": ("tables", "Memory", {}),
    "loopless/Pixels-v0": ("tables", "Pixels", {}),
    **{env_id: ("tables", "Grid", fields) for env_id, fields in ENV_FIELDS.items()},
}


GYMNAX = "gymnax:"
PARTS = ("obs_shape", "obs_dtype", "reset", "step")  # by which a compiled environment is known


def is_compiled(env_id: str) -> bool:
    """Return whether `make_compiled` makes this environment; a name "module:Name" is imported."""
    return env_id in _HOMES or is_own_compiled(env_id)


def is_own_compiled(env_id: str) -> bool:
    """Return whether this is a compiled environment of gymnax, or of the user's own."""
    if env_id.startswith(GYMNAX):
        return True
    module, _, name = env_id.rpartition(":")
    if not module or name.startswith("loopless/"):
        return False
    return all(hasattr(objects.find(env_id), part) for part in PARTS)


def compiled_ids() -> tuple[str, ...]:
    """Return the ids that `make_compiled` knows."""
    return tuple(_HOMES)


def make_compiled(env_id: str, **options: Any) -> Any:
    """Return the compiled environment of that id, with its fields changed by `options`.

    Beside ours, these are `gymnax:Id`, and `module:Name` of a class with the methods of
    `autoreset.CompiledEnv`, or of an object of such a class.
    """
    if env_id.startswith(GYMNAX):
        from loopless.envs.compiled.gymnax import make_gymnax

        return make_gymnax(env_id.removeprefix(GYMNAX), **options)
    if is_own_compiled(env_id):
        env = objects.find(env_id)
        try:
            return env(**options) if isinstance(env, type) or options else env
        except TypeError as error:
            raise EnvError(f"envs: {env_id}: {error}.") from None
    if env_id not in _HOMES:
        hint = did_you_mean(env_id, _HOMES, most=3)
        raise EnvError(
            f"envs: no compiled environment {env_id!r}.{hint} Compiled are "
            f"{', '.join(_HOMES)}; any other Gymnasium id runs in hosted mode."
        )
    module, name, fixed = _HOMES[env_id]
    make = getattr(import_module(f"{__name__}.{module}"), name)
    try:
        return make(**fixed | options)
    except TypeError as error:
        fields = ", ".join(make.__dataclass_fields__)
        raise EnvError(f"envs: {env_id}: {error}. It takes {fields}.") from None
