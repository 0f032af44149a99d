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
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from loopless.envs import EnvError, EnvFault, spaces
from loopless.envs.hosted import checks, hangs, ids
from loopless.envs.hosted.blocks import Block
from loopless.envs.hosted.checks import FLAGS, INTEGERS, NUMBERS
from loopless.envs.hosted.hangs import Overdue
from loopless.envs.hosted.ids import Recipe
from loopless.refusals import did_you_mean


class EnvLoop:
    """`envs` environments of one recipe in this process; a step writes one row of a block.

    Errors name an environment by its number, from `first` on. What an environment raises becomes an
    EnvFault that begins with the environment's own traceback. So does a call that takes longer than
    `step_timeout` seconds.
    """

    gives_final_obs = True

    def __init__(
        self, recipe: Recipe, envs: int, first: int = 0, step_timeout: float | None = None
    ) -> None:
        self._name, self._first, self._step_timeout = recipe.env_id, first, step_timeout
        self._envs = []
        for i in range(envs):
            try:
                self._envs.append(recipe.make())
            except EnvError:
                raise
            except Exception as error:
                raise self._raised(i, "when it was made", error) from error
        example: Any = self._envs[0]
        what = f"envs: {recipe.env_id}"
        obs_space = spaces.observations(example.observation_space, what)
        self.obs_space = replace(obs_space, stack=ids.count_frames(example, obs_space))
        self.action_space = spaces.actions(example.action_space, what)
        known = getattr(example.spec, "max_episode_steps", None)  # of an environment made elsewhere
        self.max_steps = recipe.max_steps or known or getattr(example.unwrapped, "max_steps", None)
        self.flattened = ids.describe_flat(example)
        self.frame_rate = float(example.metadata.get("render_fps") or 30)
        self._rows = one_hot_rows(example.observation_space)
        as_is = example.observation_space if self._rows is None else self.obs_space
        self._shape, self._dtype = as_is.shape, np.dtype(as_is.dtype)
        self._discrete = isinstance(self.action_space, spaces.Discrete)
        self._start = int(example.action_space.start) if self._discrete else 0
        self._action_dtype = example.action_space.dtype
        self._limit = recipe.limit or float("inf")
        self._lengths, self._taken = [0] * envs, 0
        self._steps = [env.step for env in self._envs]
        self._resets = [env.reset for env in self._envs]
        self._leave_alarms = lambda: None
        if step_timeout is not None:
            self._leave_alarms = hangs.take_alarms(what)
            self._steps = [hangs.limited(step, step_timeout) for step in self._steps]
            self._resets = [hangs.limited(reset, step_timeout) for reset in self._resets]
        self._masks: list[Callable[[Mapping], Any]] = []  # known after a reset

    def reset(self, seeds: Sequence[int], obs: np.ndarray) -> np.ndarray | None:
        """Start all episodes anew, write the observations [envs, ...], and return masks, if any."""
        infos = []
        for i, seed in enumerate(seeds):
            first, info = self._reset(i, seed=seed)
            obs[i] = self._read_obs(i, -1, first)
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
        lengths, limit, ndarray = self._lengths, self._limit, np.ndarray
        rewards, following = block.exact_reward[t], block.all_obs[t + 1]
        legal = block.all_masks[t + 1] if self._masks and block.all_masks is not None else None
        actions = block.action[t]
        if self._discrete:
            actions = (actions + self._start if self._start else actions).tolist()
        else:
            actions = actions.astype(self._action_dtype)
        shape, dtype, rows, i = self._shape, self._dtype, self._rows, 0
        try:
            for i, step in enumerate(self._steps):
                obs, reward, terminated, truncated, info = step(actions[i])
                lengths[i] += 1
                if rows is not None and obs.__class__ in INTEGERS:
                    obs: Any = rows.get(obs, obs)
                if (
                    obs.__class__ is not ndarray
                    or obs.dtype is not dtype
                    or obs.shape != shape
                    or (reward.__class__ is not float and reward.__class__ not in NUMBERS)
                    or (terminated is not False and terminated.__class__ not in FLAGS)
                    or (truncated is not False and truncated.__class__ not in FLAGS)
                ):
                    obs, reward, terminated, truncated = self._read(
                        i, obs, reward, terminated, truncated
                    )
                    dtype = self._dtype
                rewards[i] = reward
                if terminated or truncated or lengths[i] >= limit:
                    block.terminated[t, i] = terminated
                    block.truncated[t, i] = truncated or lengths[i] >= limit
                    block.next_obs[t, i] = obs
                    obs, info = self._reset(i)
                    if obs.__class__ is not ndarray or obs.dtype is not dtype or obs.shape != shape:
                        obs = self._read_obs(i, self._taken, obs)
                    lengths[i] = 0
                following[i] = obs
                if legal is not None:
                    legal[i] = self._mask(i, info)
        except EnvError:
            raise
        except (Exception, Overdue) as error:
            raise self._raised(i, f"at its step {self._taken}, counted from 0", error) from error
        self._taken += 1

    def render(self) -> list[Any]:
        """Return a frame of each environment."""
        return [env.render() for env in self._envs]

    def close(self) -> None:
        self._leave_alarms()
        for env in self._envs:
            env.close()

    def _mask(self, i: int, info: Mapping) -> Any:
        return spaces.check_mask(self._masks[i](info), self.action_space, f"envs: {self._name}")

    def _reset(self, i: int, **options: Any) -> tuple[Any, Mapping]:
        try:
            obs, info = self._resets[i](**options)
        except (Exception, Overdue) as error:
            raise self._raised(i, "when it was reset", error) from error
        return obs, info

    def _read(self, i: int, obs, reward, terminated, truncated) -> tuple:
        """Return what a step gave, as sound values; EnvError says what is wrong with it."""
        where = checks.place(self._name, self._first + i, self._taken)
        obs = self._read_obs(i, self._taken, obs)
        self._dtype = obs.dtype  # as it comes, so that the next one is known at a glance
        return (
            obs,
            checks.read_reward(where, reward),
            checks.read_flag(where, "terminated", terminated),
            checks.read_flag(where, "truncated", truncated),
        )

    def _read_obs(self, i: int, step: int, obs: Any) -> np.ndarray:
        where = checks.place(self._name, self._first + i, step)
        if self._rows is None or (isinstance(obs, np.ndarray) and obs.shape == self._shape):
            return checks.read_observation(where, obs, self._shape, self.obs_space)
        return self._rows[checks.read_number(where, obs, self._rows)]

    def _raised(self, i: int, when: str, error: BaseException) -> EnvFault:
        what = f"envs: {self._name}: environment {self._first + i}"
        if isinstance(error, Overdue):
            return _raised(what, f"did not answer within {self._step_timeout:g} s", when, error)
        return _raised(what, f"raised {type(error).__name__}", when, error)


