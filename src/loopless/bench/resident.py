"""How much memory this process holds, and the most it ever held.

Imports the standard library. Tests: `tests/bench/test_bench_resident.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path


def peak_bytes() -> int:
    """The most bytes of this process that were ever in main memory."""
    import resource

    # On Linux ru_maxrss starts at the peak of the parent; VmHWM is this process's own.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return _status_bytes("VmHWM") or (peak if sys.platform == "darwin" else peak * 1024)


def resident_bytes() -> int:
    """Bytes of this process in main memory now; its peak, where the system does not say."""
    return _status_bytes("VmRSS") or peak_bytes()


def _status_bytes(name: str) -> int | None:
    """A line of Linux's own account of this process, in bytes; None on other systems."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    found = (int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
    kilobytes = next(found, None)
    return None if kilobytes is None else kilobytes * 1024
