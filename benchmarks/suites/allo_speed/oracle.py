"""Steps of ALLO in float64 NumPy, gradients by hand: the loop twins say what the loss does.

In the original script's scale and with its updates: Adam on the encoder, plain ascent on the duals,
a barrier that stands still. Imports NumPy and `reference`. Tests:
`tests/suites/allo_speed/test_bench_allo.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loopless.reference.laplacian import allo_gradients, allo_loss

Layers = list[tuple[np.ndarray, np.ndarray]]
Indices = np.ndarray  # [steps, 3, batch]: states, later ones, others


@dataclass(frozen=True)
class Rules:
    """The original script's settings, by the names of our trainer's."""

    learning_rate: float = 3e-4
    dual_rate: float = 3e-4
    dual_start: float = -2.0
    barrier: float = 0.5
    discount: float = 0.2


def follow(layers: Layers, coordinates: np.ndarray, stream: Indices, rules: Rules) -> np.ndarray:
    """The features of all states after learning from the stream."""
    parts = [part for layer in layers for part in layer]
    first, second = [[np.zeros_like(part) for part in parts] for _ in range(2)]
    d = len(parts[-1])
    duals = rules.dual_start * np.tril(np.ones((d, d)))
    x = coordinates.astype(np.float64)
    for count, drawn in enumerate(stream, 1):
        states = [forward(parts, x[rows]) for rows in drawn]
        now, later, others = (activations[-1] for activations in states)
        _, found = allo_loss(now, later, others, duals, rules.barrier)
        pull = allo_gradients(now, later, others, duals, rules.barrier)
        one = backward(parts, states[0], pull["features"])
        other = backward(parts, states[1], pull["next_features"])
        for at, gradient in enumerate(map(np.add, one, other)):
            first[at] += 0.1 * (gradient - first[at])
            second[at] += 0.001 * (gradient**2 - second[at])
            mean, square = first[at] / (1 - 0.9**count), second[at] / (1 - 0.999**count)
            parts[at] = parts[at] - rules.learning_rate * mean / (np.sqrt(square) + 1e-8)
        duals = duals + rules.dual_rate * found["errors"]
    return forward(parts, x)[-1]


def forward(parts: list[np.ndarray], x: np.ndarray) -> list[np.ndarray]:
    """The input, what each hidden layer gives, and the features."""
    found = [x]
    for weight, bias in zip(parts[:-2:2], parts[1:-2:2], strict=True):
        found.append(np.maximum(found[-1] @ weight + bias, 0))
    return [*found, found[-1] @ parts[-2] + parts[-1]]


def backward(parts: list[np.ndarray], found: list[np.ndarray], pull: np.ndarray) -> list:
    """The gradient of each part, given that of the features."""
    gradients: list[np.ndarray] = []
    for at in range(len(parts) // 2 - 1, -1, -1):
        gradients = [found[at].T @ pull, pull.sum(0), *gradients]
        pull = (pull @ parts[2 * at].T) * (found[at] > 0)
    return gradients