def _raised(what: str, deed: str, when: str, error: BaseException) -> EnvFault:
    """Return what an environment raised as an error that begins with its own traceback."""
    frames = error.__traceback__
    while frames and frames.tb_next and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
    return EnvFault(f"{text}\n{what} {deed} {when.rstrip(',')}. Correct the environment.")


def one_hot_rows(space) -> dict[int, np.ndarray] | None:
    """Return the one-hot row of each observation of a Discrete `space`; None for another space."""
    if type(space).__name__ != "Discrete":
        return None
    return dict(enumerate(np.eye(int(space.n), dtype=np.float32), int(space.start)))


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
        self._raw_space, self._frames_first, self._taken = self.obs_space, frames_first, 0
        self._one_hot = one_hot_rows(env.single_observation_space)
        if frames_first:
            frames, *picture = self.obs_space.shape
            self.obs_space = replace(self.obs_space, shape=(*picture, frames))
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
        obs[...] = self._read_obs("when they were reset", first, self.envs)
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
        when = f"at step {self._taken}, counted from 0,"
        try:
            obs, rewards, terminated, truncated, infos = self._env.step(actions)
        except Exception as error:
            what, deed = f"envs: {self._name}: the environments", f"raised {type(error).__name__}"
            raise _raised(what, deed, when, error) from error
        where, flags = f"envs: {self._name}: the environments gave {when}", "b"
        reset_infos, was_reset = infos, self._all
        block.exact_reward[t] = checks.read_column(where, "rewards", rewards, self.envs, "buif")
        block.terminated[t] = checks.read_column(where, "terminated", terminated, self.envs, flags)
        block.truncated[t] = checks.read_column(where, "truncated", truncated, self.envs, flags)
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
                block.next_obs[t][ended] = self._read_obs(when, final, len(final))
        block.all_obs[t + 1] = self._read_obs(when, obs, self.envs)
        self._taken += 1
        if block.all_masks is not None:
            self._write_masks(block.all_masks[t + 1], infos, ~was_reset)
            self._write_masks(block.all_masks[t + 1], reset_infos, was_reset)

    def render(self) -> Any:
        """Return a frame of each environment."""
        return self._env.render()

    def close(self) -> None:
        self._env.close()

    def _read_obs(self, when: str, obs: Any, count: int) -> np.ndarray:
        """Return `count` observations in the form in which they are stored."""
        where = f"envs: {self._name}: the environments gave {when}"
        if self._one_hot is not None:
            numbers = checks.read_column(where, "observations", obs, count, "iu").tolist()
            return np.array(
                [self._one_hot[checks.read_number(where, x, self._one_hot)] for x in numbers]
            )
        space = self._raw_space
        array = checks.read_observation(where, obs, (count, *space.shape), space)
        return np.moveaxis(array, 1, -1) if self._frames_first else array

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
