"""Where and with what a result was measured."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from loopless.bench.process import THREAD_VARIABLES, cores

PACKAGES = (
    "loopless",
    "numpy",
    "numba",
    "torch",
    "jax",
    "jaxlib",
    "torchrl",
    "tianshou",
    "stable-baselines3",
    "sbx-rl",
    "rlax",
    "cpprb",
    "flashbax",
    "equinox",
    "optax",
    "gymnasium",
    "tokenizers",
)


def describe() -> dict[str, Any]:
    """Processor, cores and threads, versions, commit, date. Nothing that names the machine."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "cores_used": cores(),
        "load": _load(),
        "threads": _threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def is_busy(machine: dict[str, Any]) -> bool:
    """Whether others wanted the cores, too: then times are longer than they need be.

    Twice as many processes as cores: a suite's own do not come to that.
    """
    load, cores = machine.get("load"), machine.get("cores")
    return bool(load and cores and load > 2 * cores)


def _load() -> float | None:
    """Processes that ran or wanted to, on average over the last minute; where it is known."""
    try:
        return round(os.getloadavg()[0], 2)
    except (OSError, AttributeError):
        return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _threads() -> dict[str, Any]:
    threads: dict[str, Any] = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    if torch := sys.modules.get("torch"):
        threads["torch"] = torch.get_num_threads()
    return threads


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _commit() -> dict[str, Any] | None:
    """The commit this file is run from; None for an installed copy."""
    try:
        # An installed copy may lie inside somebody's work tree: only a tracked one counts.
        _git("ls-files", "--error-unmatch", "__init__.py")
        return {"id": _git("rev-parse", "HEAD"), "dirty": bool(_git("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*arguments: str) -> str:
    package = Path(__file__).parents[1]
    done = subprocess.run(
        ["git", *arguments], cwd=package, check=True, capture_output=True, text=True, timeout=20
    )
    return done.stdout.strip()
