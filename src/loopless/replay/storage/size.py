"""How many bytes a buffer takes, and whether they fit: asked before anything is allocated.

Imports `fields` only. Tests: `tests/replay/test_rollout_refusals.py`, through the buffers.
"""

import math
import sys
from collections.abc import Mapping
from typing import Any

from loopless.process import free_memory_bytes as free_memory_bytes
from loopless.replay.fields import Field


def bytes_that_fit(
    where: str,
    extent: str,
    rows: int,
    fields: Mapping[str, Field],
    store,
    advice: str,
    *,
    place: Any = None,
) -> int:
    """The bytes of `rows` rows of all `fields`; an error if there are not as many free.

    `extent` says the rows in the buffer's own terms, "1,000 steps × 8 envs". They go to `place`,
    `store` itself if left out. From a gigabyte up the bytes are said aloud: memory that is only
    taken when it is written to would otherwise be missed hours later.
    """
    parts = {
        name: rows * math.prod(field.shape) * store.dtype(field.dtype).itemsize
        for name, field in fields.items()
    }
    total, free = sum(parts.values()), (place or store).free_bytes()
    if free is not None and total > free:
        largest = max(parts, key=lambda name: parts[name])
        raise ValueError(
            f"{where}: {extent} need {readable_bytes(total)}, of which {largest} "
            f"{fields[largest]} takes {readable_bytes(parts[largest])}; {readable_bytes(free)} is "
            f"free. {advice}"
        )
    if total >= 10**9:
        print(f"{where}: {extent} take {readable_bytes(total)}.", file=sys.stderr)
    return total


def readable_bytes(count: int) -> str:
    """12_345_678 as "12.3 MB"."""
    power = min(4, (len(str(count)) - 1) // 3)
    return f"{count:,} bytes" if power == 0 else f"{count / 1000**power:,.1f} {'_kMGT'[power]}B"
