"""Prepare this process for measuring, and describe where and with what a result was measured.

`isolate` has to run before any array library is imported.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from loopless.process import cores

THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS",
)  # fmt: skip
RESTARTED = "LOOPLESS_BENCH_RESTARTED"
ONE_THREAD_FLAG = "--xla_cpu_multi_thread_eigen=false"
SECOND_LEVEL = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")
TYPICAL_BYTES = 2 << 20
PACKAGES = (
    "loopless", "numpy", "numba", "torch", "jax", "jaxlib", "torchrl", "tianshou",
    "stable-baselines3", "sbx-rl", "rlax", "cpprb", "flashbax", "equinox", "optax", "gymnasium",
    "tokenizers",
)  # fmt: skip


def isolate(threads: int) -> None:
    """Pin the process to `threads` cores, and tell every library to use as many threads.

    The libraries read these variables when they are imported, and XLA sizes its pool by the cores
    it sees. So if NumPy is there already, the process replaces itself by a fresh one.
    """
    for name in THREAD_VARIABLES:
        os.environ[name] = str(threads)
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    flags = os.environ.get("XLA_FLAGS", "")
    if threads == 1 and ONE_THREAD_FLAG not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {ONE_THREAD_FLAG}".strip()
    if hasattr(os, "sched_setaffinity"):
        # The highest numbered: interrupts and idle shells tend to sit on the lowest.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])
    if "numpy" in sys.modules and RESTARTED not in os.environ:
        os.environ[RESTARTED] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def prepare_libraries(threads: int) -> None:
    """Set PyTorch's threads, and switch off JAX's asynchronous dispatch, for all rows alike."""
    try:
        import torch

        torch.set_num_threads(threads)
    except ImportError:
        pass
    try:
        import jax

        # Every row waits for its answer: a hop to another thread would only add noise.
        jax.config.update("jax_cpu_enable_async_dispatch", False)
    except ImportError:
        pass


@contextmanager
def warnings_of_peers_ignored() -> Iterator[None]:
    """Ignore what peers say of their own dependencies when they are imported."""
    with warnings.catch_warnings():
        for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, UserWarning):
            warnings.simplefilter("ignore", category)
        yield


def cache_cooler() -> Callable[[], None]:
    """Return a call that empties the second-level cache, and leaves the third alone.

    That is how a training step finds its rollout: written row by row, many forward passes ago.
    """
    import numpy as np

    block = np.zeros(2 * _second_level_bytes(), np.uint8)

    def cool() -> None:
        np.add(block, 1, out=block)

    return cool


def _second_level_bytes() -> int:
    try:
        text = SECOND_LEVEL.read_text().strip()
        return int(text.removesuffix("K")) << 10 if text.endswith("K") else int(text)
    except (OSError, ValueError):
        return TYPICAL_BYTES


def describe() -> dict[str, Any]:
    """Return processor, cores, threads, versions, commit, date; nothing that names the machine."""
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
    """Return whether others wanted the cores, too, so that times are longer than they need be.

    That is twice as many processes as cores: a suite's own do not come to that.
    """
    load, cores = machine.get("load"), machine.get("cores")
    return bool(load and cores and load > 2 * cores)


def _load() -> float | None:
    """Return how many processes wanted to run, on average over the last minute, where known."""
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
    """Return the commit that this file is run from; None for an installed copy."""
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
