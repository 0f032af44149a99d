"""What our buffers replace: a list of transitions, a search per sample, and a proposed table.

`search_per_sample` and `PaddedTable` are written from a description of the code that the founding
note (docs/speed.md) was about, and of what it proposed; no code was copied.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from loopless.bench.contest import Call, Contender
from loopless.reference import replay as reference
from suites.replay import cases
from suites.replay.cases import Arrays, Sampler, sampler

LOOP = "reference: one at a time"
PROPOSED = "proposed: padded table"
SENTINEL = 999_999
MOST_TERMINALS = 100


def _rows(stored: Arrays) -> list[tuple]:
    return list(zip(*stored.values(), strict=True))


def _stacked(rows: list[tuple]) -> Arrays:
    columns = zip(*rows, strict=True)
    return {name: np.stack(values) for name, values in zip(cases.FIELDS, columns, strict=True)}


def _uniform(case: cases.Uniform) -> Sampler:
    rows, source = _rows(case.stored), random.Random(0)

    def draw() -> Arrays:
        return _stacked([rows[source.randrange(case.count)] for _ in range(case.batch)])

    return sampler(draw, dict, case.batches)


def _prioritized(case: cases.Prioritized) -> Sampler:
    """Return a sampler by the loop twins: a sum walked for each draw, updates one by one."""
    rows, source = _rows(case.stored), random.Random(0)
    held = reference.PriorityList(case.count, cases.ALPHA)

    def draw() -> dict[str, Any]:
        total = math.fsum(held.slots)
        targets = [source.random() * total for _ in range(case.batch)]
        slots = reference.draw_by_priority(held.slots, targets)
        powers = [held.slots[slot] for slot in slots]
        weights = reference.importance_weights(powers, total, case.count, cases.BETA)
        batch = _stacked([rows[slot] for slot in slots])
        return batch | {"indices": np.array(slots), "weights": np.array(weights)}

    return case.sampler(draw, lambda i, p: held.update(i.tolist(), p.tolist()), dict)


def gaps_before(horizons: np.ndarray, discount: float, generator: np.random.Generator):
    """Return gaps 1 … n with P(gap) ∝ γ^gap, by inverting the distribution function."""
    u = generator.random(len(horizons))
    k = np.floor(np.log(1 - (1 - discount**horizons) * u) / np.log(discount)).astype(np.int64)
    return 1 + np.minimum(k, horizons - 1)


def search_per_sample(
    obs: np.ndarray,
    terminals: np.ndarray,
    batch: int,
    generator: np.random.Generator,
    discount: float = cases.DISCOUNT,
) -> Arrays:
    """Draw pairs: rows, starts and gaps for the whole batch, but a search for marks per sample.

    This stands for the episodic buffer of the original code, and costs what that cost; terminals
    are integers, as they were there. The original took the second mark ahead of any start. From a
    segment's final observation, that is the next segment's: here such a start is drawn again.
    """
    steps = obs.shape[1]
    rows = generator.integers(len(obs), size=batch)
    starts = generator.integers(steps - 1, size=batch)
    while (final := (starts > 0) & (terminals[rows, [starts, starts - 1]].sum(0) > 1)).any():
        starts[final] = generator.integers(steps - 1, size=final.sum())
    horizons = np.empty(batch, np.int64)
    for i, (row, start) in enumerate(zip(rows, starts, strict=True)):
        (marks,) = (terminals[row, start:] == 1).nonzero()
        if len(marks) > 1:
            horizons[i] = marks[1]
        else:
            horizons[i] = marks[0] if len(marks) else steps - 1 - start
    later = starts + gaps_before(horizons, discount, generator)
    return {"obs": obs[rows, starts], "next_obs": obs[rows, later]}


class PaddedTable:
    """What the founding note proposed: a table [rows, 100] of marks, and all starts at once."""

    def __init__(self, obs: np.ndarray, terminals: np.ndarray, seed: int = 0) -> None:
        self.obs, self.generator = obs, np.random.default_rng(seed)
        self.table = np.full((len(obs), MOST_TERMINALS), SENTINEL)
        for row, marks in enumerate(terminals):
            places = np.flatnonzero(marks)[:MOST_TERMINALS]
            self.table[row, : len(places)] = places

    def sample(self, batch: int, discount: float = cases.DISCOUNT) -> Arrays:
        steps = self.obs.shape[1]
        rows = self.generator.integers(len(self.obs), size=batch)
        starts = self.generator.integers(steps - 1, size=batch)
        positions = self.table[rows]
        ahead = (positions >= starts[:, None]) & (positions < SENTINEL)
        relative = np.where(ahead, positions - starts[:, None], SENTINEL)
        first = relative.min(axis=1)
        second = np.where(relative > first[:, None], relative, SENTINEL).min(axis=1)
        count = ahead.sum(axis=1)
        n = np.where(count > 1, second, np.where(count == 1, first, steps - 1 - starts))
        later = starts + gaps_before(n, discount, self.generator)
        return {"obs": self.obs[rows, starts], "next_obs": self.obs[rows, later]}


def _search(case: cases.Trajectories) -> Sampler:
    terminals, generator = case.terminals.astype(np.int32), np.random.default_rng(0)
    return sampler(partial(search_per_sample, case.obs, terminals, case.batch, generator), dict)


def _loop(prepare: Callable[[Any], Call], note: str, largest: int | None = None) -> Contender:
    return Contender(LOOP, "loopless", "reference", prepare, note=note, largest=largest)


UNIFORM_LOOP = _loop(_uniform, "a list of tuples, stacked", 200_000)
PRIORITIZED_LOOP = _loop(_prioritized, "priorities summed up for each draw", 200_000)
SEARCH = _loop(_search, "a search for the segment's end per sample")
TABLE = Contender(
    PROPOSED, "numpy", "proposal",
    lambda case: sampler(partial(PaddedTable(case.obs, case.terminals).sample, case.batch), dict),
    claim="“50–70 %” of a training step, vectorised away",
    note="starts on a segment's final observation reach into the next one",
)  # fmt: skip
