"""The case of this suite, GridRoom-4 with the original script's settings, its check, and ours.

A contender is right if it learns the same features from the same indices as `follow` does in
float64: NumPy with gradients by hand, the loss of the loop twins, Adam on the encoder, plain
ascent on the duals, and a constant barrier. A call of our trainer is a chunk with its row of
metrics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from typing import Any, cast

import numpy as np

from loopless.bench.contest import Call, Contender, Verdict
from loopless.envs.grids.collect import Trajectories, collect
from loopless.envs.grids.world import GridWorld, make_grid
from loopless.reference.laplacian import allo_gradients, allo_loss
from loopless.train.allo.config import ALLO
from suites.processes import jax, jnp
from suites.q_learning.updates import Layers, Network

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
    encoder, d = Network(layers, rules.learning_rate, np.float64), len(layers[-1][1])
    duals = rules.dual_start * np.tril(np.ones((d, d)))
    x = coordinates.astype(np.float64)
    for drawn in stream:
        states = [encoder.forward(x[rows]) for rows in drawn]
        now, later, others = (activations[-1] for activations in states)
        _, terms = allo_loss(now, later, others, duals, rules.barrier)
        gradients = allo_gradients(now, later, others, duals, rules.barrier)
        here = encoder.backward(states[0], gradients["features"])
        there = encoder.backward(states[1], gradients["next_features"])
        encoder.step(map(np.add, here, there))
        duals = duals + rules.dual_rate * terms["errors"]
    return encoder.forward(x)[-1]


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
        from loopless.train.allo.algorithm import build

        algorithm = build(self.config(), cast(Any, None), self.coordinates)  # draws nothing
        return algorithm.network(jax.random.key(0)).layers()

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
        return follow(self.layers, self.coordinates, self.stream, self.rules)

    def check(self, contender: Contender, call: Follower, output: Any) -> Verdict:
        features = call.follow(self.stream)
        error = float(np.abs(features - self.expected).max() / np.abs(self.expected).max())
        wrong = not error <= contender.tolerance
        return Verdict(f"features differ by {error:.1e} of their size" if wrong else "", error)


SEEDS = 8
CHUNK = 500  # steps in a call
ENDLESS = {"steps": 10**9, "log_every": CHUNK, "plot_every": 0}
TOGETHER = f"loopless, {SEEDS} seeds in one program"


def started(case: Learning, **changes: Any) -> Any:
    """Return a run of our trainer whose chunks are `CHUNK` steps, and which does not end."""
    from loopless.train.allo.run import ALLORun

    return ALLORun(case.config(**ENDLESS | changes))


def learn_from(run: Any, stream: Indices) -> np.ndarray:
    """Return the features of all states after learning from these indices, starting as seed 0."""
    from loopless.train.allo.data import Batch

    algorithm, update = run.algorithm, jax.jit(run.algorithm.update)
    learner = algorithm.init(jax.random.key(0), jnp.float32(run.config.barrier[0]))
    for step, drawn in enumerate(stream):
        rows = Batch(*map(jnp.asarray, drawn))
        learner, _ = update(learner, run.table, rows, jnp.int32(step))
    return np.asarray(algorithm.evaluate(learner, run.table)["learned"])


def _prepare(case: Learning, **changes: Any) -> Follower:
    from loopless.runs.progress.clock import Clock

    run = started(case, **changes)
    return Follower(partial(run.advance, Clock()), lambda _: None, partial(learn_from, run))


CONTENDER, ENCODED_BY_BATCHES, IN_ONE_PROGRAM = (
    Contender(name, "loopless", "ours", partial(_prepare, **changes), TOLERANCE, note)
    for name, changes, note in (
        (OURS, {}, "a compiled chunk of steps, sampling within"),
        (BY_BATCHES, {"encode": "batches"},
         "what was drawn is encoded, in place of each distinct state once"),
        (TOGETHER, {"seeds": SEEDS}, ""),
    )
)  # fmt: skip
