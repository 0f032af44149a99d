"""Any Gymnasium environment, vectorized, in the form that trainers use.

Every step is experience with its true successor, or is marked as not valid; terminations and
truncations are kept apart; returns and lengths of episodes are counted here. JAX is never imported.
What steps the environments is `loops.EnvLoop`, `loops.VectorLoop` or `workers.Workers`.
"""

import math
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from loopless.envs import EnvError, NonFiniteError, VectorStep, refuse, spaces
from loopless.envs.hosted import ids, loops
from loopless.envs.hosted.blocks import Block, Tally
from loopless.envs.hosted.workers import Workers
from loopless.envs.spaces import Box, Space, choices
from loopless.refusals import check_choice, check_count

VECTORIZATIONS = ("auto", "sync", "async", "native", "envpool")
PREPROCESSING = ("auto", "atari", "none")


class Loop(Protocol):
    """What steps the environments: `EnvLoop`, `Workers` or `VectorLoop`."""

    obs_space: Box
    action_space: Space
    max_steps: int | None
    gives_final_obs: bool

    def reset(self, seeds, obs: np.ndarray) -> np.ndarray | None: ...
    def step(self, t: int, block: Block) -> None: ...
    def render(self) -> Any: ...
    def close(self) -> None: ...


class HostedEnvs:
    """`envs` environments of a Gymnasium id.

    env_id: a registered id, or "module:Id".
    vectorization: "sync" steps them in this process; "async" in worker processes that share its
        memory; "native" by the id's own vector environment; "envpool" by envpool's. "auto" is
        "sync". Sync and async give the same experience; the others draw their own random numbers.
    seed: makes a seed for each environment; neighboring seeds share none of these.
    env_kwargs: for the environment's constructor, and `max_episode_steps`.
    preprocess: "auto" gives Atari games the standard preprocessing (`ids.Recipe`), "none" does not.
    wrappers: "module:Class" of each wrapper ("sync" and "async"), the innermost first.
    workers: processes of "async"; by default one per core.
    step_timeout: seconds that a step or reset of one environment may take ("sync" and "async").

        with HostedEnvs("CartPole-v1", envs=8, seed=0) as world:
            block = world.collect(policy, steps=100)     # policy: obs [8, 4] → actions [8]

    If the environments say which actions are legal (`spaces.py`), `mask` [envs, n] belongs to
    `obs`, blocks have `all_masks`, and a policy that takes two arguments gets (obs, mask).
    An environment's state cannot be saved: after a resume, `restart` it with a new seed.
    What the environments return is checked at every step. Numbers outside an observation space are
    counted in `outside`, and `first_outside` says where the first was.
    `env_seconds` and `act_seconds` sum up the time spent in environments and in the policy.
    """

    def __init__(
        self,
        env_id: str,
        envs: int = 1,
        *,
        vectorization: str = "auto",
        seed: int = 0,
        env_kwargs: Mapping[str, Any] | None = None,
        preprocess: str = "auto",
        wrappers: tuple[str, ...] = (),
        workers: int | None = None,
        step_timeout: float | None = None,
    ) -> None:
        timeout_is_fine = step_timeout is None or 0 < step_timeout < math.inf
        stepped_here = vectorization in ("auto", "sync", "async")
        refuse(
            f"envs: {env_id}",
            check_count("envs", envs),
            check_count("seed", seed, 0),
            check_choice("vectorization", vectorization, VECTORIZATIONS),
            check_choice("preprocess", preprocess, PREPROCESSING),
            [] if workers is None else check_count("workers", workers),
            []
            if timeout_is_fine
            else [f"step_timeout must be positive seconds; received {step_timeout}"],
            []
            if step_timeout is None or stepped_here
            else [
                f"step_timeout needs vectorization 'sync' or 'async'; received {vectorization!r}"
            ],
            []
            if not wrappers or stepped_here
            else [f"wrappers need vectorization 'sync' or 'async'; received {vectorization!r}"],
        )
        self.vectorization = "sync" if vectorization == "auto" else vectorization
        if vectorization == "envpool":
            loop: Loop = loops.envpool(env_id, envs, dict(env_kwargs or {}))
        else:
            recipe = ids.recipe(env_id, env_kwargs, preprocess, wrappers)
            if vectorization == "native":
                loop = loops.native(recipe, envs)
            elif vectorization == "async":
                loop = Workers(recipe, envs, workers, step_timeout)
            else:
                loop = loops.EnvLoop(recipe, envs, step_timeout=step_timeout)
        self._begin(env_id, envs, loop, seed)

    @classmethod
    def around(cls, env: Any, *, seed: int = 0) -> "HostedEnvs":
        """Wrap a vector environment that you made yourself, of any autoreset mode."""
        self = cls.__new__(cls)
        self.vectorization = "native"
        loop = loops.VectorLoop(type(env).__name__, lambda _: env)
        self._begin(type(env).__name__, loop.envs, loop, seed)
        return self

    def _begin(self, env_id: str, envs: int, loop: Loop, seed: int) -> None:
        self.env_id = env_id
        self.envs = envs
        self.obs_space, self.action_space = loop.obs_space, loop.action_space
        self.max_steps = loop.max_steps
        self.flattened: str = getattr(loop, "flattened", "")
        self.obs = np.zeros((envs, *self.obs_space.shape), self.obs_space.dtype)
        self.mask: np.ndarray | None = None
        self.steps = self.outside = 0
        self.first_outside = ""
        self.env_seconds = self.act_seconds = 0.0
        self._loop, self._closed = loop, False
        self._blocks: dict[int, Block] = {}
        try:
            self.restart(seed)
            empty = self.block(1)  # counts nothing, but loads the kernels now
            empty.finish(True)
            self._tally.count(empty)
        except BaseException:
            self.close()
            raise

    @property
    def obs_shape(self) -> tuple[int, ...]:
        return self.obs_space.shape

    @property
    def obs_dtype(self) -> str:
        return self.obs_space.dtype

    @property
    def actions(self) -> int:
        """Return the number of discrete actions; EnvError if they are of another kind."""
        return choices(self.action_space, f"envs: {self.env_id}")

    def restart(self, seed: int) -> None:
        """Drop all running episodes and start anew from `seed`."""
        # 31 bits, because the seeds of some emulators are C integers
        seeds = np.random.SeedSequence(seed).generate_state(self.envs) >> 1
        self._refuse_if_closed()
        mask = self._loop.reset(seeds.tolist(), self.obs)
        self.mask = None if mask is None else mask.copy()
        self._refuse_non_finite("first observation", self.obs[None])
        self._tally = Tally(self.envs)

    def block(self, steps: int) -> Block:
        """Return arrays for `collect(out=...)`."""
        refuse(f"envs: {self.env_id}", check_count("steps", steps))
        width = 0 if self.mask is None else spaces.mask_width(self.action_space)
        return Block(steps, self.envs, self.obs_space, self.action_space, masks=width)

    def collect(self, policy: Callable[..., Any], steps: int, *, out: Block | None = None) -> Block:
        """Act by `policy` for `steps` steps of all environments; return a `Block` of them.

        policy: observations [envs, ...] → actions [envs, ...]; the observations are a view that
        does not change until the block is written again. If there are masks [envs, n], they are
        its second argument, unless it takes only one. Without `out`, calls with the same `steps`
        write into the same block, so use or copy it before the next call.
        """
        if out is None:
            if steps not in self._blocks:
                self._blocks[steps] = self.block(steps)
            out = self._blocks[steps]
        if (out.steps, out.envs) != (steps, self.envs):
            raise EnvError(
                f"envs: {self.env_id}: out holds {out.steps} steps of {out.envs} environments, not "
                f"{steps} of {self.envs}."
            )
        if (out.all_masks is None) != (self.mask is None):
            raise EnvError(
                f"envs: {self.env_id}: out and the environments must both have action masks, or "
                f"neither. Make it by block({steps}) after the first reset."
            )
        self._refuse_if_closed()
        observations, actions, step, action = out.all_obs, out.action, self._loop.step, None
        out.begin(self.obs, self.mask)
        if out.all_masks is not None and spaces.takes_mask(policy):
            policy = _with_masks(policy, out.all_masks)
        acting = stepping = 0.0
        now = perf_counter()
        for t in range(steps):
            actions[t] = action = policy(observations[t])
            acted = perf_counter()
            acting += acted - now
            step(t, out)
            now = perf_counter()
            stepping += now - acted
        self._refuse_misfit(action)
        self._finish(out)
        self.act_seconds += acting
        self.env_seconds += stepping + (perf_counter() - now)
        return out

    @property
    def unfinished(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the returns so far of the running episodes, and their lengths: [envs] each."""
        return self._tally.returns.copy(), self._tally.lengths.copy()

    def step(self, actions: Any) -> VectorStep:
        """Take one step of all environments, into fresh arrays."""
        block = self.collect(lambda _: actions, 1, out=self.block(1))
        returns, lengths = self.unfinished
        returns[block.episodes.env] = block.episodes.episode_return
        lengths[block.episodes.env] = block.episodes.episode_length
        return VectorStep(
            block.next_obs[0],
            block.reward[0],
            block.terminated[0],
            block.truncated[0],
            block.valid[0],
            block.last_obs,
            returns,
            lengths,
            block.last_mask,
        )

    def render(self) -> Any:
        """Return a frame of each environment, if env_kwargs has render_mode="rgb_array"."""
        return self._loop.render()

    @property
    def frame_rate(self) -> float:
        """Return how many frames make a second."""
        return getattr(self._loop, "frame_rate", 30.0)

    def close(self) -> None:
        """Close the environments and end their processes; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self._loop.close()

    def __enter__(self) -> "HostedEnvs":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _finish(self, block: Block) -> None:
        finite, outside = block.finish(self._loop.gives_final_obs)
        if not finite:
            self._refuse_non_finite("reward", block.reward)
            self._refuse_non_finite("observation", block.next_obs)
            self._refuse_non_finite("observation", block.all_obs[1:])
        block.episodes = self._tally.count(block)
        self.obs[...] = block.last_obs
        if self.mask is not None:
            self.mask[...] = block.last_mask
        if outside and not self.outside:
            self.first_outside = self._describe_outside(block.next_obs)
        self.outside += outside
        self.steps += block.steps

    def _describe_outside(self, obs: np.ndarray) -> str:
        """Return in words the first number of `obs` [steps, envs, ...] that is out of bounds."""
        flat, (low, high) = obs.reshape(*obs.shape[:2], -1), self.obs_space.bounds()
        t, env, i = np.argwhere((flat < low) | (flat > high))[0].tolist()
        return (
            f"envs: {self.env_id}: environment {env} gave {flat[t, env, i]:g} as number {i} of its "
            f"observation at its step {self.steps + t}; its observation_space says from "
            f"{low[i]:g} to {high[i]:g}. Such numbers are counted, and used as they are."
        )

    def _refuse_misfit(self, actions: Any) -> None:
        space, actions = self.action_space, np.asarray(actions)
        wanted = (self.envs, *space.shape)
        kinds = "f" if isinstance(space, Box) else "iu"
        if actions.shape != wanted or actions.dtype.kind not in kinds:
            raise EnvError(
                f"envs: {self.env_id}: the policy gave {actions.dtype} actions of shape "
                f"{actions.shape}; {space} and {self.envs} environments need {wanted}."
            )

    def _refuse_non_finite(self, name: str, values: np.ndarray) -> None:
        if values.dtype.kind != "f" or np.isfinite(values).all():
            return
        t, env, *_ = np.argwhere(~np.isfinite(values))[0].tolist()
        raise NonFiniteError(
            f"envs: {self.env_id}: environment {env} gave the {name} {values[t, env]} at its step "
            f"{self.steps + t}, counted from 0 since it was made. Correct the environment.",
            env=env,
            step=self.steps + t,
        )

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise EnvError(f"envs: {self.env_id} is closed. Make new ones.")


def _with_masks(policy: Callable[..., Any], all_masks: np.ndarray) -> Callable[[np.ndarray], Any]:
    """Return `policy` with the masks of one step after the other as its second argument."""
    rows = iter(all_masks)
    return lambda obs: policy(obs, next(rows))
