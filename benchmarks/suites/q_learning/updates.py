"""What is updated: networks, stored transitions, rules; and whether the parameters come out right.

A contender says which rows it drew. The plain update in float64 then repeats its calls from the
same weights, and the parameters have to agree. Imports NumPy and `plain`. Tests:
`tests/suites/q_learning/test_bench_updates.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from loopless.bench.contest import Contender, Verdict
from suites.q_learning.plain import Layers, Plain, Rules

OBS, ACTIONS, STORED = 4, 2, 10_000
TOLERANCE = 1e-5  # float32 after K updates; one step of Adam moves a parameter by 1e-3

CHECKED = 8  # updates at least: Adam's first step tells no more of a gradient than its signs
ATTEMPTS = 3

Arrays = dict[str, np.ndarray]


@lru_cache(maxsize=1)
def transitions(count: int = STORED) -> Arrays:
    """Transitions as in CartPole: four numbers, two actions, an end once in twenty steps."""
    generator = np.random.default_rng(0)
    obs = generator.standard_normal((count, OBS), dtype=np.float32)
    return {
        "obs": obs,
        "action": generator.integers(0, ACTIONS, count),
        "reward": generator.standard_normal(count, dtype=np.float32),
        "next_obs": obs + 0.1 * generator.standard_normal((count, OBS), dtype=np.float32),
        "terminated": generator.random(count) < 0.05,
    }


def random_layers(hidden: tuple[int, ...], seed: int) -> Layers:
    """(weight [in, out], bias [out]) of each layer, float32."""
    generator, sizes = np.random.default_rng(seed), [OBS, *hidden, ACTIONS]
    return [
        (
            generator.uniform(-1, 1, (inputs, outputs)).astype(np.float32) / inputs**0.5,
            generator.uniform(-1, 1, outputs).astype(np.float32) / inputs**0.5,
        )
        for inputs, outputs in pairwise(sizes)
    ]


@dataclass(frozen=True)
class Learned:
    """What all calls so far did: rows drawn [n, batch], by which rules, the parameters now."""

    indices: np.ndarray
    layers: Layers
    rules: Rules


@dataclass(frozen=True)
class Update:
    """`draws` batches, `repeats` gradient steps on each, one after the other, in one call."""

    batch: int
    hidden: tuple[int, ...]
    draws: int
    repeats: int = 1
    rules: Rules = Rules()  # noqa: RUF009  (frozen)
    seed: int = 0  # of the draws

    @property
    def shape(self) -> str:
        return f"batch {self.batch}, {list(self.hidden)}"

    @property
    def label(self) -> str:
        if self.repeats > 1:
            return f"{self.shape}, {self.draws} × {self.repeats}"
        return f"{self.shape}, K = {self.draws}"

    @property
    def updates(self) -> int:
        return self.draws * self.repeats

    @property
    def size(self) -> int:
        return self.batch * self.updates

    @property
    def stored(self) -> Arrays:
        return transitions()

    @cached_property
    def online(self) -> Layers:
        return random_layers(self.hidden, 1)

    @cached_property
    def target(self) -> Layers:
        return random_layers(self.hidden, 2)

    @property
    def checked_calls(self) -> int:
        return -(-CHECKED // self.updates)

    def check(self, contender: Contender, call: Any, output: Any) -> Verdict:
        """Against the plain update on the same rows, from the same weights.

        Where an input of relu lies within rounding of 0, two right answers differ: other rows
        decide then. What is wrong stays wrong on all of them.
        """
        for _ in range(self.checked_calls - 1):
            output = call.run()
        verdict = self.compare(contender.tolerance, call.read(output))
        if not verdict.reason or self.seed == ATTEMPTS - 1:
            return verdict
        other = replace(self, seed=self.seed + 1)
        again = contender.prepare(other)
        return other.check(contender, again, again.run())

    def compare(self, tolerance: float, learned: Learned) -> Verdict:
        expected = (self.checked_calls * self.draws, self.batch)
        if learned.indices.shape != expected:
            return Verdict(f"drew {learned.indices.shape}, not {expected}")
        plain = Plain(self.online, self.target, learned.rules, np.float64)
        for rows in learned.indices:
            batch = {name: values[rows] for name, values in self.stored.items()}
            for _ in range(self.repeats):
                plain.update(batch)
        error = difference(learned.layers, plain.online)
        if error <= tolerance:
            return Verdict("", error)
        found = f"{error:.2g}" if np.isfinite(error) else str(error)
        return Verdict(f"parameters differ by up to {found} after {plain.count} updates")


def difference(one: Layers, other: Layers) -> float:
    """The largest difference of two networks' parameters; infinite if their shapes differ."""
    pairs = [(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True)]
    if any(a.shape != b.shape for a, b in pairs):
        return float("inf")
    return max(float(np.max(np.abs(a - b))) for a, b in pairs)
