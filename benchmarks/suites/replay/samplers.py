"""What contenders of this suite give: draws to be timed, and how to look at them.

Imports the core's `Call`, and NumPy. Tests: through `transitions` and `trajectories`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopless.bench.contest import Call

Arrays = dict[str, np.ndarray]
CHECKED_DRAWS = 40_000
CHECKED_S = 3.0


@dataclass(frozen=True)
class Sampler(Call):
    """`run` is timed. `draw` is that part of it which draws, and what it gives can be read."""

    draw: Callable[[], Any]
    update: Callable[[np.ndarray, np.ndarray], Any] | None = None

    def drawn(self) -> Iterator[Arrays]:
        """Batch after batch until there are enough for a check, or it has taken too long."""
        assert self.read is not None
        rows, end = 0, time.perf_counter() + CHECKED_S
        while rows < CHECKED_DRAWS and (not rows or time.perf_counter() < end):
            batch = self.read(self.draw())
            rows += len(batch["obs"])
            yield batch


def sampler(draw: Callable[[], Any], read: Callable[[Any], Arrays], times: int = 1) -> Sampler:
    """A sampler that draws so often in one timed call."""
    if times == 1:
        return Sampler(draw, read, draw)

    def repeat() -> list[Any]:
        return [draw() for _ in range(times)]

    return Sampler(repeat, lambda outputs: joined(map(read, outputs)), repeat)


def joined(batches: Iterable[Arrays]) -> Arrays:
    batches = list(batches)
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
