"""The cases of this suite: what is drawn, and a check that the draws are right.

Observations hold the number of their transition or step, so that whatever a contender returns can
be looked up, also where it reports no indices. Then the draws have to follow their law by χ²
(`loopless.verify.samplers.laws`): uniform draws, draws by priority, pairs of one segment at a
truncated-geometric gap; on the host, and inside a compiled scan.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Any

import numpy as np

from loopless.bench.contest import Call, Contender, Verdict
from loopless.reference import episodic as reference
from loopless.verify.samplers.laws import misfit

Arrays = dict[str, np.ndarray]
CHECKED_DRAWS = 40_000
CHECKED_S = 3.0
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


@dataclass(frozen=True)
class Sampler(Call):
    """`run` is timed. `draw` is the part of it that draws; `read` takes its output."""

    draw: Callable[[], Any]
    update: Callable[[np.ndarray, np.ndarray], Any] | None = None

    def drawn(self) -> Iterator[Arrays]:
        """Yield batch after batch until there are enough for a check, or time is up."""
        assert self.read is not None
        rows, end = 0, time.perf_counter() + CHECKED_S
        while rows < CHECKED_DRAWS and (not rows or time.perf_counter() < end):
            batch = self.read(self.draw())
            rows += len(batch["obs"])
            yield batch


def sampler(draw: Callable[[], Any], read: Callable[[Any], Arrays], times: int = 1) -> Sampler:
    """Return a sampler that draws `times` batches in one timed call."""
    if times == 1:
        return Sampler(draw, read, draw)

    def repeat() -> list[Any]:
        return [draw() for _ in range(times)]

    return Sampler(repeat, lambda outputs: joined(map(read, outputs)), repeat)


def joined(batches: Iterable[Arrays]) -> Arrays:
    batches = list(batches)
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


@lru_cache(maxsize=3)
def transitions(count: int, first: int = 0) -> Arrays:
    """Return `count` transitions, numbered from `first`; one in a hundred terminates."""
    generator = np.random.default_rng(first)
    obs = generator.standard_normal((count, 4), dtype=np.float32)
    obs[:, 0] = np.arange(first, first + count)
    terminated = generator.random(count) < 0.01
    terminated[-1] = True
    final = generator.standard_normal((count, 4), dtype=np.float32)
    return {
        "obs": obs,
        "action": generator.integers(0, 2, count),
        "reward": generator.standard_normal(count, dtype=np.float32),
        "next_obs": np.where(terminated[:, None], final, np.roll(obs, -1, axis=0)),
        "terminated": terminated,
    }


def numbered(
    drawn: Arrays, stored: Arrays, first: int = 0, held: np.ndarray | None = None
) -> tuple[np.ndarray, str]:
    """Return the number of each drawn transition, and what is wrong with the draws; "" if nothing.

    `held` says which transition each slot holds, if that is not the one of the slot's number.
    """
    claimed = drawn["obs"][:, 0] - first
    known = (claimed >= 0) & (claimed < len(stored["obs"])) & (claimed == np.floor(claimed))
    if not known.all():
        return np.zeros(0, np.int64), f"{(~known).sum()} of {len(known)} rows were never stored"
    numbers = claimed.astype(np.int64)
    for name, values in stored.items():
        differs = (drawn[name] != values[numbers]).reshape(len(numbers), -1).any(axis=1)
        if differs.any():
            return numbers, f"{name} of {differs.sum()} of {len(differs)} rows is another row's"
    if "indices" in drawn:
        slots = drawn["indices"]
        outside = (slots < 0) | (slots >= len(stored["obs"]))
        if outside.any():
            return numbers, f"{outside.sum()} of {len(outside)} indices are of slots never filled"
        differs = (slots if held is None else held[slots]) != numbers
        if differs.any():
            return numbers, f"{differs.sum()} of {len(differs)} indices are not those of their rows"
    return numbers, ""


def spread(numbers: np.ndarray, probabilities: np.ndarray) -> str:
    """Return how draws differ from their law, in stretches and by remainder; "" if not."""
    everyone = np.arange(len(probabilities))
    stretches, digits = everyone * CELLS // len(everyone), everyone % CELLS
    problems = (misfit(x[numbers], np.bincount(x, probabilities)) for x in (stretches, digits))
    return next(filter(None, problems), "")


def even_draws(call: Sampler, stored: Arrays, held: np.ndarray) -> str:
    """Return how draws of slots that hold `held` differ from uniform ones; "" if not."""
    numbers, problem = numbered(joined(call.drawn()), stored, held=held)
    return problem or spread(numbers, np.bincount(held, minlength=len(held)) / len(held))


def short(count: int) -> str:
    return f"{count // 1_000_000}M" if count >= 1_000_000 else f"{count // 1000}k"


@dataclass(frozen=True)
class Full:
    """A full buffer of `count` transitions."""

    count: int

    @property
    def size(self) -> int:
        return self.count

    @property
    def stored(self) -> Arrays:
        return transitions(self.count)


@dataclass(frozen=True)
class Uniform(Full):
    """Draw `batch` transitions, `batches` times."""

    batch: int
    batches: int = 1

    @property
    def label(self) -> str:
        times = f"{self.batches} × " if self.batches > 1 else ""
        return f"uniform, {times}{self.batch} of {short(self.count)}"

    def check(self, contender: Contender, call: Sampler, output: Any) -> Verdict:
        return Verdict(even_draws(call, self.stored, np.arange(self.count)))


@dataclass(frozen=True)
class Prioritized(Full):
    """Draw `batch` transitions with weights, then give them new priorities."""

    batch: int

    @property
    def label(self) -> str:
        return f"prioritized, {self.batch} of {short(self.count)}"

    @cached_property
    def priorities(self) -> np.ndarray:
        """Return a priority for each transition, float32, from 0.1 to 10."""
        drawn = np.random.default_rng(1).lognormal(size=self.count)
        return np.clip(drawn, 0.1, 10).astype(np.float32)

    @cached_property
    def fresh(self) -> np.ndarray:
        """Return the priorities that a batch gets after each draw."""
        return np.random.default_rng(2).permutation(self.priorities)[: self.batch]

    def sampler(
        self,
        draw: Callable[[], Any],
        update: Callable[[Any, Any], Any],
        read: Callable[[Any], Arrays],
        indices: Callable[[Any], Any] = itemgetter("indices"),
    ) -> Sampler:
        """Return a sampler whose timed call draws, and updates the priorities of what it drew."""
        update(np.arange(self.count), self.priorities)
        fresh = self.fresh
        return Sampler(lambda: update(indices(draw()), fresh), read, draw, update)

    def check(self, contender: Contender, call: Sampler, output: Any) -> Verdict:
        """Set all priorities by one update; draws and weights then have to follow them."""
        assert call.update is not None
        call.update(np.arange(self.count), self.priorities)
        powers = self.priorities.astype(np.float64) ** ALPHA
        batches, law = list(call.drawn()), powers / powers.sum()
        numbers, problem = numbered(joined(batches), self.stored)
        # Cells of similar priority, in which a wrong α shows most.
        ranks = np.empty(self.count, np.int64)
        ranks[np.argsort(powers)] = np.arange(self.count) * CELLS // self.count
        problem = problem or spread(numbers, law) or misfit(ranks[numbers], np.bincount(ranks, law))
        if problem:
            return Verdict(problem)
        # w ∝ P^−β, divided by the largest of the batch or of the buffer.
        flat = batches[0]["weights"] * powers[numbers[: len(batches[0]["obs"])]] ** BETA
        error = float(flat.max() / flat.min() - 1)
        right = error <= WEIGHT_TOLERANCE
        return Verdict("" if right else f"weights are off by up to {error:.2g}")


@dataclass(frozen=True)
class Adding(Full):
    """Add one step of `envs` environments."""

    envs: int

    @property
    def label(self) -> str:
        return f"add a step of {self.envs} envs"

    @property
    def step(self) -> Arrays:
        return transitions(self.envs, self.count)

    def steps(self) -> list[Arrays]:
        """Return what the buffer is filled with, step by step."""
        cuts = range(0, self.count, self.envs)
        return [{k: v[t : t + self.envs] for k, v in self.stored.items()} for t in cuts]

    def check(self, contender: Contender, call: Any, output: Any) -> Verdict:
        """Check that the buffer holds the new step once, and otherwise only what was stored."""
        held = call.read(output)
        new = held["obs"][:, 0] >= self.count
        if new.sum() != self.envs or len(new) != self.count:
            return Verdict(f"{new.sum()} of {len(new):,} rows are the step's {self.envs}")
        numbers, problem = numbered({k: v[new] for k, v in held.items()}, self.step, self.count)
        if not problem and len(np.unique(numbers)) != self.envs:
            problem = "rows of the step are missing"
        return Verdict(problem or numbered({k: v[~new] for k, v in held.items()}, self.stored)[1])


DISCOUNT = 0.9
STEPS = 1001
SEGMENT = 77  # thirteen segments fill a row: no partial one at its end


@dataclass(frozen=True)
class Trajectories:
    """`rows` rows of 1001 steps; draw `batch` pairs, with row and start uniform: law "episode"."""

    rows: int
    batch: int

    @property
    def label(self) -> str:
        return f"episodic, {self.batch} of {short(self.size)}"

    @property
    def size(self) -> int:
        return self.rows * STEPS

    @cached_property
    def obs(self) -> np.ndarray:
        """Return the number of each step and its place in the row, [rows, steps, 2], float32."""
        numbers = np.arange(self.size).reshape(self.rows, STEPS)
        return np.stack([numbers, numbers % STEPS], axis=-1).astype(np.float32)

    @cached_property
    def terminals(self) -> np.ndarray:
        """Return the marks of segment ends, [rows, steps], boolean; ends are marked twice."""
        place = np.arange(STEPS) % SEGMENT
        return np.tile(place >= SEGMENT - 2, (self.rows, 1))

    def check(self, contender: Contender, call: Sampler, output: Any) -> Verdict:
        return Verdict(self.problem(joined(call.drawn())))

    def problem(self, drawn: Arrays) -> str:
        """Return what is wrong with pairs; "" if nothing."""
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
        """Return the horizon of each place in a row; all rows have the same."""
        return np.array(reference.horizons(self.terminals[0], "double"))

    @cached_property
    def _law(self) -> np.ndarray:
        """Return the probability of a pair with each horizon and gap, [horizon, gap]."""
        law = np.zeros((SEGMENT, STEPS))
        pairs = reference.pair_probabilities([self._horizons.tolist()], DISCOUNT)
        for (_, place, gap), probability in pairs.items():
            law[self._horizons[place], gap] += probability
        return law


REPEATS = 100


@dataclass(frozen=True)
class Scanned(Prioritized):
    """`REPEATS` times in one scan: add a step of `envs`, if any; draw; update, if prioritized."""

    prioritized: bool = False
    envs: int = 0

    @property
    def label(self) -> str:
        law = "prioritized" if self.prioritized else "uniform"
        adding = f"add {self.envs}, " if self.envs else ""
        return f"{law}, {REPEATS} × ({adding}draw {self.batch}) of {short(self.count)}"

    def check(self, contender: Contender, call: Sampler, output: Any) -> Verdict:
        """Check draws after one scan; what it added is at the beginning of the ring."""
        if self.prioritized:
            return super().check(contender, call, output)
        held = np.arange(self.count)
        held[: REPEATS * self.envs] %= max(self.envs, 1)
        return Verdict(even_draws(call, self.stored, held))
