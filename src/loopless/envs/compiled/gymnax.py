"""Environments of gymnax, `gymnax:Breakout-MinAtar`, as compiled environments of ours.

Their own `step` starts a new episode at once, and hides the observation at the end of the old one;
up to version 0.0.9 it also has one flag for both kinds of end. `step_env` does neither. There the
time limit is a parameter like any other: with one that is never reached, only true ends are left.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp

from loopless.envs import EnvError
from loopless.envs.spaces import Box, Discrete, Space
from loopless.refusals import did_you_mean

NEVER = 2**31 - 1


@dataclass(frozen=True, eq=False)
class GymnaxEnv:
    """A gymnax environment with its parameters, as `envs.compiled.autoreset` takes it."""

    env: Any
    params: Any

    @property
    def max_steps(self) -> int | None:
        return getattr(self.params, "max_steps_in_episode", None)

    @cached_property
    def _first(self) -> tuple[Any, Any]:
        """The shapes and dtypes of (observation, state) after a reset."""
        return jax.eval_shape(lambda key: self.env.reset_env(key, self.params), jax.random.key(0))

    @property
    def obs_shape(self) -> tuple[int, ...]:
        return self._first[0].shape

    @property
    def obs_dtype(self) -> str:
        return "uint8" if self._first[0].dtype == jnp.uint8 else "float32"

    @property
    def actions(self) -> int:
        space = self.env.action_space(self.params)
        if not hasattr(space, "n"):
            raise EnvError(f"envs: gymnax:{self.env.name}: actions are not Discrete; use ppo.")
        return int(space.n)

    @property
    def action_space(self) -> Space:
        space = self.env.action_space(self.params)
        if hasattr(space, "n"):
            return Discrete(int(space.n))
        if not hasattr(space, "low"):
            raise EnvError(
                f"envs: gymnax:{self.env.name}: actions are a {type(space).__name__}, which is not "
                f"supported."
            )
        low, high = (_bound(x) for x in (space.low, space.high))
        return Box(tuple(space.shape), "float32", low, high)

    def reset(self, key: jax.Array) -> tuple[Any, jax.Array]:
        """Start an episode."""
        obs, state = self.env.reset_env(key, self.params)
        return _typed_as(state, self._first[1]), obs.astype(self.obs_dtype)

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> tuple:
        """Return (state, obs, reward, terminated, truncated)."""
        params = self.params
        if hasattr(self.env, "is_truncated"):  # from version 1.0 on
            obs, after, reward, terminated, _ = self.env.step_env(key, state, action, params)
            truncated = self.env.is_truncated(after, params)
        else:
            endless = params.replace(max_steps_in_episode=NEVER) if self.max_steps else params
            obs, after, reward, terminated, _ = self.env.step_env(key, state, action, endless)
            truncated = after.time >= self.max_steps if self.max_steps else False
        return (
            _typed_as(after, self._first[1]),
            obs.astype(self.obs_dtype),
            jnp.asarray(reward, jnp.float32).reshape(()),
            jnp.asarray(terminated, bool).reshape(()),
            jnp.asarray(truncated, bool).reshape(()),
        )


def make_gymnax(env_id: str, **options: Any) -> GymnaxEnv:
    """Return the environment that gymnax knows by that id, with its parameters changed."""
    try:
        import gymnax
    except ImportError as error:
        raise EnvError(
            f"envs: gymnax:{env_id} needs gymnax, which could not be imported ({error}): "
            f"pip install gymnax."
        ) from error
    known = list(gymnax.registered_envs)
    if env_id not in known:
        hint = did_you_mean(env_id, known, most=3, or_list=True)
        raise EnvError(f"envs: gymnax has no environment {env_id!r}.{hint}")
    made: tuple[Any, Any] = gymnax.make(env_id)
    env, params = made
    names = set(getattr(params, "__dataclass_fields__", ()))
    if unknown := sorted(set(options) - names):
        raise EnvError(
            f"envs: gymnax:{env_id} has no parameter {', '.join(unknown)}. It has "
            f"{', '.join(sorted(names))}."
        )
    return GymnaxEnv(env, params.replace(**options) if options else params)


def _typed_as(state: Any, first: Any) -> Any:
    """Return `state` with the dtypes that it has after a reset: a scan needs the same."""
    return jax.tree.map(lambda x, like: jnp.asarray(x, like.dtype), state, first)


def _bound(x: Any) -> float | tuple[float, ...]:
    flat = jnp.asarray(x, jnp.float32).reshape(-1).tolist()
    return flat[0] if len(set(flat)) == 1 else tuple(flat)
