"""How many cores this process has, and how many of them work together.

Imports the standard library. Tests: `tests/arrays/test_cores.py`.
"""

import os


def cores() -> int:
    """Those that this process may run on; where the system does not tell, all of them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def threads() -> int:
    """Those that share an operation of XLA's, on the CPU."""
    told = os.environ.get("PJRT_NPROC", "")
    return int(told) if told.isdigit() and int(told) else cores()


def even_share(agents: int, cores: int) -> int:
    """The most cores that can have the same number of agents each."""
    return max(count for count in range(1, min(agents, cores) + 1) if agents % count == 0)
