"""Find and load the suites of `loopless bench`, which are not part of the package.

A suite is a file with `run(options, result, say)`, which measures, `TITLES`, the headings of its
sections, and optionally `HEADLINES`, for the top of pages. Ours are in `benchmarks/suites` of the
checkout that holds this package; your own is named by its path.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from loopless.refusals import did_you_mean

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"  # beside `src` in a checkout
RESULTS = BENCHMARKS / "results"
NO_SUITES = (
    "bench: an installed loopless has no suites of its own. Clone its repository and run "
    "`make setup` there, or give the path of a suite of yours: loopless bench path/to/suite.py"
)


@dataclass(frozen=True)
class Options:
    """What the user asked of one run of `loopless bench`."""

    suite: str = "returns"
    quick: bool = False
    json: Path | None = None
    threads: int = 1
    peers: bool = True
    ablate: bool = False
    compare: Path | None = None
    grids: Path | None = None


Say = Callable[[str], None]


class UnknownSuite(ValueError):
    """There is no suite of this name, or none at this path."""


def names(*, needed: bool = False) -> tuple[str, ...]:
    """Return the names of our suites, in order. An installed copy has none: then return ().

    With `needed`, raise UnknownSuite in that case.
    """
    if (BENCHMARKS / "suites" / "__init__.py").is_file():
        _make_importable(BENCHMARKS)
        return import_module("suites").ORDER
    if needed:
        raise UnknownSuite(NO_SUITES)
    return ()


def is_path(suite: str) -> bool:
    """Return whether this is written as a path; a bare word is a name even if it is a folder."""
    return suite.endswith(".py") or os.sep in suite or "/" in suite


def name_of(suite: str) -> str:
    """Return the name for a suite's result; for a path, that of its file or folder."""
    if not is_path(suite):
        return suite
    path = _file(suite)
    return path.parent.name if path.name == "suite.py" else path.stem


def check(suite: str) -> None:
    """Raise UnknownSuite for a name that no suite has, or a path without a suite."""
    if is_path(suite):
        if not _file(suite).is_file():
            raise UnknownSuite(f"bench: there is no suite at {suite}: no such file or suite.py.")
        if _file(suite).suffix != ".py":
            raise UnknownSuite(
                f"bench: {suite} is no suite, which is a Python file or a folder with suite.py. To "
                f"compare results: `loopless bench --compare old.json new.json`."
            )
    elif suite not in (known := names(needed=True)):
        hint = did_you_mean(suite, known, repr, or_list=True)
        raise UnknownSuite(f"bench: unknown suite {suite!r}.{hint}")


def load(suite: str) -> ModuleType:
    """Import a suite by its name or path; ours also have a function `page`, for `pages.py`."""
    check(suite)
    if not is_path(suite):
        return import_module(f"suites.{suite}.suite")
    file = _file(suite)
    _make_importable(file.parent)
    spec = spec_from_file_location(f"suite_{name_of(suite)}", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


def _file(suite: str) -> Path:
    path = Path(suite).resolve()
    return path / "suite.py" if path.is_dir() else path


def _make_importable(folder: Path) -> None:
    """Let this process and its children import the modules in `folder`."""
    text = str(folder)
    if text not in sys.path:
        sys.path.insert(0, text)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if text not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [text, *paths]))
