"""The small worlds as Gymnasium environments, so that hosted mode and other libraries run them too.

Hosted mode registers their ids when it first needs one. Elsewhere write
`gymnasium.make("loopless.envs.worlds.gym:loopless/Pixels-v0")`, or import this file.
"""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from loopless.envs.worlds.rules import ChainWorld, MaskedWorld, MemoryWorld, PixelsWorld

_IDS = {
    "loopless/Chain-v0": ("ChainEnv", {}),
    "loopless/ChainForever-v0": ("ChainEnv", {"forever": True}),
    "loopless/Masked-v0": ("MaskedEnv", {}),
    "loopless/Memory-v0": ("MemoryEnv", {}),
    "loopless/Pixels-v0": ("PixelsEnv", {}),
}
_FRAME = 256  # the least height of a rendered frame in pixels


class TableEnv(gymnasium.Env):
    """A world of tables for Gymnasium; each subclass names its world in `kind`."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012
    kind: Callable[..., Any]

    def __init__(self, render_mode: str | None = None, **fields: Any) -> None:
        self.world = type(self).kind(**fields)
        self.max_steps = self.world.max_steps
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(0, 1, self.world.obs_shape, np.float32)
        self.action_space = gymnasium.spaces.Discrete(self.world.actions)
        self._position = self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        """Start in any state that may come first, or in state options["position"]."""
        super().reset(seed=seed)
        anywhere = int(self.np_random.integers(self.world.starts))
        self._position, self._steps = (options or {}).get("position", anywhere), 0
        return self.world.observations[self._position].copy(), {}

    def step(self, action):
        world, here = self.world, (self._position, action)
        self._position, self._steps = world.next_states[here], self._steps + 1
        return (
            world.observations[self._position].copy(),
            float(world.rewards[here]),
            bool(world.terminates[here]),
            world.is_late(self._steps),
            {},
        )

    def render(self):
        """Return a square for each number of the observation, white where it is 1."""
        row = 64 + 191 * self.world.observations[None, self._position, :, None]
        squares = row.astype(np.uint8).repeat(_FRAME // 4, 0).repeat(_FRAME // 4, 1)
        return squares.repeat(3, 2)


class ChainEnv(TableEnv):
    """`ChainWorld` for Gymnasium."""

    kind = ChainWorld


class MemoryEnv(TableEnv):
    """`MemoryWorld` for Gymnasium."""

    kind = MemoryWorld


class MaskedEnv(TableEnv):
    """`MaskedWorld` for Gymnasium."""

    kind = MaskedWorld

    def action_masks(self) -> np.ndarray:
        """Return which actions are legal now."""
        return self.world.legal[self._position].copy()


class PixelsEnv(gymnasium.Env):
    """`PixelsWorld` for Gymnasium."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, **fields: Any) -> None:
        self.world = PixelsWorld(**fields)
        self.max_steps = self.world.max_steps
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(0, 255, self.world.obs_shape, np.uint8)
        self.action_space = gymnasium.spaces.Discrete(self.world.actions)
        self._agent = self._goal = self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        """Start on two different cells, or on options["agent"] and options["goal"]."""
        super().reset(seed=seed)
        count, options = self.world.cells**2, options or {}
        agent, ahead = self.np_random.integers([0, 1], [count, count])
        self._agent = options.get("agent", int(agent))
        self._goal = options.get("goal", int((agent + ahead) % count))
        self._steps = 0
        return self._picture(), {}

    def step(self, action):
        self._agent, self._steps = self.world.next_cells[self._agent, action], self._steps + 1
        arrived = bool(self._agent == self._goal)
        late = self._steps >= self.world.max_steps
        return self._picture(), float(arrived), arrived, late, {}

    def render(self):
        """Return the observation, large enough to look at."""
        size = -(-_FRAME // self.world.obs_shape[0])
        return self._picture().repeat(size, 0).repeat(size, 1)

    def _picture(self) -> np.ndarray:
        picture = np.zeros(self.world.obs_shape, np.uint8)
        picture[..., 0] = self.world.spots[self._agent]
        picture[..., 1] = self.world.spots[self._goal]
        return picture


def register() -> None:
    """Tell Gymnasium the ids of this file, once. The worlds have time limits of their own."""
    for env_id, (name, fields) in _IDS.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, f"{__name__}:{name}", kwargs=dict(fields))


register()
