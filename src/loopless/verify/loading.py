"""Find the function that `loopless verify` was pointed at: `package.module:name`, `file.py:name`.

Imports the standard library, and what the user names. Tests:
`tests/verify/test_verify_command.py`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from loopless.refusals import did_you_mean
from loopless.verify.calling import TimeUp, limited
from loopless.verify.plans import UsageError

IMPORT_S = 120.0


def load(target: str) -> Callable:
    """The function that `target` names. Raises UsageError with what to say instead."""
    home, colon, name = target.rpartition(":")
    if not (home and colon and name):
        raise UsageError(
            f"{target!r} names no function. Write MODULE:FUNCTION or FILE.py:FUNCTION."
        )
    try:
        with limited(IMPORT_S):
            module = _from_file(Path(home)) if home.endswith(".py") else _from_name(home)
    except UsageError:
        raise
    except TimeUp:
        raise UsageError(f"importing {home} took longer than {IMPORT_S:g} s.") from None
    except (Exception, SystemExit) as problem:  # whatever a stranger's module does
        raise UsageError(f"importing {home} raised {type(problem).__name__}: {problem}") from None
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            hint = did_you_mean(part, [name for name in dir(found) if name[:2] != "__"], repr)
            raise UsageError(f"{home} has no {part!r}.{hint}")
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"{target} is a {type(found).__name__}, and cannot be called.")
    return found


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"there is no file {path}.")
    sys.path.insert(0, str(path.resolve().parent))  # for what it imports from beside it
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} cannot be imported.")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module


def _from_name(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name and (name == problem.name or name.startswith(f"{problem.name}.")):
            raise UsageError(
                f"there is no module {problem.name!r} here. Run it from the folder that holds it, "
                "or name the file: FILE.py:FUNCTION."
            ) from None
        raise
