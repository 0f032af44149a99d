"""What this process may use: its cores, the threads of XLA, and memory."""

from __future__ import annotations

import os
import sys


def cores() -> int:
    """Return how many cores this process may use: all of them if the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def threads() -> int:
    """Return how many threads XLA uses on the CPU: PJRT_NPROC if it is set, else one a core."""
    requested = os.environ.get("PJRT_NPROC", "")
    return int(requested) if requested.isdigit() and int(requested) else cores()


def even_share(agents: int, cores: int) -> int:
    """Return the most cores, up to `cores`, over which `agents` can be spread evenly."""
    return max(count for count in range(1, min(agents, cores) + 1) if agents % count == 0)


def resident_bytes() -> int:
    """Return the bytes of main memory that this process uses; their peak if there is no /proc."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return peak_bytes()


def peak_bytes() -> int:
    """Return the most bytes of main memory that this process has used at any time."""
    import resource

    # On Linux ru_maxrss starts at the peak of the parent; VmHWM is this process's own.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    own = _linux_bytes("/proc/self/status", "VmHWM")
    return own or (peak if sys.platform == "darwin" else peak * 1024)


def free_memory_bytes() -> int | None:
    """Return the bytes that Linux says a process may still take; None on other systems."""
    return _linux_bytes("/proc/meminfo", "MemAvailable")


def _linux_bytes(file: str, name: str) -> int | None:
    """Return, in bytes, what the line "name: … kB" of a file in /proc says; None without it."""
    try:
        with open(file, encoding="utf-8") as lines:
            for line in lines:
                if line.startswith(f"{name}:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
