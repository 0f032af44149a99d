"""Trained policies that play in Gymnasium environments; and `is_hosted`, which tells the mode."""

import os
import tempfile
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from loopless.envs import EnvError, compiled_ids, is_compiled, spaces
from loopless.runs.signals import leave_if_requested
from loopless.train.engine.episodes import LONGEST_EVALUATION

if TYPE_CHECKING:  # a compiled run needs no Gymnasium
    from loopless.envs import HostedEnvs

LONGEST_RECORDING = 2_000  # frames


def is_hosted(config: Any) -> bool:
    """Return whether a run of `config` is hosted."""
    if config.mode != "auto":
        return config.mode == "hosted"
    if config.overlap or config.vectorization != "auto" or config.wrapper:
        return True
    # The arguments of an id that Gymnasium has, too, are those of Gymnasium's environment.
    has_arguments = bool(config.env_kwargs) and config.env in compiled_ids()
    return has_arguments or not is_compiled(config.env)


def hosted_envs(config: Any, envs: int, **options: Any) -> "HostedEnvs":
    """Make environments as `config` describes them."""
    from loopless.envs import HostedEnvs

    return HostedEnvs(config.env, envs, wrappers=config.wrapper, **_arguments(config, options))


def _arguments(config: Any, options: dict[str, Any]) -> dict[str, Any]:
    return options | {"env_kwargs": {**config.env_kwargs, **options.get("env_kwargs", {})}}


class Player:
    """A trained policy, without exploration.

    weights: the arrays that the policy acts with, by name. make_policy: (config, weights, envs) →
    a policy for these environments, which is a function from observations to actions.
    """

    def __init__(
        self, config: Any, weights: Mapping[str, np.ndarray], make_policy: Callable
    ) -> None:
        self.config, self.weights, self._make_policy = config, weights, make_policy

    def policy(self, envs: "HostedEnvs") -> Any:
        """Return the policy that acts in `envs`."""
        return self._make_policy(self.config, self.weights, envs)

    def episodes(self, count: int, seed: int) -> tuple[np.ndarray, np.ndarray, int]:
        """Play `count` episodes; return their returns and lengths, and how many were cut."""
        with evaluation_envs(self.config, count, seed) as envs:
            return first_episodes(envs, self.policy(envs), self.config.eval_max_steps)

    def frames(self, seed: int) -> tuple[list[np.ndarray], float]:
        """Play one episode; return its frames, and how many of them to show a second."""
        import gymnasium

        options = {"render_mode": "rgb_array"}
        # A recording needs neither screen nor sound, and SDL would complain that there are none.
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
        os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
        try:
            with hosted_envs(self.config, 1, seed=seed, env_kwargs=options) as envs:
                policy, frames = self.policy(envs), [envs.render()[0]]
                takes_mask = envs.mask is not None and spaces.takes_mask(policy)
                while len(frames) < LONGEST_RECORDING:
                    inputs = (envs.obs, envs.mask) if takes_mask else (envs.obs,)
                    if envs.step(policy(*inputs)).ended[0]:
                        break
                    frames.append(envs.render()[0])
                return frames, envs.frame_rate
        except gymnasium.error.Error as error:  # such as a package for drawing that is missing
            raise EnvError(f"envs: {self.config.env} renders no frames: {error}") from error


def evaluation_envs(config: Any, envs: int, seed: int) -> "HostedEnvs":
    """Make environments for evaluations: in this process, unless EnvPool has to make them."""
    kind = "envpool" if config.vectorization == "envpool" else "sync"
    timeout = config.step_timeout or None
    return hosted_envs(config, envs, seed=seed, vectorization=kind, step_timeout=timeout)


def first_episodes(
    envs: "HostedEnvs", policy: Any, max_steps: int | None = None, steps: int = 100
) -> tuple[np.ndarray, np.ndarray, int]:
    """Play until each environment has ended an episode, or made `max_steps` steps.

    Returns returns and lengths [envs], and how many episodes were cut at `max_steps`: the return of
    such an episode is its sum so far. Without a limit, here or of the environment's own, it is
    LONGEST_EVALUATION. Raises Stopped as soon as a signal asks the run to stop.
    """
    returns, lengths = np.zeros(envs.envs), np.zeros(envs.envs, np.int64)
    running = np.ones(envs.envs, bool)
    most = max_steps or envs.max_steps or LONGEST_EVALUATION
    policy = _interruptible(policy)
    played = 0
    while played < most and running.any():
        count = min(steps, most - played)
        episodes = envs.collect(policy, count).episodes
        played += count
        for env, score, length in zip(
            episodes.env, episodes.episode_return, episodes.episode_length, strict=True
        ):
            if running[env]:
                returns[env], lengths[env], running[env] = score, length, False
    cut_returns, cut_lengths = envs.unfinished
    returns[running], lengths[running] = cut_returns[running], cut_lengths[running]
    return returns, lengths, int(running.sum())


def _interruptible(policy: Any) -> Any:
    """Return `policy`, which looks for a signal before each step."""

    def act(*inputs: np.ndarray) -> np.ndarray:
        leave_if_requested()
        return policy(*inputs)

    return act if spaces.takes_mask(policy) else lambda obs: act(obs)
