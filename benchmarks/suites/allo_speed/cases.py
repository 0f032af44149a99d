"""The case of this suite, GridRoom-4 with the original script's settings, and its check.

A contender is right if it learns the same features from the same indices as `follow` does in
float64: NumPy with gradients by hand, the loss of the loop twins, Adam on the encoder, plain
ascent on the duals, and a constant barrier.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from loopless.bench.contest import Call, Contender, Verdict
from loopless.envs.grids.collect import Trajectories, collect
from loopless.envs.grids.world import GridWorld, make_grid
from loopless.reference.laplacian import allo_gradients, allo_loss
from loopless.train.allo.config import ALLO

Layers = list[tuple[np.ndarray, np.ndarray]]
Indices = np.ndarray  # [steps, 3, batch]: states, later ones, others


@dataclass(frozen=True)
class Rules:
    """The original script's settings, under the names that our trainer has for them."""

    learning_rate: float = 3e-4
    dual_rate: float = 3e-4
    dual_start: float = -2.0
    barrier: float = 0.5
    discount: float = 0.2


def follow(layers: Layers, coordinates: np.ndarray, stream: Indices, rules: Rules) -> np.ndarray:
    """Return the features of all states after learning from the stream."""
    parts = [part for layer in layers for part in layer]
    first, second = [[np.zeros_like(part) for part in parts] for _ in range(2)]
    d = len(parts[-1])
    duals = rules.dual_start * np.tril(np.ones((d, d)))
    x = coordinates.astype(np.float64)
    for count, drawn in enumerate(stream, 1):
        states = [forward(parts, x[rows]) for rows in drawn]
        now, later, others = (activations[-1] for activations in states)
        _, terms = allo_loss(now, later, others, duals, rules.barrier)
        gradients = allo_gradients(now, later, others, duals, rules.barrier)
        here = backward(parts, states[0], gradients["features"])
        there = backward(parts, states[1], gradients["next_features"])
        for i, gradient in enumerate(map(np.add, here, there)):
            first[i] += 0.1 * (gradient - first[i])
            second[i] += 0.001 * (gradient**2 - second[i])
            mean, square = first[i] / (1 - 0.9**count), second[i] / (1 - 0.999**count)
            parts[i] = parts[i] - rules.learning_rate * mean / (np.sqrt(square) + 1e-8)
        duals = duals + rules.dual_rate * terms["errors"]
    return forward(parts, x)[-1]


def forward(parts: list[np.ndarray], x: np.ndarray) -> list[np.ndarray]:
    """Return the input, the output of each hidden layer, and the features."""
    found = [x]
    for weight, bias in zip(parts[:-2:2], parts[1:-2:2], strict=True):
        found.append(np.maximum(found[-1] @ weight + bias, 0))
    return [*found, found[-1] @ parts[-2] + parts[-1]]


def backward(parts: list[np.ndarray], found: list[np.ndarray], pull: np.ndarray) -> list:
    """Return the gradient by each weight and bias, given the gradient by the features."""
    gradients: list[np.ndarray] = []
    for at in range(len(parts) // 2 - 1, -1, -1):
        gradients = [found[at].T @ pull, pull.sum(0), *gradients]
        pull = (pull @ parts[2 * at].T) * (found[at] > 0)
    return gradients


GRID = "GridRoom-4"
OURS, BY_BATCHES, ORIGINAL = "loopless", "loopless, --encode batches", "original form"
FOLLOWED = 3  # steps of the check
TOLERANCE = 1e-4  # of the largest feature, in float32 after Adam's first steps


@dataclass(frozen=True)
class Follower(Call):
    """`run` is timed; `follow` learns from indices, and returns the features of all states."""

    follow: Callable[[Indices], np.ndarray]


@dataclass(frozen=True)
class Learning:
    """Training on batches of `batch` pairs, with an MLP of these widths.

    The data are `envs` walks of `length` steps, as many and as long as the original's.
    """

    trainer: ClassVar[str] = "allo"
    batch: int = 256
    components: int = 10
    hidden: tuple[int, ...] = (256, 256, 256, 256)
    envs: int = 1000
    length: int = 1000
    rules: Rules = field(default_factory=Rules)

    @property
    def label(self) -> str:
        widths = f"{len(self.hidden)}×{self.hidden[0]}"
        return f"{GRID}, n={self.batch}, d={self.components}, MLP {widths}"

    @cached_property
    def world(self) -> GridWorld:
        return make_grid(GRID)

    @cached_property
    def walks(self) -> Trajectories:
        length = self.length
        return collect(self.world, envs=self.envs, steps=length, max_episode_length=length)

    @cached_property
    def coordinates(self) -> np.ndarray:
        """Return what an encoder sees, [states, 2]."""
        return self.world.xy("centred")

    def config(self, **changes: Any) -> ALLO:
        """Return this case as a config of our trainer."""
        return ALLO(**self.settings() | changes)

    def settings(self) -> dict[str, Any]:
        rules = asdict(self.rules)
        barrier = rules.pop("barrier")
        return rules | {
            "grid": GRID, "components": self.components, "hidden": self.hidden,
            "batch_size": self.batch, "envs": self.envs, "env_steps": self.length,
            "episode_length": self.length, "barrier": (barrier,), "barrier_limit": barrier,
        }  # fmt: skip

    def words(self) -> list[str]:
        """Return this case as flags of `loopless train allo`."""
        flags = [f"--{name.replace('_', '-')}" for name in self.settings()]
        values = [x if isinstance(x, tuple) else (x,) for x in self.settings().values()]
        pairs = zip(flags, values, strict=True)
        return [word for flag, value in pairs for word in (flag, *map(str, value))]

    @cached_property
    def layers(self) -> Layers:
        """Return the encoder at the start, as our trainer's seed 0 draws it."""
        from suites.allo_speed.ours import first_layers

        return first_layers(self)

    @cached_property
    def stream(self) -> Indices:
        """Return the indices to learn from: states, later ones, others, [FOLLOWED, 3, batch]."""
        rng, shape = np.random.default_rng(0), (FOLLOWED, self.batch)
        rows, other_rows = rng.integers(self.envs, size=(2, *shape))
        starts, other_starts = rng.integers(self.length - 4, size=(2, *shape))
        later = starts + rng.integers(1, 5, size=shape)
        obs = self.walks.obs
        return np.stack([obs[rows, starts], obs[rows, later], obs[other_rows, other_starts]], 1)

    @cached_property
    def expected(self) -> np.ndarray:
        """Return the features after learning from `stream`, [states, d]."""
        layers = [(w.astype(np.float64), b.astype(np.float64)) for w, b in self.layers]
        return follow(layers, self.coordinates, self.stream, self.rules)

    def check(self, contender: Contender, call: Follower, output: Any) -> Verdict:
        found = call.follow(self.stream)
        error = float(np.abs(found - self.expected).max() / np.abs(self.expected).max())
        wrong = not error <= contender.tolerance
        return Verdict(f"features differ by {error:.1e} of their size" if wrong else "", error)


def million_operations(lowered: Any) -> float:
    """Return how many floating-point operations XLA counts in a program, in millions."""
    return 1e-6 * lowered.compile().cost_analysis()["flops"]
