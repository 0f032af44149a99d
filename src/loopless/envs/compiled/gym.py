"""A compiled environment as a Gymnasium environment, to be played, recorded and evaluated."""

from typing import Any

import gymnasium
import jax
import numpy as np

from loopless.envs import spaces
from loopless.envs.compiled import make_compiled
from loopless.envs.compiled.autoreset import autoreset


class CompiledGymEnv(gymnasium.Env):
    """The compiled environment of the name `compiled`, with the random numbers of `reset(seed)`."""

    def __init__(self, compiled: str, **options: Any) -> None:
        self._env = make_compiled(compiled, **options)
        world = autoreset(self._env)  # which checks it
        self.max_steps = world.max_steps
        self.observation_space = _gym_space(world.obs_space)
        self.action_space = _gym_space(world.action_space)
        self._step, self._start = jax.jit(self._env.step), jax.jit(self._env.reset)
        self._key, self._state = jax.random.key(0), None
        if world.has_masks:
            self.action_masks = lambda: np.asarray(self._env.action_mask(self._state))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        """Start an episode."""
        super().reset(seed=seed)
        if seed is not None:
            self._key = jax.random.key(seed)
        self._state, obs = self._start(self._draw())
        return np.asarray(obs), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Take one step."""
        after = self._step(self._state, action, self._draw())
        self._state, obs, reward, terminated, truncated = after
        return np.asarray(obs), float(reward), bool(terminated), bool(truncated), {}

    def _draw(self) -> jax.Array:
        self._key, key = jax.random.split(self._key)
        return key


def _gym_space(space: spaces.Space) -> gymnasium.Space:
    if isinstance(space, spaces.Discrete):
        return gymnasium.spaces.Discrete(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return gymnasium.spaces.MultiDiscrete(list(space.sizes))
    low, high = (np.asarray(bound, space.dtype) for bound in (space.low, space.high))
    if space.dtype == "uint8":
        low, high = np.uint8(0), np.uint8(255)
    low, high = (np.broadcast_to(x.reshape(-1), int(np.prod(space.shape))) for x in (low, high))
    bounds = low.reshape(space.shape), high.reshape(space.shape)
    return gymnasium.spaces.Box(*bounds, dtype=np.dtype(space.dtype).type)
