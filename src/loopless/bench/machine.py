"""Prepare this process for measuring, and describe where and with what a result was measured.

`isolate` has to run before any array library is imported.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from loopless.process import cores

THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS",
)  # fmt: skip
RESTARTED = "LOOPLESS_BENCH_RESTARTED"
ONE_THREAD_FLAG = "--xla_cpu_multi_thread_eigen=false"
PACKAGES = (
    "loopless", "numpy", "numba", "torch", "jax", "jaxlib", "torchrl", "tianshou",
    "stable-baselines3", "sbx-rl", "rlax", "rejax", "gymnax", "rlox", "cpprb", "flashbax",
    "equinox", "optax", "gymnasium", "tokenizers",
)  # fmt: skip


def isolate(threads: int) -> None:
    """Pin the process to `threads` cores, and tell every library to use that many threads.

    The libraries read these variables when they are imported, and XLA sizes its pool by the cores
    it sees. So if NumPy is already imported, the process replaces itself with a fresh one.
    """
    for name in THREAD_VARIABLES:
        os.environ[name] = str(threads)
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    flags = os.environ.get("XLA_FLAGS", "")
    if threads == 1 and ONE_THREAD_FLAG not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {ONE_THREAD_FLAG}".strip()
    if hasattr(os, "sched_setaffinity"):
        # Take the highest-numbered cores: interrupts and idle shells tend to use the lowest.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])
    if "numpy" in sys.modules and RESTARTED not in os.environ:
        os.environ[RESTARTED] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def prepare_libraries(threads: int) -> None:
    """Set PyTorch's threads, and switch off JAX's asynchronous dispatch, for all rows alike."""
    with suppress(ImportError):
        import torch

        torch.set_num_threads(threads)
    with suppress(ImportError):
        import jax

        # Every timed call waits for its result: a hop to another thread would only add noise.
        jax.config.update("jax_cpu_enable_async_dispatch", False)


def describe() -> dict[str, Any]:
    """Return processor, cores, threads, versions, commit, date; nothing that names the machine."""
    torch = sys.modules.get("torch")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "cores_used": cores(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "threads": {name: os.environ.get(name) for name in THREAD_VARIABLES}
        | ({"torch": torch.get_num_threads()} if torch else {}),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": dict.fromkeys(PACKAGES)
        | {
            name: package.version
            for package in distributions()
            if (name := package.name.replace("_", "-")) in PACKAGES
        },
    }


def is_busy(machine: dict[str, Any]) -> bool:
    """Return whether the load was over two processes per core, more than a suite itself makes."""
    load, cores = machine.get("load"), machine.get("cores")
    return bool(load and cores and load > 2 * cores)


def _cpu() -> str:
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        if name := re.search(r"^model name\s*: (.*)$", text, re.MULTILINE):
            return name[1].strip()
    return platform.processor() or platform.machine()


def _commit() -> dict[str, Any] | None:
    """Return the commit of the checkout that this file is in; None for an installed copy."""
    try:
        # An installed copy may lie inside somebody's work tree: only a tracked file counts.
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
