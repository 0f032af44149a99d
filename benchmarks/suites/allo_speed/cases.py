"""What is learned in this suite: GridRoom-4 as the original script had it, and what is right.

A contender is right if it makes the same features of the same indices as the loop twins of the
loss in float64 (`oracle`). Imports NumPy, and the trainer's config. Tests:
`tests/suites/allo_speed/test_bench_allo.py`.
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
from loopless.train.allo.config import ALLO
from suites.allo_speed import oracle
from suites.allo_speed.oracle import Indices, Layers, Rules

GRID = "GridRoom-4"
FOLLOWED = 3  # steps of the check
TOLERANCE = 1e-4  # of the largest feature, in float32 after Adam's first steps


@dataclass(frozen=True)
class Follower(Call):
    """`run` is timed; `follow` learns from given indices, and gives the features of all states."""

    follow: Callable[[Indices], np.ndarray]


@dataclass(frozen=True)
class Learning:
    """Batches of `batch` pairs, an MLP of these widths; rows of the original's length."""

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

    @property
    def size(self) -> int:
        return self.batch

    @cached_property
    def world(self) -> GridWorld:
        return make_grid(GRID)

    @cached_property
    def walks(self) -> Trajectories:
        length = self.length
        return collect(self.world, envs=self.envs, steps=length, max_episode_length=length)

    @cached_property
    def coordinates(self) -> np.ndarray:
        """[states, 2]: what an encoder sees."""
        return self.world.xy("centred")

    def config(self, **changes: Any) -> ALLO:
        """The same for our trainer."""
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
        """The same as flags of `loopless train allo`."""
        flags = [f"--{name.replace('_', '-')}" for name in self.settings()]
        values = [x if isinstance(x, tuple) else (x,) for x in self.settings().values()]
        pairs = zip(flags, values, strict=True)
        return [word for flag, value in pairs for word in (flag, *map(str, value))]

    @cached_property
    def layers(self) -> Layers:
        """The encoder at the start, as our trainer's seed 0 draws it."""
        from suites.allo_speed.ours import first_layers

        return first_layers(self)

    @cached_property
    def stream(self) -> Indices:
        """States, later ones and others [FOLLOWED, 3, batch] to be learned from."""
        rng, shape = np.random.default_rng(0), (FOLLOWED, self.batch)
        rows, other_rows = rng.integers(self.envs, size=(2, *shape))
        starts, other_starts = rng.integers(self.length - 4, size=(2, *shape))
        later = starts + rng.integers(1, 5, size=shape)
        obs = self.walks.obs
        return np.stack([obs[rows, starts], obs[rows, later], obs[other_rows, other_starts]], 1)

    @cached_property
    def expected(self) -> np.ndarray:
        """[states, d]: the features after `stream`."""
        layers = [(w.astype(np.float64), b.astype(np.float64)) for w, b in self.layers]
        return oracle.follow(layers, self.coordinates, self.stream, self.rules)

    def check(self, contender: Contender, call: Follower, output: Any) -> Verdict:
        found = call.follow(self.stream)
        error = float(np.abs(found - self.expected).max() / np.abs(self.expected).max())
        wrong = not error <= contender.tolerance
        return Verdict(f"features differ by {error:.1e} of their size" if wrong else "", error)
