"""What steps hosted environments: a loop over single ones, or a vector environment of others.

`EnvLoop` does what `gymnasium.vector.SyncVectorEnv` does in its SAME_STEP mode, without its copies,
infos and wrappers, at little more than the environments' own cost. Hosted mode runs it in this
process, and every worker process runs it for its share.

`VectorLoop` drives Gymnasium's native vector environments and envpool's. They differ in what
happens at an end, and say so in metadata["autoreset_mode"]. SAME_STEP passes the final observation
in infos. NEXT_STEP spends the following step on the reset, and that step is marked as not
experience. DISABLED waits to be reset.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from loopless.envs import EnvError, spaces
from loopless.envs.hosted.blocks import Block
from loopless.envs.hosted.ids import Recipe
from loopless.refusals import did_you_mean


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
        has_masks = spaces.mask_width(self.action_space) > 0
        self._masks = spaces.mask_readers(self._envs, infos) if has_masks else []
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
        return spaces.check_mask(self._masks[i](info), self.action_space, f"envs: {self._name}")


def encoding(space) -> Callable[[Any], np.ndarray] | None:
    """Return how observations of a Gymnasium `space` are encoded; None if they stay as they are."""
    if type(space).__name__ != "Discrete":
        return None
    one_hot, start = np.eye(int(space.n), dtype=np.float32), int(space.start)
    return lambda obs: one_hot[obs - start]


class VectorLoop:
    """A vector environment; a step writes one row of a block.

    make(seed): makes it; called anew at every reset if it is `seeded_when_made`.
    frames_first: whether pictures come as [frames, height, width] and must be transposed.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[int], Any],
        *,
        seeded_when_made: bool = False,
        frames_first: bool = False,
    ) -> None:
        self._name, self._make, self._seeded_when_made = name, make, seeded_when_made
        self._env = make(0)
        env, what = self._env, f"envs: {name}"
        self.envs: int = env.num_envs
        self._mode = _mode(env, what)
        self.gives_final_obs = self._mode is not AutoresetMode.NEXT_STEP
        self.obs_space = spaces.observations(env.single_observation_space, what)
        self.action_space = spaces.actions(env.single_action_space, what)
        limit = getattr(env.spec, "max_episode_steps", None)  # Gymnasium's place, and envpool's
        self.max_steps: int | None = limit or getattr(env, "config", {}).get("max_episode_steps")
        self._encode = encoding(env.single_observation_space) or (lambda obs: obs)
        if frames_first:
            frames, *picture = self.obs_space.shape
            self.obs_space = replace(self.obs_space, shape=(*picture, frames))
            self._encode = lambda obs: np.moveaxis(obs, 1, -1)
        self._action_dtype = env.single_action_space.dtype
        self._start = getattr(env.single_action_space, "start", 0)
        self._resetting, self._all = np.zeros(self.envs, bool), np.ones(self.envs, bool)
        self._masks: Callable[[Mapping], tuple[Any, Any]] | None = None  # known after a reset

    def reset(self, seeds: Sequence[int], obs: np.ndarray) -> np.ndarray | None:
        """Start all episodes anew, write the observations [envs, ...], and return masks, if any."""
        if self._seeded_when_made:
            self._env.close()
            self._env, seed = self._make(seeds[0]), {}
        else:
            each = isinstance(self._env.unwrapped, SyncVectorEnv | AsyncVectorEnv)
            seed = {"seed": list(seeds) if each else seeds[0]}
        first, infos = self._env.reset(**seed)
        self._resetting[...] = False
        obs[...] = self._encode(first)
        width = spaces.mask_width(self.action_space)
        self._masks = spaces.vector_mask_reader(self._env, infos) if width else None
        if self._masks is None:
            return None
        legal = np.zeros((self.envs, width), bool)
        self._write_masks(legal, infos, self._all)
        return legal

    def step(self, t: int, block: Block) -> None:
        """Take step t: read its actions, and write rewards, ends and what to act on next."""
        actions = block.action[t].astype(self._action_dtype) + self._start
        obs, rewards, terminated, truncated, infos = self._env.step(actions)
        reset_infos, was_reset = infos, self._all
        block.exact_reward[t] = rewards
        block.terminated[t], block.truncated[t] = terminated, truncated
        if self._mode is AutoresetMode.NEXT_STEP:
            np.logical_not(self._resetting, out=block.valid[t])
            block.terminated[t] &= block.valid[t]
            block.truncated[t] &= block.valid[t]
            np.logical_or(block.terminated[t], block.truncated[t], out=self._resetting)
        else:
            ended = block.terminated[t] | block.truncated[t]
            if ended.any():
                final, obs, reset_infos = self._restart(obs, infos, ended)
                was_reset = self._all if reset_infos is infos else ended
                block.next_obs[t][ended] = self._encode(final)
        block.all_obs[t + 1] = self._encode(obs)
        if block.all_masks is not None:
            self._write_masks(block.all_masks[t + 1], infos, ~was_reset)
            self._write_masks(block.all_masks[t + 1], reset_infos, was_reset)

    def render(self) -> Any:
        """Return a frame of each environment."""
        return self._env.render()

    def close(self) -> None:
        self._env.close()

    def _restart(self, obs, infos: dict, ended: np.ndarray):
        """Return the final observations of those that `ended`, then all observations and infos."""
        if self._mode is AutoresetMode.DISABLED:
            final = np.array(obs[ended])
            return final, *self._env.reset(options={"reset_mask": ended})
        final, present = infos.get("final_obs"), infos.get("_final_obs", ended)
        if final is None or not np.array_equal(present, ended):
            raise EnvError(
                f"envs: {self._name} says that it resets in the same step, but gives no "
                f'info["final_obs"] at every end; without it truncated steps have no successor.'
            )
        return np.stack(list(final[ended])), obs, infos

    def _write_masks(self, legal: np.ndarray, infos: Mapping, rows: np.ndarray) -> None:
        if self._masks is not None and rows.any():
            what = f"envs: {self._name}"
            legal[rows] = spaces.select_masks(*self._masks(infos), rows, self.action_space, what)


