"""One state of the caches for every sample: the second level emptied, the third left alone.

That is how a training step finds its rollout: written row by row, many forward passes ago. Timing
on whatever the last contender left behind would favour those who run after a small neighbour, and
timing on warm caches those whose data just fits.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

SECOND_LEVEL = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")
TYPICAL_BYTES = 2 << 20


def second_level_bytes() -> int:
    """The size of one core's second-level cache, or a typical one where the system does not say."""
    try:
        text = SECOND_LEVEL.read_text().strip()
        return int(text.removesuffix("K")) << 10 if text.endswith("K") else int(text)
    except (OSError, ValueError):
        return TYPICAL_BYTES


def cooler() -> Callable[[], None]:
    """A call that streams twice the second level's size through it."""
    import numpy as np

    block = np.zeros(2 * second_level_bytes(), np.uint8)

    def cool() -> None:
        np.add(block, 1, out=block)

    return cool
