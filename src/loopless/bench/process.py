"""Give this process its cores and thread counts, before any array library is imported."""

from __future__ import annotations

import os
import sys

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
RESTARTED = "LOOPLESS_BENCH_RESTARTED"
ONE_THREAD_FLAG = "--xla_cpu_multi_thread_eigen=false"


def isolate(threads: int) -> None:
    """Pin the process to `threads` cores, and tell every library to use as many threads.

    The libraries read these variables when they are imported, and XLA sizes its pool by the cores
    it sees. So if one of them is there already, the process replaces itself by a fresh one.
    """
    for name in THREAD_VARIABLES:
        os.environ[name] = str(threads)
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    flags = os.environ.get("XLA_FLAGS", "")
    if threads == 1 and ONE_THREAD_FLAG not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {ONE_THREAD_FLAG}".strip()
    if hasattr(os, "sched_setaffinity"):
        # The highest numbered: interrupts and idle shells tend to sit on the lowest.
        cores = sorted(os.sched_getaffinity(0))[-threads:]
        os.sched_setaffinity(0, cores)
    if "numpy" in sys.modules and RESTARTED not in os.environ:
        os.environ[RESTARTED] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def cores() -> int | None:
    """How many cores this process may run on, where the system can tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
