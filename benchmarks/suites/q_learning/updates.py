"""The cases: networks, stored transitions and rules of an update; and their check.

A contender says which transitions it drew. `Plain`, the update written out in NumPy, then repeats
its calls in float64 from the same weights, and the parameters have to agree. In float32 `Plain` is
timed, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from loopless.bench.contest import Contender, Verdict

Layers = list[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Rules:
    """The settings of an update beside its shapes; the loss is Huber's with δ = 1."""

    double: bool = True
    gamma: float = 0.99
    rate: float = 1e-3
    max_norm: float | None = 10.0


class Network:
    """A network of relu layers in NumPy, with gradients by hand and Adam's moments."""

    def __init__(self, layers: Layers, rate: float, dtype: Any) -> None:
        self.rate, self.dtype, self.count = rate, dtype, 0
        self.layers = [(w.astype(dtype), b.astype(dtype)) for w, b in layers]
        self.parts = [part for layer in self.layers for part in layer]
        self.first = [np.zeros_like(part) for part in self.parts]
        self.second = [np.zeros_like(part) for part in self.parts]

    def forward(self, x: np.ndarray) -> list[np.ndarray]:
        """Return the input of each layer, and at the end the output."""
        activations = [x]
        for number, (weight, bias) in enumerate(self.layers):
            x = x @ weight + bias
            if number < len(self.layers) - 1:
                x = np.maximum(x, 0)
            activations.append(x)
        return activations

    def backward(self, activations: list[np.ndarray], slope: np.ndarray) -> list[np.ndarray]:
        """Return the gradients of all parts, given the gradient by the output."""
        gradients: list[np.ndarray] = []
        for layer in reversed(range(len(self.layers))):
            inputs = activations[layer]
            gradients[:0] = [inputs.T @ slope, slope.sum(0)]
            if layer:
                slope = (slope @ self.layers[layer][0].T) * (inputs > 0)
        return gradients

    def step(self, gradients: Iterable[np.ndarray]) -> None:
        """Make a step of Adam (Kingma and Ba 2015) with its authors' constants."""
        self.count += 1
        for part, g, m, v in zip(self.parts, gradients, self.first, self.second, strict=True):
            m += self.dtype(0.1) * (g - m)
            v += self.dtype(0.001) * (g * g - v)
            mean, square = m / (1 - 0.9**self.count), v / (1 - 0.999**self.count)
            part -= self.dtype(self.rate) * mean / (np.sqrt(square) + self.dtype(1e-8))


class Plain:
    """An online network that learns towards a fixed target network."""

    def __init__(self, online: Layers, target: Layers, rules: Rules, dtype: Any) -> None:
        self.rules, self.dtype = rules, dtype
        self.online, self.target = (Network(x, rules.rate, dtype) for x in (online, target))

    def update(self, batch: Mapping[str, np.ndarray]) -> None:
        """Make one gradient step on the mean Huber loss of a batch."""
        activations, errors = self.errors(batch)
        slope, rows = np.zeros_like(activations[-1]), np.arange(len(errors))
        slope[rows, batch["action"]] = np.clip(errors, -1, 1) / len(rows)
        gradients = self.online.backward(activations, slope)
        if self.rules.max_norm is not None:
            norm = np.sqrt(sum((g * g).sum() for g in gradients))
            scale = min(1.0, self.rules.max_norm / max(float(norm), 1e-30))
            gradients = [g * self.dtype(scale) for g in gradients]
        self.online.step(gradients)

    def errors(self, batch: Mapping[str, np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
        """Return the activations of a batch, and its TD errors."""
        targets = self._targets(batch)
        activations = self.online.forward(batch["obs"].astype(self.dtype))
        return activations, activations[-1][np.arange(len(targets)), batch["action"]] - targets

    def _targets(self, batch: Mapping[str, np.ndarray]) -> np.ndarray:
        following = batch["next_obs"].astype(self.dtype)
        values, rows = self.target.forward(following)[-1], np.arange(len(following))
        judge = self.online.forward(following)[-1] if self.rules.double else values
        reward = batch["reward"].astype(self.dtype)
        ahead = reward + self.dtype(self.rules.gamma) * values[rows, judge.argmax(1)]
        return np.where(batch["terminated"], reward, ahead)


OBS, ACTIONS, STORED = 4, 2, 10_000
TOLERANCE = 1e-5  # float32 after K updates; one step of Adam moves a parameter by 1e-3

CHECKED = 8  # updates at least: Adam's first step depends on the signs of a gradient only
ATTEMPTS = 3

Arrays = dict[str, np.ndarray]


@lru_cache(maxsize=1)
def transitions(count: int = STORED) -> Arrays:
    """Return transitions shaped as in CartPole; one in twenty terminates."""
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
    """Return (weight [in, out], bias [out]) of each layer, float32."""
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
    """What all calls so far did: indices drawn [n, batch], parameters now, and the rules used."""

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
    rules: Rules = Rules()
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
        """Compare with the plain update on the same transitions, from the same weights.

        Where an input of relu is within rounding of 0, two right answers may differ. So a contender
        that disagrees is tried on other draws; a wrong one disagrees on all of them.
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
        error = difference(learned.layers, plain.online.layers)
        if error <= tolerance:
            return Verdict("", error)
        return Verdict(f"parameters differ by up to {error:.2g} after {plain.online.count} updates")


def difference(one: Layers, other: Layers) -> float:
    """Return the largest difference of two networks' parameters; ∞ if their shapes differ."""
    pairs = [(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True)]
    if any(a.shape != b.shape for a, b in pairs):
        return float("inf")
    return max(float(np.max(np.abs(a - b))) for a, b in pairs)
