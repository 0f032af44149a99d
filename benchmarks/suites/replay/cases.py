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
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np

from loopless.bench.contest import Call, Contender, Verdict
from loopless.reference import episodic as reference
from loopless.verify.samplers.laws import misfit

Arrays = dict[str, np.ndarray]
CHECKED_DRAWS = 40_000
CHECKED_S = 3.0


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
    """Return `count` transitions, numbered from `first`; one in a hundred terminates."""
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
    """Return the number of each drawn transition, and what is wrong with the draws; "" if nothing.

    `held` says which transition each slot holds, if that is not the one of the slot's number.
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
    """Return how draws differ from their law, in stretches and by remainder; "" if not."""
    count = len(probabilities)
    everyone = np.arange(count)
    stretches, digits = everyone * CELLS // count, everyone % CELLS
    for cells in (stretches, digits):
        if problem := misfit(cells[numbers], np.bincount(cells, probabilities)):
            return problem
    return ""


def even_draws(call: Sampler, stored: Arrays, held: np.ndarray) -> str:
    """Return how draws of slots that hold `held` differ from uniform ones; "" if not."""
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
        """Return a priority for each transition, float32, from 0.1 to 10."""
        drawn = np.random.default_rng(1).lognormal(size=self.count)
        return np.clip(drawn, 0.1, 10).astype(np.float32)

    @cached_property
    def fresh(self) -> np.ndarray:
        """Return the priorities that a batch gets after each draw."""
        return np.random.default_rng(2).permutation(self.priorities)[: self.batch]

    def check(self, contender: Contender, call: Sampler, output: Any) -> Verdict:
        """Set all priorities by one update; draws and weights then have to follow them."""
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
        """Test the law again over cells of similar priority, where α shows most; "" if it holds."""
        ranks = np.empty(self.count, np.int64)
        ranks[np.argsort(powers)] = np.arange(self.count) * CELLS // self.count
        return misfit(ranks[numbers], np.bincount(ranks, powers / powers.sum()))

    def _weights(self, drawn: Arrays, powers: np.ndarray) -> str:
        """Check that w ∝ P^−β, divided by the largest of the batch or of the buffer."""
        flat = drawn["weights"] * powers[drawn["obs"][:, 0].astype(np.int64)] ** BETA
        error = float(flat.max() / flat.min() - 1)
        return "" if error <= WEIGHT_TOLERANCE else f"weights are off by up to {error:.2g}"


@dataclass(frozen=True)
class Adding:
    """A full buffer, to which one step of `envs` environments is added."""

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


def short(count: int) -> str:
    return f"{count // 1_000_000}M" if count >= 1_000_000 else f"{count // 1000}k"


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
        return f"episodic, {self.batch} of {short(self.rows * STEPS)}"

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


@dataclass(frozen=True)
class Ingest(Trajectories):
    """The same rows, put into a new buffer; the check draws pairs from it."""

    @property
    def label(self) -> str:
        return f"ingest {short(self.size)} steps"


REPEATS = 100


@dataclass(frozen=True)
class Steps:
    """A buffer's pure functions: add(state, rows), sample(state, key), update(state, i, p)."""

    add: Callable[[Any, Any], Any]
    sample: Callable[[Any, Any], Any]
    update: Callable[[Any, Any, Any], Any] | None


@dataclass(frozen=True)
class Scanned:
    """`REPEATS` times in one scan: add a step of `envs`, if any; draw; update, if prioritized."""

    count: int
    batch: int
    prioritized: bool = False
    envs: int = 0

    @property
    def label(self) -> str:
        law = "prioritized" if self.prioritized else "uniform"
        adding = f"add {self.envs}, " if self.envs else ""
        return f"{law}, {REPEATS} × ({adding}draw {self.batch}) of {short(self.count)}"

    @property
    def size(self) -> int:
        return self.count

    @property
    def changes(self) -> bool:
        """Return whether a step of the scan changes the state."""
        return self.prioritized or self.envs > 0

    @property
    def stored(self) -> Arrays:
        return transitions(self.count)

    @property
    def step(self) -> Arrays:
        """Return what is added in every step: the first transitions of `stored`."""
        return {name: values[: self.envs] for name, values in self.stored.items()}

    @cached_property
    def law(self) -> Prioritized:
        """Return the same case on the host, for its priorities and its check."""
        return Prioritized(self.count, self.batch)

    def check(self, contender: Contender, call: Sampler, output: Any) -> Verdict:
        """Check draws after one scan; what it added is at the beginning of the ring."""
        if self.prioritized:
            return self.law.check(contender, call, output)
        held, written = np.arange(self.count), REPEATS * self.envs
        if self.envs:
            held[:written] %= self.envs
        return Verdict(even_draws(call, self.stored, held))


def scanned(case: Scanned, state: Any, steps: Steps) -> Sampler:
    """Return a sampler that times a scan over a donated state; `draw` leaves the state alone."""
    import jax

    fresh = jax.numpy.asarray(case.law.fresh)
    rows = {name: jax.numpy.asarray(values) for name, values in case.step.items()}
    taken = [*FIELDS, "weights"] if case.prioritized else [*FIELDS]

    def once(state, key):
        if case.envs:
            state = steps.add(state, rows)
        batch = jax.lax.optimization_barrier(steps.sample(state, key))
        if steps.update is not None:
            state = steps.update(state, batch["indices"], fresh)
        return state, sum(batch[name].sum(dtype=jax.numpy.float32) for name in taken)

    @partial(jax.jit, donate_argnums=0)
    def many(state, key):
        keys = jax.random.split(key, REPEATS + 1)
        state, sums = jax.lax.scan(once, state, keys[1:])
        return state, sums, keys[0]

    @jax.jit
    def many_draws(state, key):
        keys = jax.random.split(key, REPEATS + 1)
        return jax.lax.map(lambda own: once(state, own)[1], keys[1:]), keys[0]

    draw_one = jax.jit(steps.sample)
    key = jax.random.key(0)

    def run() -> None:
        nonlocal state, key
        if case.changes:
            state, sums, key = many(state, key)
        else:  # a carry that nothing writes to would be copied
            sums, key = many_draws(state, key)
        jax.block_until_ready(sums)

    def draw() -> Any:
        nonlocal key
        key, own = jax.random.split(key)
        return draw_one(state, own)

    def update(indices: np.ndarray, priorities: np.ndarray) -> None:
        nonlocal state
        assert steps.update is not None
        state = jax.jit(steps.update)(state, indices, priorities)

    def read(batch: Any) -> Arrays:
        return {name: np.array(values) for name, values in batch.items()}

    if steps.update is None:
        return Sampler(run, read, draw)
    update(np.arange(case.count), case.law.priorities)
    return Sampler(run, read, draw, update)
