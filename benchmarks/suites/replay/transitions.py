"""Transitions as CartPole gives them, and the cases made of them: drawn evenly, by priority, added.

Each transition carries its own number as the first component of obs, so that whatever a contender
returns can be looked up, also where it reports no indices. Imports NumPy and this suite's `laws`
and `samplers`. Tests: `tests/suites/replay/test_bench_transitions.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from loopless.bench.contest import Contender, Verdict
from loopless.verify.samplers.laws import misfit
from suites.replay.samplers import Arrays, Sampler, joined

FIELDS = {
    "obs": ((4,), np.float32),
    "action": ((), np.int64),
    "reward": ((), np.float32),
    "next_obs": ((4,), np.float32),
    "terminated": ((), np.bool_),
}
ALPHA, BETA = 0.6, 0.4
CELLS = 64
WEIGHT_TOLERANCE = 1e-3


@lru_cache(maxsize=3)
def transitions(count: int, first: int = 0) -> Arrays:
    """`count` steps of episodes that end once in a hundred, numbered from `first`."""
    generator = np.random.default_rng(first)
    obs = generator.standard_normal((count, 4), dtype=np.float32)
    obs[:, 0] = np.arange(first, first + count)
    terminated = generator.random(count) < 0.01
    terminated[-1] = True
    following = np.roll(obs, -1, axis=0)
    final = generator.standard_normal((count, 4), dtype=np.float32)
    return {
        "obs": obs,
        "action": generator.integers(0, 2, count),
        "reward": generator.standard_normal(count, dtype=np.float32),
        "next_obs": np.where(terminated[:, None], final, following),
        "terminated": terminated,
    }


def numbered(
    drawn: Arrays, stored: Arrays, first: int = 0, held: np.ndarray | None = None
) -> tuple[np.ndarray, str]:
    """Which stored transition each row is, and what is wrong with the rows; "" if nothing.

    `held` says which transition each slot holds, if not that of its own number.
    """
    claimed = drawn["obs"][:, 0] - first
    known = (claimed >= 0) & (claimed < len(stored["obs"])) & (claimed == np.floor(claimed))
    if not known.all():
        return np.zeros(0, np.int64), f"{(~known).sum()} of {len(known)} rows were never stored"
    numbers = claimed.astype(np.int64)
    for name, values in stored.items():
        wrong = drawn[name] != values[numbers]
        wrong = wrong.any(axis=1) if wrong.ndim > 1 else wrong
        if wrong.any():
            return numbers, f"{name} of {wrong.sum()} of {len(wrong)} rows is another row's"
    if "indices" in drawn:
        slots = drawn["indices"]
        outside = (slots < 0) | (slots >= len(stored["obs"]))
        if outside.any():
            return numbers, f"{outside.sum()} of {len(outside)} indices are of slots never filled"
        wrong = (slots if held is None else held[slots]) != numbers
        if wrong.any():
            return numbers, f"{wrong.sum()} of {len(wrong)} indices are not those of their rows"
    return numbers, ""


def spread(numbers: np.ndarray, probabilities: np.ndarray) -> str:
    """Whether numbers are drawn by their probabilities: in stretches, and over the last digits."""
    count = len(probabilities)
    everyone = np.arange(count)
    stretches, digits = everyone * CELLS // count, everyone % CELLS
    for cells in (stretches, digits):
        if problem := misfit(cells[numbers], np.bincount(cells, probabilities)):
            return problem
    return ""


def even_draws(call: Sampler, stored: Arrays, held: np.ndarray) -> str:
    """Whether every slot is drawn alike, given which transition each of them holds."""
    numbers, problem = numbered(joined(call.drawn()), stored, held=held)
    return problem or spread(numbers, np.bincount(held, minlength=len(held)) / len(held))


@dataclass(frozen=True)
class Uniform:
    """A full buffer of `count` transitions; draw `batch` of them, `batches` times."""

    count: int
    batch: int
    batches: int = 1

    @property
    def label(self) -> str:
        times = f"{self.batches} × " if self.batches > 1 else ""
        return f"uniform, {times}{self.batch} of {short(self.count)}"

    @property
    def size(self) -> int:
        return self.count

    @property
    def stored(self) -> Arrays:
        return transitions(self.count)

    def check(self, contender: Contender, call: Sampler, output: Any) -> Verdict:
        return Verdict(even_draws(call, self.stored, np.arange(self.count)))


@dataclass(frozen=True)
class Prioritized:
    """A full buffer of `count` transitions; draw `batch` with weights, then give new priorities."""

    count: int
    batch: int

    @property
    def label(self) -> str:
        return f"prioritized, {self.batch} of {short(self.count)}"

    @property
    def size(self) -> int:
        return self.count

    @property
    def stored(self) -> Arrays:
        return transitions(self.count)

    @cached_property
    def priorities(self) -> np.ndarray:
        """One for each transition, float32, from 0.1 to 10."""
        drawn = np.random.default_rng(1).lognormal(size=self.count)
        return np.clip(drawn, 0.1, 10).astype(np.float32)

    @cached_property
    def fresh(self) -> np.ndarray:
        """What a batch is given after each draw."""
        return np.random.default_rng(2).permutation(self.priorities)[: self.batch]

    def check(self, contender: Contender, call: Sampler, output: Any) -> Verdict:
        """All priorities are given by one update; draws and weights then have to follow them."""
        assert call.update is not None
        call.update(np.arange(self.count), self.priorities)
        powers = self.priorities.astype(np.float64) ** ALPHA
        batches = list(call.drawn())
        numbers, problem = numbered(joined(batches), self.stored)
        return Verdict(
            problem
            or spread(numbers, powers / powers.sum())
            or self._by_rank(numbers, powers)
            or self._weights(batches[0], powers)
        )

    def _by_rank(self, numbers: np.ndarray, powers: np.ndarray) -> str:
        """The law again, over cells of like priority, which α shapes most."""
        ranks = np.empty(self.count, np.int64)
        ranks[np.argsort(powers)] = np.arange(self.count) * CELLS // self.count
        return misfit(ranks[numbers], np.bincount(ranks, powers / powers.sum()))

    def _weights(self, drawn: Arrays, powers: np.ndarray) -> str:
        """w ∝ P^−β; what the largest is depends on whether the batch's or the buffer's counts."""
        flat = drawn["weights"] * powers[drawn["obs"][:, 0].astype(np.int64)] ** BETA
        error = float(flat.max() / flat.min() - 1)
        return "" if error <= WEIGHT_TOLERANCE else f"weights are off by up to {error:.2g}"


@dataclass(frozen=True)
class Adding:
    """A full buffer that a step of `envs` environments is added to."""

    count: int
    envs: int

    @property
    def label(self) -> str:
        return f"add a step of {self.envs} envs"

    @property
    def size(self) -> int:
        return self.count

    @property
    def stored(self) -> Arrays:
        return transitions(self.count)

    @property
    def step(self) -> Arrays:
        return transitions(self.envs, self.count)

    def steps(self) -> list[Arrays]:
        """What the buffer is filled with, a step at a time."""
        cuts = range(0, self.count, self.envs)
        return [{k: v[t : t + self.envs] for k, v in self.stored.items()} for t in cuts]

    def check(self, contender: Contender, call: Any, output: Any) -> Verdict:
        """Read back whole, the buffer holds the step once and else only what was there before."""
        held = call.read(output)
        new = held["obs"][:, 0] >= self.count
        if new.sum() != self.envs or len(new) != self.count:
            return Verdict(f"{new.sum()} of {len(new):,} rows are the step's {self.envs}")
        numbers, problem = numbered({k: v[new] for k, v in held.items()}, self.step, self.count)
        if not problem and len(np.unique(numbers)) != self.envs:
            problem = "rows of the step are missing"
        return Verdict(problem or numbered({k: v[~new] for k, v in held.items()}, self.stored)[1])


def short(count: int) -> str:
    return f"{count // 1_000_000}M" if count >= 1_000_000 else f"{count // 1000}k"
