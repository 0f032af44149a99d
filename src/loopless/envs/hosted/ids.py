"""From a Gymnasium id to an environment, or to an error that says what to install or to type.

An environment is made without Gymnasium's checking wrappers. Its time limit is counted by whoever
steps it, which saves half of the cost of a small environment's step, unless other wrappers that
might use the limit are around it.
"""

import json
import re
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

from loopless.envs import EnvError, objects, refuse
from loopless.envs.compiled import compiled_ids, is_own_compiled
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
# Spaces of several parts, which are flattened into one vector of numbers.
COMPOUND = (
    gymnasium.spaces.Dict,
    gymnasium.spaces.Tuple,
    gymnasium.spaces.MultiDiscrete,
    gymnasium.spaces.MultiBinary,
)


@dataclass(frozen=True)
class Recipe:
    """How to make one environment, here or in another process.

    atari: apply the standard preprocessing of Machado et al. 2018: up to 30 no-ops at the start,
    every action repeated for 4 frames, the maximum of the last two frames, gray, 84 × 84, the last
    4 stacked to pictures [84, 84, 4] uint8. Rewards and lives are not changed.
    wrappers: names of the user's wrappers (`envs/objects.py`), the innermost first.
    Observations of several parts are flattened as `gymnasium.spaces.flatten` does it.
    """

    spec: EnvSpec
    kwargs: Mapping[str, Any]
    atari: bool = False
    wrappers: tuple[str, ...] = ()

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
                if spec.entry_point == _ATARI_ENTRY:
                    _silence_emulator()
                env = gymnasium.make(spec, **kwargs)
                env = _preprocess(env) if self.atari else env
                for name in self.wrappers:
                    env = _wrap(env, name, self.env_id)
                space: Any = env.observation_space
                flatten = isinstance(space, COMPOUND) and space.is_np_flattenable
                return gymnasium.wrappers.FlattenObservation(env) if flatten else env
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
            if any(name.startswith(objects.PREFIX) for name in self.wrappers):
                raise ValueError("a wrapper is not in a module")
            return json.dumps(parts | {"wrappers": self.wrappers})
        except (TypeError, ValueError) as error:
            raise EnvError(
                f"envs: {self.env_id} cannot be made in another process: {error}. Register it with "
                f"a text entry point (module:Class) and plain env_kwargs, or use "
                f"vectorization='sync'."
            ) from error

    @classmethod
    def from_json(cls, text: str) -> "Recipe":
        parts = json.loads(text)
        spec, wrappers = EnvSpec.from_json(parts["spec"]), tuple(parts["wrappers"])
        return cls(spec, parts["kwargs"], parts["atari"], wrappers)

    @property
    def _is_bare(self) -> bool:
        return not self.spec.additional_wrappers and not self.wrappers


def recipe(
    env_id: str,
    env_kwargs: Mapping[str, Any] | None = None,
    preprocess: str = "auto",
    wrappers: tuple[str, ...] = (),
) -> Recipe:
    """Return how to make `env_id`; EnvError with the nearest names if it is not registered."""
    spec = find(env_id)
    is_atari = spec.entry_point == _ATARI_ENTRY
    if preprocess == "atari" and not is_atari:
        raise EnvError(f"envs: preprocess='atari', but {env_id} is not an Atari game.")
    kwargs = dict(env_kwargs or {})
    if kwargs.get("max_episode_steps") is not None:
        refuse(f"envs: {env_id}", check_count("max_episode_steps", kwargs["max_episode_steps"]))
    return Recipe(spec, kwargs, is_atari and preprocess != "none", tuple(wrappers))


