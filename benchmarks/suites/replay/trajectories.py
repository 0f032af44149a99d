"""Rows of several segments each, and the case drawn from them: pairs at a truncated-geometric gap.

A segment's last two steps are marked, the acting state and the final observation. Each observation
carries its own number, so that a pair tells where both of its halves lie. The law to be met comes
from the loop twin, `reference.episodic`. Imports NumPy and this suite's `laws` and `samplers`.
Tests: `tests/suites/replay/test_bench_trajectories.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from loopless.bench.contest import Contender, Verdict
from loopless.reference import episodic as reference
from loopless.verify.samplers.laws import misfit
from suites.replay.samplers import Arrays, Sampler, joined
from suites.replay.transitions import short

DISCOUNT = 0.9
STEPS = 1001
SEGMENT = 77  # thirteen segments fill a row: no partial one at its end


@dataclass(frozen=True)
class Trajectories:
    """`rows` of 1001 steps; draw `batch` pairs, row and start evenly: law "episode"."""

    rows: int
    batch: int

    @property
    def label(self) -> str:
        return f"episodic, {self.batch} of {short(self.rows * STEPS)}"

    @property
    def size(self) -> int:
        return self.rows * STEPS

    @cached_property
    def obs(self) -> np.ndarray:
        """[rows, steps, 2], float32: the number of the step, and its place in the row."""
        numbers = np.arange(self.size).reshape(self.rows, STEPS)
        return np.stack([numbers, numbers % STEPS], axis=-1).astype(np.float32)

    @cached_property
    def terminals(self) -> np.ndarray:
        """[rows, steps], boolean."""
        place = np.arange(STEPS) % SEGMENT
        return np.tile(place >= SEGMENT - 2, (self.rows, 1))

    def check(self, contender: Contender, call: Sampler, output: Any) -> Verdict:
        return Verdict(self.problem(joined(call.drawn())))

    def problem(self, drawn: Arrays) -> str:
        """What is wrong with pairs; "" if nothing."""
        first, later = drawn["obs"][:, 0], drawn["next_obs"][:, 0]
        known = (first >= 0) & (later < self.size) & (first % 1 == 0) & (later % 1 == 0)
        if not known.all():
            return f"{(~known).sum()} of {len(known)} pairs were never stored"
        starts, ends = first.astype(np.int64), later.astype(np.int64)
        flat = self.obs.reshape(-1, 2)
        if (drawn["obs"] != flat[starts]).any() or (drawn["next_obs"] != flat[ends]).any():
            return "observations are mixed up"
        gaps = ends - starts
        if "gap" in drawn and (drawn["gap"] != gaps).any():
            return "gaps are not those of the pairs"
        if "indices" in drawn and (drawn["indices"] != starts).any():
            return "indices are not those of the starts"
        places = starts % STEPS
        crossing = (gaps < 1) | (gaps > self._horizons[places])
        if crossing.any():
            return f"{crossing.mean():.1%} of pairs cross the end of a segment"
        return (
            misfit(starts // STEPS, np.full(self.rows, 1 / self.rows))
            or misfit(places, (self._horizons > 0) / (self._horizons > 0).sum())
            or misfit(self._horizons[places] * STEPS + gaps, self._law.reshape(-1))
            or misfit(gaps, self._law.sum(axis=0))
        )

    @cached_property
    def _horizons(self) -> np.ndarray:
        """n of each place in a row; rows are alike."""
        return np.array(reference.horizons(self.terminals[0], "double"))

    @cached_property
    def _law(self) -> np.ndarray:
        """[n, gap]: P of a pair with that horizon and that gap."""
        law = np.zeros((SEGMENT, STEPS))
        pairs = reference.pair_probabilities([self._horizons.tolist()], DISCOUNT)
        for (_, place, gap), probability in pairs.items():
            law[self._horizons[place], gap] += probability
        return law


@dataclass(frozen=True)
class Ingest(Trajectories):
    """The same rows, put into a new buffer; pairs drawn from it are what is checked."""

    @property
    def label(self) -> str:
        return f"ingest {short(self.size)} steps"
