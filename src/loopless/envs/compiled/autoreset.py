"""Many compiled environments side by side, each starting anew when its episode ends.

For use inside a scan: pure, no host reads, no filler rows. Every random number is a function of
(key, step number, environment), so that results depend neither on how steps are cut into chunks
nor on how many other environments run. Hosted mode's counterpart is `hosted.envs.HostedEnvs`.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from loopless.envs import VectorStep, refuse
from loopless.envs.spaces import Box, Discrete, Space, mask_width
from loopless.refusals import check_count


class CompiledEnv(Protocol):
    """What an object needs to be a compiled environment; it is hashable, and its methods are pure.

    If its actions are not one choice out of `actions`, it has an `action_space` instead. If some
    actions are not legal in every state, it may have `action_mask(state)`, a boolean for each.
    """

    @property
    def obs_shape(self) -> tuple[int, ...]: ...
    @property
    def obs_dtype(self) -> str: ...
    @property
    def actions(self) -> int: ...
    @property
    def max_steps(self) -> int | None: ...
    def reset(self, key: jax.Array) -> tuple[Any, jax.Array]: ...
    def step(self, state: Any, action: jax.Array, key: jax.Array) -> tuple: ...


class Running(NamedTuple):
    """The environments between two steps: their states, and the episodes' returns and lengths."""

    state: Any
    episode_return: jax.Array
    episode_length: jax.Array


class Draws(NamedTuple):
    """Everything random about a step: its key, and the episode that begins if one ends."""

    key: jax.Array
    state: Any
    obs: jax.Array


@dataclass(frozen=True)
class Autoreset:
    """`envs` copies of `env`, made by `autoreset`."""

    env: Any
    envs: int

    @property
    def obs_space(self) -> Box:
        return Box(tuple(self.env.obs_shape), str(jnp.dtype(self.env.obs_dtype)))

    @property
    def action_space(self) -> Space:
        return getattr(self.env, "action_space", None) or Discrete(self.env.actions)

    @property
    def max_steps(self) -> int | None:
        return self.env.max_steps

    @property
    def has_masks(self) -> bool:
        return hasattr(self.env, "action_mask")

    def mask(self, running: Running) -> jax.Array | None:
        """Return which actions are legal, [envs, n]; None if there is no `action_mask`."""
        return jax.vmap(self.env.action_mask)(running.state) if self.has_masks else None

    def reset(self, key: jax.Array) -> tuple[Running, jax.Array]:
        """Start the first episodes; also return the observations [envs, ...] to act on."""
        first, _, _ = jax.random.split(key, 3)
        state, obs = jax.vmap(self.env.reset)(self._keys(first))
        running = Running(state, jnp.zeros(self.envs, jnp.float32), jnp.zeros(self.envs, jnp.int32))
        return running, obs

    def draws(self, key: jax.Array, steps: jax.Array | int) -> Draws:
        """Return what is random about the steps numbered `steps`: one number, or [T] at once.

        Draws for a whole chunk that the scan runs over cost a fraction of draws inside the scan,
        and are the same.
        """
        # Two chains of keys, so that the compiler can drop the first if `step` reads no key.
        _, stepping, starting = jax.random.split(key, 3)

        def draw(step):
            fresh = jax.vmap(self.env.reset)(self._keys(jax.random.fold_in(starting, step)))
            return Draws(self._keys(jax.random.fold_in(stepping, step)), *fresh)

        return jax.vmap(draw)(steps) if jnp.ndim(steps) else draw(steps)

    def step(
        self, running: Running, actions: jax.Array, draws: Draws
    ) -> tuple[Running, VectorStep]:
        """Take one step of every environment; `draws` are those of this step number."""
        state, next_obs, reward, terminated, truncated = jax.vmap(self.env.step)(
            running.state, actions, draws.key
        )
        reward = reward.astype(jnp.float32)
        ended = terminated | truncated
        returns, lengths = running.episode_return + reward, running.episode_length + 1

        def after_end(fresh, old):
            return jnp.where(ended.reshape(-1, *[1] * (old.ndim - 1)), fresh, old)

        onward = Running(
            jax.tree.map(after_end, draws.state, state),
            jnp.where(ended, 0, returns),
            jnp.where(ended, 0, lengths),
        )
        obs, valid = after_end(draws.obs, next_obs), jnp.ones_like(ended)
        return onward, VectorStep(
            next_obs, reward, terminated, truncated, valid, obs, returns, lengths, self.mask(onward)
        )

    def _keys(self, key: jax.Array) -> jax.Array:
        return jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(self.envs))


def autoreset(env: CompiledEnv, envs: int = 1) -> Autoreset:
    """Return `envs` environments that start anew at every end, for use inside a scan.

        world = autoreset(make_compiled("CartPole-v1"), envs=8)
        running, obs = world.reset(key)
        draws = world.draws(key, jnp.arange(1000))
        # in the scan's body, with draws as its xs:
        running, step = world.step(running, actions, draws)

    `step.next_obs` is the true successor, `step.obs` the observation to act on. `step.mask` and
    `world.mask(running)` say which actions are legal, if the environment does. Raises EnvError
    for an environment whose `step` returns other shapes or dtypes than its `reset`.
    """
    world = Autoreset(env, envs)
    refuse(f"envs: {type(env).__name__}", check_count("envs", envs), _mismatches(world))
    return world


def _mismatches(world: Autoreset) -> list[str]:
    """Return what would not fit in a scan, by tracing the environment once."""
    env, key, space = world.env, jax.random.key(0), world.action_space
    action = jax.ShapeDtypeStruct(space.shape, jnp.dtype(space.dtype))
    first, obs = jax.eval_shape(env.reset, key)
    second, next_obs, reward, *flags = jax.eval_shape(env.step, first, action, key)
    wanted = _kind(world.obs_space)
    problems = []
    if jax.tree.structure(first) != jax.tree.structure(second):
        problems.append(f"step returns a state {second}, reset {first}")
    elif [_kind(x) for x in jax.tree.leaves(first)] != [_kind(x) for x in jax.tree.leaves(second)]:
        problems.append(f"step returns a state of {second}, reset of {first}: a scan needs one")
    problems += [
        f"{name} returns an observation of {_kind(x)}, and the environment says {wanted}"
        for name, x in (("reset", obs), ("step", next_obs))
        if _kind(x) != wanted
    ]
    if reward.shape or not jnp.issubdtype(reward.dtype, jnp.floating):
        problems.append(f"the reward is {_kind(reward)}, not one float")
    if len(flags) != 2 or any(_kind(flag) != ((), jnp.dtype(bool)) for flag in flags):
        problems.append(
            f"step ends with {[_kind(flag) for flag in flags]}, not with the booleans terminated "
            f"and truncated"
        )
    if world.has_masks:
        mask = jax.eval_shape(env.action_mask, first)
        if _kind(mask) != ((mask_width(space),), jnp.dtype(bool)):
            problems.append(
                f"action_mask is {_kind(mask)}, and {space} needs {mask_width(space)} booleans"
            )
    return problems


def _kind(x) -> tuple:
    return tuple(x.shape), jnp.dtype(x.dtype)
