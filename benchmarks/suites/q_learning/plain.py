"""One update of Q-learning in NumPy, written out: forward, backward, clip, Adam.

In float64 it says what the parameters have to be; in float32 it is timed, too. Imports NumPy.
Tests: `tests/suites/q_learning/test_bench_updates.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Layers = list[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Rules:
    """What an update does beside its shapes; the loss is Huber's, δ = 1."""

    double: bool = True
    gamma: float = 0.99
    rate: float = 1e-3
    max_norm: float | None = 10.0


class Plain:
    """An online network that learns towards a target network that stands still."""

    def __init__(self, online: Layers, target: Layers, rules: Rules, dtype: Any) -> None:
        self.rules, self.dtype, self.count = rules, dtype, 0
        self.online = [(w.astype(dtype), b.astype(dtype)) for w, b in online]
        self.target = [(w.astype(dtype), b.astype(dtype)) for w, b in target]
        parts = [part for layer in self.online for part in layer]
        self.first = [np.zeros_like(part) for part in parts]
        self.second = [np.zeros_like(part) for part in parts]

    def update(self, batch: Mapping[str, np.ndarray]) -> None:
        """One gradient step on a batch."""
        gradients = self._gradients(batch)
        if self.rules.max_norm is not None:
            norm = np.sqrt(sum((g * g).sum() for g in gradients))
            scale = min(1.0, self.rules.max_norm / max(float(norm), 1e-30))
            gradients = [g * self.dtype(scale) for g in gradients]
        self._adam(gradients)

    def _targets(self, batch: Mapping[str, np.ndarray]) -> np.ndarray:
        following = batch["next_obs"].astype(self.dtype)
        values, rows = forward(self.target, following)[-1], np.arange(len(following))
        judge = forward(self.online, following)[-1] if self.rules.double else values
        reward = batch["reward"].astype(self.dtype)
        ahead = reward + self.dtype(self.rules.gamma) * values[rows, judge.argmax(1)]
        return np.where(batch["terminated"], reward, ahead)

    def _gradients(self, batch: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Of the mean Huber loss by each weight and bias, in the order of the layers."""
        targets = self._targets(batch)
        activations = forward(self.online, batch["obs"].astype(self.dtype))
        rows, q = np.arange(len(targets)), activations[-1]
        slope = np.zeros_like(q)
        error = q[rows, batch["action"]] - targets
        slope[rows, batch["action"]] = np.clip(error, -1, 1) / len(rows)
        gradients: list[np.ndarray] = []
        for layer in reversed(range(len(self.online))):
            inputs = activations[layer]
            gradients[:0] = [inputs.T @ slope, slope.sum(0)]
            if layer:
                slope = (slope @ self.online[layer][0].T) * (inputs > 0)
        return gradients

    def _adam(self, gradients: list[np.ndarray]) -> None:
        """Kingma and Ba 2015, with their constants."""
        self.count += 1
        parts = [part for layer in self.online for part in layer]
        for part, g, m, v in zip(parts, gradients, self.first, self.second, strict=True):
            m += self.dtype(0.1) * (g - m)
            v += self.dtype(0.001) * (g * g - v)
            mean, square = m / (1 - 0.9**self.count), v / (1 - 0.999**self.count)
            part -= self.dtype(self.rules.rate) * mean / (np.sqrt(square) + self.dtype(1e-8))


def forward(layers: Layers, x: np.ndarray) -> list[np.ndarray]:
    """What goes into each layer, and last what comes out."""
    found = [x]
    for number, (weight, bias) in enumerate(layers):
        x = x @ weight + bias
        if number < len(layers) - 1:
            x = np.maximum(x, 0)
        found.append(x)
    return found
