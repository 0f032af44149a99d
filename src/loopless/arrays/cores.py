"""How many cores this process has. Imports nothing. Tests: `tests/arrays/test_cores.py`."""

import os


def cores() -> int:
    """Those that this process may run on; where the system does not tell, all of them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
