"""With what a run was made: versions, commit, command line. Nothing is imported to find out.

Imports the standard library only. Tests: `tests/runs/test_folder.py`.
"""

import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("loopless", "numpy", "jax", "jaxlib", "equinox", "optax", "gymnasium")


def describe() -> dict[str, Any]:
    """What goes into `run.json` beside the trainer's name."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": ["loopless", *sys.argv[1:]],
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "commit": _commit(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit this file is run from, with "+" if the tree was changed since; None if unknown."""
    try:
        # An installed copy may lie inside somebody's work tree: only a tracked one counts.
        _git("ls-files", "--error-unmatch", "origin.py")
        return _git("rev-parse", "HEAD") + ("+" if _git("status", "--porcelain") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*arguments: str) -> str:
    folder = Path(__file__).parent
    done = subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True, timeout=20
    )
    return done.stdout.strip()
