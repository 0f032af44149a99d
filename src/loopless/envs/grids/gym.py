"""The grid task as a Gymnasium environment, so that hosted mode and other libraries run it too.

gymnasium.make("loopless.envs.grids.gym:loopless/GridRoom-4-v0", obs="one-hot", goal=(1, 1))
"""

from typing import Any

import gymnasium
import numpy as np

from loopless.envs.grids import ENV_FIELDS
from loopless.envs.grids.world import GridTask

_FRAME = 256  # the least height of a rendered frame in pixels


class GridEnv(gymnasium.Env):
    """`GridTask` for Gymnasium."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, **fields: Any) -> None:
        self.task = GridTask(**fields)
        self.max_steps = self.task.max_steps
        self.render_mode = render_mode
        low, high = {"xy": (-0.5, 0.5), "one-hot": (0, 1), "pixels": (0, 255)}[self.task.obs]
        dtype = self.task.observations.dtype.type
        self.observation_space = gymnasium.spaces.Box(low, high, self.task.obs_shape, dtype)
        self.action_space = gymnasium.spaces.Discrete(self.task.actions)
        self._position = self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        """Start at any of the starts, or at the state options["position"]."""
        super().reset(seed=seed)
        starts = self.task.start_states
        anywhere = int(starts[self.np_random.integers(len(starts))])
        self._position, self._steps = (options or {}).get("position", anywhere), 0
        return self.task.observations[self._position].copy(), {}

    def step(self, action):
        targets = self.task.world.targets[self._position, action]
        outcome = 0
        if len(targets) > 1:
            u = self.np_random.random(dtype=np.float32)
            outcome = int(np.argmax(u < self.task.cumulative_chances[self._position, action]))
        self._position, self._steps = int(targets[outcome]), self._steps + 1
        arrived = bool(self.task.world.goals[self._position])
        late = self._steps >= self.max_steps
        obs = self.task.observations[self._position].copy()
        return obs, float(arrived), arrived, late, {}

    def render(self):
        """Return the grid with its goals and the agent, large enough to look at."""
        picture = self.task.world.pictures()[self._position]
        size = -(-_FRAME // picture.shape[0])
        return picture.repeat(size, 0).repeat(size, 1)


def register() -> None:
    """Tell Gymnasium the ids of the grids, once. The tasks have time limits of their own."""
    for env_id, fields in ENV_FIELDS.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, f"{__name__}:GridEnv", kwargs=dict(fields))


register()
