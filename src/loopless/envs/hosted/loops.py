"""Gymnasium environments stepped one after the other, at little more than their own cost.

This is what `gymnasium.vector.SyncVectorEnv` does in its SAME_STEP mode, without its copies, infos
and wrappers. Hosted mode runs it in this process, and every worker process runs it for its share.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from loopless.envs import EnvError, masks, spaces
from loopless.envs.hosted.blocks import Block
from loopless.envs.hosted.ids import Recipe


class EnvLoop:
    """`envs` environments of one recipe in this process; a step writes one row of a block."""

    gives_final_obs = True

    def __init__(self, recipe: Recipe, envs: int) -> None:
        self._envs = [recipe.make() for _ in range(envs)]
        self._name = recipe.env_id
        first: Any = self._envs[0]
        what = f"envs: {recipe.env_id}"
        self.obs_space = spaces.observations(first.observation_space, what)
        self.action_space = spaces.actions(first.action_space, what)
        self.max_steps = recipe.max_steps or getattr(first.unwrapped, "max_steps", None)
        self.frame_rate = float(first.metadata.get("render_fps") or 30)
        self._encode = encoding(first.observation_space)
        self._discrete = isinstance(self.action_space, spaces.Discrete)
        self._start = int(first.action_space.start) if self._discrete else 0
        self._action_dtype = first.action_space.dtype
        self._limit = recipe.limit or float("inf")
        self._lengths = [0] * envs
        self._steps = [env.step for env in self._envs]
        self._masks: list[Callable[[Mapping], Any]] = []  # known after a reset

    def reset(self, seeds: Sequence[int], obs: np.ndarray) -> np.ndarray | None:
        """Start all episodes anew, write the observations [envs, ...], and return masks, if any."""
        infos = []
        for i, (env, seed) in enumerate(zip(self._envs, seeds, strict=True)):
            first, info = env.reset(seed=seed)
            if np.shape(first) != env.observation_space.shape:
                raise EnvError(
                    f"envs: {self._name}: an observation has shape {np.shape(first)}, and its "
                    f"space says {env.observation_space.shape}. Correct the observation_space."
                )
            obs[i] = first if self._encode is None else self._encode(first)
            self._lengths[i] = 0
            infos.append(info)
        has_masks = masks.width(self.action_space) > 0
        self._masks = masks.readers(self._envs, infos) if has_masks else []
        if not self._masks:
            return None
        return np.array([self._mask(i, info) for i, info in enumerate(infos)], bool)

    def step(self, t: int, block: Block) -> None:
        """Take step t: read its actions, and write rewards, ends and what to act on next."""
        # Hosted training spends most of its time in this loop: use locals, and allocate nothing.
        lengths, limit, encode = self._lengths, self._limit, self._encode
        rewards, following = block.exact_reward, block.all_obs[t + 1]
        legal = block.all_masks[t + 1] if self._masks and block.all_masks is not None else None
        actions = block.action[t]
        if self._discrete:
            actions = (actions + self._start if self._start else actions).tolist()
        else:
            actions = actions.astype(self._action_dtype)
        for i, step in enumerate(self._steps):
            obs, rewards[t, i], terminated, truncated, info = step(actions[i])
            lengths[i] += 1
            if terminated or truncated or lengths[i] >= limit:
                block.terminated[t, i] = terminated
                block.truncated[t, i] = truncated or lengths[i] >= limit
                block.next_obs[t, i] = obs if encode is None else encode(obs)
                obs, info = self._envs[i].reset()
                lengths[i] = 0
            following[i] = obs if encode is None else encode(obs)
            if legal is not None:
                legal[i] = self._mask(i, info)

    def render(self) -> list[Any]:
        """Return a frame of each environment."""
        return [env.render() for env in self._envs]

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _mask(self, i: int, info: Mapping) -> Any:
        return masks.check(self._masks[i](info), self.action_space, f"envs: {self._name}")


def encoding(space) -> Callable[[Any], np.ndarray] | None:
    """Return how observations of a Gymnasium `space` are encoded; None if they stay as they are."""
    if type(space).__name__ != "Discrete":
        return None
    one_hot, start = np.eye(int(space.n), dtype=np.float32), int(space.start)
    return lambda obs: one_hot[obs - start]
