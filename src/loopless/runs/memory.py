"""How much memory this process holds. Imports nothing. Tests: `tests/runs/test_progress.py`."""

from __future__ import annotations

import os
import sys


def resident_bytes() -> int:
    """Bytes in main memory now; where the system does not tell, the most there ever were."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