def find(env_id: str) -> EnvSpec:
    """Return the spec of a registered id, or of "module:Name", which imports the module first.

    Name is an id that the module registers, or a class or function in it that makes environments.
    """
    module, _, name = env_id.rpartition(":")
    if name.startswith("loopless/"):  # whatever module of ours an older configuration names
        import_module("loopless.envs.worlds.gym")
        import_module("loopless.envs.grids.gym")
    elif is_own_compiled(env_id):
        # Played, evaluated and exported like any other: as a Gymnasium environment.
        home = "loopless.envs.compiled.gym:CompiledGymEnv"
        return EnvSpec(_plain(env_id), entry_point=home, kwargs={"compiled": env_id})
    elif module:
        maker: Any = objects.find(env_id)
        if name not in gymnasium.registry and callable(maker):
            is_kept = env_id.startswith(objects.PREFIX)
            entry: Any = maker if is_kept else env_id
            return EnvSpec(_plain(env_id), entry_point=entry)
    if name not in gymnasium.registry and find_spec("ale_py"):
        import_module("ale_py")  # registers its games
    spec = gymnasium.registry.get(name)
    if spec is None:
        raise EnvError(_unknown(name))
    return spec


def _plain(env_id: str) -> str:
    """Return a name that Gymnasium accepts as an id."""
    return re.sub(r"[^\w.:-]", "-", env_id)


def _wrap(env: gymnasium.Env, name: str, env_id: str) -> gymnasium.Env:
    wrapped = objects.load(name, "wrapper")(env)
    if not isinstance(wrapped, gymnasium.Env):
        raise EnvError(
            f"envs: {env_id}: the wrapper {name} must return an environment; received "
            f"{type(wrapped).__name__}."
        )
    return wrapped


def flat_layout(space: gymnasium.Space, path: str = "", first: int = 0) -> list[dict[str, Any]]:
    """Return what the numbers of a flattened observation are, as `gymnasium.spaces` orders them.

    Each part has its `name`, and its numbers from `first` to before `last`.
    """
    if isinstance(space, gymnasium.spaces.Dict):
        parts = [(f"{path}.{name}".strip("."), part) for name, part in space.spaces.items()]
    elif isinstance(space, gymnasium.spaces.Tuple):
        parts = [(f"{path}[{i}]", part) for i, part in enumerate(space.spaces)]
    else:
        last = first + gymnasium.spaces.flatdim(space)
        is_one_hot = isinstance(space, gymnasium.spaces.Discrete | gymnasium.spaces.MultiDiscrete)
        kind = "one-hot" if is_one_hot else "numbers"
        return [{"name": path or "all", "first": first, "last": last, "kind": kind}]
    layout: list[dict[str, Any]] = []
    for name, part in parts:
        layout += flat_layout(part, name, layout[-1]["last"] if layout else first)
    return layout


def describe_flat(env: gymnasium.Env) -> str:
    """Return how the observations of `env` were flattened, in words; "" if they were not."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.wrappers.FlattenObservation):
            parts = flat_layout(env.env.observation_space)
            listed = ", ".join(
                f"{part['name']} {part['first']} to {part['last'] - 1} ({part['kind']})"
                for part in parts[:20]
            )
            more = f" and {len(parts) - 20} more parts" if len(parts) > 20 else ""
            return f"Observations are flattened: {listed}{more}."
        env = env.env
    return ""


def _unknown(name: str) -> str:
    text = f"envs: no environment {name!r} is registered."
    if name.startswith("ALE/") and not find_spec("ale_py"):
        return f'{text} Atari games come with ale-py: pip install "loopless[atari]".'
    near = did_you_mean(name, {*gymnasium.registry, *compiled_ids()}, most=3)
    return f"{text}{near} Ids of other packages are written module:Id."


def _missing(spec: EnvSpec, error: Exception) -> str:
    home = spec.entry_point if isinstance(spec.entry_point, str) else ""
    extra = next((extra for start, extra in _EXTRAS.items() if home.startswith(start)), None)
    # Our extra for games has OpenCV too, with which the preprocessing resizes.
    package = "loopless[atari]" if extra == "atari" else f"gymnasium[{extra}]"
    todo = f'pip install "{package}"' if extra else "Install the package that it names"
    reason = str(error).rstrip(". ")
    advice = "" if extra and package in reason else f" {todo}."
    return f"envs: {spec.id} needs a package that is not installed: {reason}.{advice}"


def _silence_emulator() -> None:
    """Keep the emulator's banner, one for each environment, out of the terminal."""
    ale_py = import_module("ale_py")
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


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
