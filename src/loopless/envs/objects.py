"""Environments, wrappers and networks of the user's own, by name.

The config of a run is text, so it names them: `module:name` is imported, also from the working
directory. What has no such name, a lambda or a class from a notebook, is kept here under
`python:name` for as long as this process lives.
"""

import os
import sys
from importlib import import_module
from typing import Any

from loopless.envs import EnvError

PREFIX = "python:"
_kept: dict[str, Any] = {}


def name_of(thing: Any) -> str:
    """Return the name by which `load` finds `thing` again; text is returned as it is."""
    if isinstance(thing, str):
        return thing
    module, path = getattr(thing, "__module__", None), getattr(thing, "__qualname__", "")
    if module not in (None, "__main__") and sys.modules.get(module) and "<" not in path:
        name = f"{module}:{path}"
        if _attribute(sys.modules[module], path) is thing:
            return name
    label = getattr(thing, "__name__", type(thing).__name__).strip("<>")
    name, number = PREFIX + label, 2
    while _kept.setdefault(name, thing) is not thing:
        name, number = f"{PREFIX}{label}-{number}", number + 1
    return name


def keep(name: str, thing: Any) -> None:
    """Let `python:name` mean `thing` in this process; any other name means what it meant."""
    if name.startswith(PREFIX):
        _kept[name] = thing


def find(name: str) -> Any:
    """Return what `module:name` or `python:name` means; None if it is no name of this kind.

    Raises EnvError if the module cannot be imported, or if an object of another process is meant.
    """
    if name.startswith(PREFIX):
        if name not in _kept:
            raise EnvError(
                f"envs: {name} was an object of another Python process, and is not known in this "
                f"one. Pass it to `loopless.open_run` again, or keep it in a module of its own."
            )
        return _kept[name]
    module, _, path = name.rpartition(":")
    return _attribute(_import(module, name), path) if module else None


def load(name: str, what: str) -> Any:
    """Return what `name` means; EnvError if there is no such thing. `what` it should be."""
    if name.startswith(PREFIX) or ":" in name:
        thing = find(name)
        if callable(thing):
            return thing
    raise EnvError(f"envs: {what} must be module:name of something callable; received {name!r}.")


def _import(module: str, name: str) -> Any:
    # The command's own folder is on the path, but the folder that it was called in is not.
    folder = os.getcwd()
    if folder not in sys.path and "" not in sys.path:
        sys.path.append(folder)
    try:
        return import_module(module)
    except ImportError as error:
        raise EnvError(f"envs: {name}: importing {module} failed: {error}.") from error


def _attribute(thing: Any, path: str) -> Any:
    for part in path.split("."):
        thing = getattr(thing, part, None)
    return thing
