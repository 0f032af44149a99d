"""From a Gymnasium id to an environment, or to an error that says what to install or to type.

An environment is made without Gymnasium's checking wrappers. Its time limit is counted by whoever
steps it, which saves half of the cost of a small environment's step, unless other wrappers that
might use the limit are around it.
"""

import json
import warnings
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from loopless.envs import EnvError, refuse
from loopless.envs.compiled import compiled_ids
from loopless.envs.spaces import Box
from loopless.refusals import check_count, did_you_mean

_EXTRAS = {
    "gymnasium.envs.box2d": "box2d",
    "gymnasium.envs.mujoco": "mujoco",
    "gymnasium.envs.toy_text": "toy-text",
    "gymnasium.envs.classic_control": "classic-control",
    "gymnasium.envs.phys2d": "jax",
    "gymnasium.envs.tabular": "jax",
    "ale_py": "atari",
}
_ATARI_ENTRY = "ale_py.env:AtariEnv"


@dataclass(frozen=True)
class Recipe:
    """How to make one environment, here or in another process.

    atari: apply the standard preprocessing of Machado et al. 2018: up to 30 no-ops at the start,
    every action repeated for 4 frames, the maximum of the last two frames, gray, 84 × 84, the last
    4 stacked to pictures [84, 84, 4] uint8. Rewards and lives are not changed.
    """

    spec: EnvSpec
    kwargs: Mapping[str, Any]
    atari: bool = False

    @property
    def env_id(self) -> str:
        return self.spec.id

    @property
    def limit(self) -> int | None:
        """Return after how many steps the caller must truncate an episode; None if it must not."""
        return self.max_steps if self._is_bare else None

    @property
    def max_steps(self) -> int | None:
        """Return after how many steps an episode is truncated; None if Gymnasium does not know."""
        limit = self.kwargs.get("max_episode_steps")
        return self.spec.max_episode_steps if limit is None else limit

    def make(self) -> gymnasium.Env:
        """Make the environment, without the wrappers that only check."""
        spec, kwargs = deepcopy(self.spec), dict(self.kwargs)
        spec.disable_env_checker = True
        if self._is_bare:
            spec.order_enforce, spec.max_episode_steps = False, None
            kwargs.pop("max_episode_steps", None)
        if self.atari:
            kwargs["frameskip"] = 1  # the preprocessing skips frames itself
        try:
            # Box2D's types warn as they load, which ends the process if warnings are errors.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                env = gymnasium.make(spec, **kwargs)
                return _preprocess(env) if self.atari else env
        except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
            raise EnvError(_missing(self.spec, error)) from error
        except TypeError as error:
            if kwargs and "argument" in str(error):
                raise EnvError(f"envs: {self.env_id}: {error}. Check env_kwargs.") from error
            raise

    def to_json(self) -> str:
        """Return the recipe as JSON for another process; EnvError if it cannot be written."""
        try:
            parts = {"spec": self.spec.to_json(), "kwargs": dict(self.kwargs), "atari": self.atari}
            return json.dumps(parts)
        except (TypeError, ValueError) as error:
            raise EnvError(
                f"envs: {self.env_id} cannot be made in another process: {error}. Register it with "
                f"a text entry point (module:Class) and plain env_kwargs, or use "
                f"vectorization='sync'."
            ) from error

    @classmethod
    def from_json(cls, text: str) -> "Recipe":
        parts = json.loads(text)
        return cls(EnvSpec.from_json(parts["spec"]), parts["kwargs"], parts["atari"])

    @property
    def _is_bare(self) -> bool:
        return not self.spec.additional_wrappers


def recipe(env_id: str, env_kwargs: Mapping[str, Any] | None = None, preprocess: str = "auto"):
    """Return how to make `env_id`; EnvError with the nearest names if it is not registered."""
    spec = find(env_id)
    is_atari = spec.entry_point == _ATARI_ENTRY
    if preprocess == "atari" and not is_atari:
        raise EnvError(f"envs: preprocess='atari', but {env_id} is not an Atari game.")
    kwargs = dict(env_kwargs or {})
    if kwargs.get("max_episode_steps") is not None:
        refuse(f"envs: {env_id}", check_count("max_episode_steps", kwargs["max_episode_steps"]))
    return Recipe(spec, kwargs, is_atari and preprocess != "none")


def find(env_id: str) -> EnvSpec:
    """Return the spec of a registered id; "module:Id" imports the module first."""
    module, _, name = env_id.rpartition(":")
    if name.startswith("loopless/"):  # whatever module of ours an older configuration names
        import_module("loopless.envs.worlds.gym")
        import_module("loopless.envs.grids.gym")
    elif module:
        try:
            import_module(module)
        except ImportError as error:
            raise EnvError(f"envs: {env_id}: importing {module} failed: {error}.") from error
    if name not in gymnasium.registry and find_spec("ale_py"):
        import_module("ale_py")  # registers its games
    spec = gymnasium.registry.get(name)
    if spec is None:
        raise EnvError(_unknown(name))
    return spec


def _unknown(name: str) -> str:
    text = f"envs: no environment {name!r} is registered."
    if name.startswith("ALE/") and not find_spec("ale_py"):
        return f'{text} Atari games come with ale-py: pip install "gymnasium[atari,other]".'
    near = did_you_mean(name, {*gymnasium.registry, *compiled_ids()}, most=3)
    return f"{text}{near} Ids of other packages are written module:Id."


def _missing(spec: EnvSpec, error: Exception) -> str:
    home = spec.entry_point if isinstance(spec.entry_point, str) else ""
    extra = next((extra for start, extra in _EXTRAS.items() if home.startswith(start)), None)
    if extra == "atari":
        extra = "atari,other"  # the preprocessing resizes with OpenCV
    todo = f'pip install "gymnasium[{extra}]"' if extra else "Install the package that it names"
    return f"envs: {spec.id} needs a package that is not installed: {error}. {todo}."


def count_frames(env: gymnasium.Env, obs: Box) -> int:
    """Return of how many frames a picture of `env` is a stack, 1 if none; 0 if it is no picture."""
    if not obs.is_image:
        return 0
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.wrappers.FrameStackObservation):
            return env.stack_size if obs.shape[-1] % env.stack_size == 0 else 1
        env = env.env
    return 1


def _preprocess(env: gymnasium.Env) -> gymnasium.Env:
    from gymnasium import wrappers

    env = wrappers.FrameStackObservation(wrappers.AtariPreprocessing(env), 4)
    space = gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8)
    return wrappers.TransformObservation(env, lambda frames: np.moveaxis(frames, 0, -1), space)
