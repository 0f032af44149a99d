"""What this process may use: its cores, the threads of XLA, and memory."""

from __future__ import annotations

import os
import sys


def cores() -> int:
    """Return how many cores this process may run on; all, where the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def threads() -> int:
    """Return how many threads share an operation of XLA on the CPU."""
    requested = os.environ.get("PJRT_NPROC", "")
    return int(requested) if requested.isdigit() and int(requested) else cores()


def even_share(agents: int, cores: int) -> int:
    """Return the largest number of cores that can have the same number of agents each."""
    return max(count for count in range(1, min(agents, cores) + 1) if agents % count == 0)


def resident_bytes() -> int:
    """Return the bytes of this process in main memory; its peak, where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return peak_bytes()


def peak_bytes() -> int:
    """Return the most bytes of this process that were ever in main memory."""
    import resource

    # On Linux ru_maxrss starts at the peak of the parent; VmHWM is this process's own.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    own = _linux_bytes("/proc/self/status", "VmHWM")
    return own or (peak if sys.platform == "darwin" else peak * 1024)


def free_memory_bytes() -> int | None:
    """Return the bytes that Linux says a process may still take; None on other systems."""
    return _linux_bytes("/proc/meminfo", "MemAvailable")


def _linux_bytes(file: str, name: str) -> int | None:
    """Read the line "name: … kB" of one of Linux's own accounts, in bytes; None without it."""
    try:
        with open(file, encoding="utf-8") as lines:
            for line in lines:
                if line.startswith(f"{name}:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
