"""Environments that cost next to nothing and show random pictures, so that learning is measured.

Importing this module registers them. `Stacked-v0` shows the last 4 of 84 × 84 gray frames, as Atari
games do after their usual preprocessing; `Colored-v0` shows 96 × 96 pictures in color, as CarRacing
does. Rewards are 1, and episodes end after 500 steps or, seldom, before.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import wrappers

POOL = 64  # pictures, drawn once
STACK, STACKED_SHAPE, COLORED_SHAPE = 4, (84, 84, 4), (96, 96, 3)
ENDS = 0.001
IDS: dict[tuple[int, ...], str] = {
    STACKED_SHAPE: "suites.pictures.worlds:Stacked-v0",
    COLORED_SHAPE: "suites.pictures.worlds:Colored-v0",
}


class Pictures(gymnasium.Env):
    """One of `POOL` random pictures at every step; six actions, which change nothing."""

    action_space = gymnasium.spaces.Discrete(6)

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, shape, np.uint8)
        self._pool = np.random.default_rng(0).integers(0, 256, (POOL, *shape), dtype=np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple:
        super().reset(seed=seed)
        return self._next(), {}

    def step(self, action: Any) -> tuple:
        return self._next(), 1.0, bool(self.np_random.random() < ENDS), False, {}

    def _next(self) -> np.ndarray:
        return self._pool[self.np_random.integers(POOL)].copy()


def stacked() -> gymnasium.Env:
    env = wrappers.FrameStackObservation(Pictures(STACKED_SHAPE[:2]), STACK)
    space = gymnasium.spaces.Box(0, 255, STACKED_SHAPE, np.uint8)
    return wrappers.TransformObservation(env, lambda frames: np.moveaxis(frames, 0, -1), space)


def colored() -> gymnasium.Env:
    return Pictures(COLORED_SHAPE)


for _name, _entry in (("Stacked-v0", "stacked"), ("Colored-v0", "colored")):
    if _name not in gymnasium.registry:
        gymnasium.register(
            _name, entry_point=f"suites.pictures.worlds:{_entry}", max_episode_steps=500
        )
