"""What our buffers replace: a list of transitions, a search per sample, and a proposed table.

`search_per_sample` and `PaddedTable` are written from a description of the code that the founding
note (docs/speed.md) was about, and of what it proposed; no code was copied.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from loopless.bench.contest import Call, Contender
from suites.replay.cases import (
    ALPHA,
    BETA,
    DISCOUNT,
    FIELDS,
    STEPS,
    Arrays,
    Prioritized,
    Sampler,
    Trajectories,
    Uniform,
    sampler,
)

LOOP = "reference: one at a time"
PROPOSED = "proposed: padded table"
SENTINEL = 999_999
MOST_TERMINALS = 100


def _rows(stored: Arrays) -> list[tuple]:
    return list(zip(*stored.values(), strict=True))


def _stacked(rows: list[tuple]) -> Arrays:
    columns = zip(*rows, strict=True)
    return {name: np.stack(values) for name, values in zip(FIELDS, columns, strict=True)}


def _uniform(case: Uniform) -> Sampler:
    rows, source = _rows(case.stored), random.Random(0)

    def draw() -> Arrays:
        return _stacked([rows[source.randrange(case.count)] for _ in range(case.batch)])

    return sampler(draw, dict, case.batches)


def _prioritized(case: Prioritized) -> Sampler:
    """Return a sampler by the loop twins: a sum walked for each draw, updates one by one."""
    from loopless.reference import replay as reference

    rows, source = _rows(case.stored), random.Random(0)
    held = reference.PriorityList(case.count, ALPHA)
    held.update(range(case.count), case.priorities.tolist())
    fresh = case.fresh.tolist()

    def draw() -> dict[str, Any]:
        total = math.fsum(held.slots)
        targets = [source.random() * total for _ in range(case.batch)]
        chosen = reference.draw_by_priority(held.slots, targets)
        drawn = [held.slots[slot] for slot in chosen]
        weights = reference.importance_weights(drawn, total, case.count, BETA)
        batch = _stacked([rows[slot] for slot in chosen])
        return batch | {"indices": np.array(chosen), "weights": np.array(weights)}

    return Sampler(
        lambda: held.update(draw()["indices"].tolist(), fresh),
        dict,
        draw,
        lambda indices, priorities: held.update(indices.tolist(), priorities.tolist()),
    )


def search_per_sample(
    obs: np.ndarray, terminals: np.ndarray, batch: int, generator: np.random.Generator
) -> Arrays:
    """Draw pair by pair with NumPy: a row, a start, a search for the marks ahead of it, a gap.

    This is how the original code did it, at about its cost. The original took the second mark ahead
    of any start. From a segment's final observation, that is the next segment's: here such a start
    is drawn again.
    """
    starts, successors = [], []
    while len(starts) < batch:
        row = generator.integers(len(obs))
        start = generator.integers(STEPS - 1)
        marks = terminals[row]
        if start and marks[start] and marks[start - 1]:
            continue
        ahead = np.flatnonzero(marks[start:])
        n = ahead[1] if len(ahead) > 1 else ahead[0] if len(ahead) else STEPS - 1 - start
        u = generator.random()
        k = int(np.log(1 - (1 - DISCOUNT**n) * u) / np.log(DISCOUNT))
        starts.append(obs[row, start])
        successors.append(obs[row, start + 1 + min(k, n - 1)])
    return {"obs": np.stack(starts), "next_obs": np.stack(successors)}


class PaddedTable:
    """What the founding note proposed: a table [rows, 100] of marks, and all starts at once."""

    def __init__(self, obs: np.ndarray, terminals: np.ndarray, seed: int = 0) -> None:
        self.obs, self.generator = obs, np.random.default_rng(seed)
        self.table = np.full((len(obs), MOST_TERMINALS), SENTINEL)
        for row, marks in enumerate(terminals):
            found = np.flatnonzero(marks)[:MOST_TERMINALS]
            self.table[row, : len(found)] = found

    def sample(self, batch: int) -> Arrays:
        rows = self.generator.integers(len(self.obs), size=batch)
        starts = self.generator.integers(STEPS - 1, size=batch)
        positions = self.table[rows]
        ahead = (positions >= starts[:, None]) & (positions < SENTINEL)
        relative = np.where(ahead, positions - starts[:, None], SENTINEL)
        first = relative.min(axis=1)
        second = np.where(relative > first[:, None], relative, SENTINEL).min(axis=1)
        count = ahead.sum(axis=1)
        n = np.where(count > 1, second, np.where(count == 1, first, STEPS - 1 - starts))
        u = self.generator.random(batch)
        k = np.floor(np.log(1 - (1 - DISCOUNT**n) * u) / np.log(DISCOUNT)).astype(np.int64)
        later = starts + 1 + np.minimum(k, n - 1)
        return {"obs": self.obs[rows, starts], "next_obs": self.obs[rows, later]}


def _search(case: Trajectories) -> Sampler:
    obs, terminals, generator = case.obs, case.terminals, np.random.default_rng(0)
    return sampler(lambda: search_per_sample(obs, terminals, case.batch, generator), dict)


def _padded_table(case: Trajectories) -> Sampler:
    table = PaddedTable(case.obs, case.terminals)
    return sampler(lambda: table.sample(case.batch), dict)


def _loop(prepare: Callable[[Any], Call], note: str, largest: int | None = None) -> Contender:
    return Contender(LOOP, "loopless", "reference", prepare, note=note, largest=largest)


UNIFORM_LOOP = _loop(_uniform, "a list of tuples, stacked", 200_000)
PRIORITIZED_LOOP = _loop(_prioritized, "priorities summed up for each draw", 200_000)
SEARCH = _loop(_search, "a search for the segment's end per sample")
TABLE = Contender(
    PROPOSED, "numpy", "proposal", _padded_table,
    claim="“50–70 %” of a training step, vectorised away",
    note="starts on a segment's final observation reach into the next one",
)  # fmt: skip