def native(recipe: Recipe, envs: int) -> VectorLoop:
    """Return Gymnasium's native vector environment of that id, in SAME_STEP mode if it has it."""
    if recipe.spec.vector_entry_point is None:
        raise EnvError(
            f"envs: {recipe.env_id} has no native vector environment; use vectorization='sync' or "
            f"'async'."
        )
    entry = recipe.spec.vector_entry_point
    if isinstance(entry, str):
        module, _, attribute = entry.partition(":")
        entry = getattr(import_module(module), attribute)
    kwargs: dict[str, Any] = dict(recipe.kwargs)
    if "autoreset_mode" in inspect.signature(entry).parameters:
        kwargs = {"autoreset_mode": AutoresetMode.SAME_STEP} | kwargs
    if recipe.atari:  # only what `Recipe.atari` promises
        kwargs = {"reward_clipping": False, "use_fire_reset": False} | kwargs

    def make(seed: int):
        return gymnasium.make_vec(
            recipe.spec, envs, vectorization_mode="vector_entry_point", **kwargs
        )

    return VectorLoop(recipe.env_id, make, frames_first=recipe.atari)


def envpool(env_id: str, envs: int, env_kwargs: Mapping[str, Any]) -> VectorLoop:
    """Return envpool's environment of that id, which is seeded when it is made."""
    try:
        pool: Any = import_module("envpool")
    except ImportError as error:
        raise EnvError(
            f"envs: vectorization='envpool' needs envpool ({error}): pip install envpool."
        ) from error
    known = pool.list_all_envs()
    if env_id not in known:
        raise EnvError(
            f"envs: envpool has no environment {env_id!r}.{did_you_mean(env_id, known, most=3)}"
        )

    def make(seed: int):
        return pool.make_gymnasium(env_id, num_envs=envs, seed=seed, **env_kwargs)

    return VectorLoop(env_id, make, seeded_when_made=True)


def _mode(env, what: str) -> AutoresetMode:
    mode = env.metadata.get("autoreset_mode")
    if not isinstance(mode, AutoresetMode):
        raise EnvError(
            f'{what}: metadata["autoreset_mode"] is {mode!r}; without a gymnasium AutoresetMode '
            f"its ends cannot be read. Set it, or use vectorization='sync'."
        )
    return mode
