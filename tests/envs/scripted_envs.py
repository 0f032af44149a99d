"""Environments whose every number is known, so that a test can say what should come out.

Entered in Gymnasium's registry by text entry points, so that worker processes find them.
"""

import os
import signal

import gymnasium
import numpy as np


class Scripted(gymnasium.Env):
    """Episodes of given lengths and ends, in turn; an observation is (id, episode, step, action).

    ends: [(length, kind), ...] with kind "terminated", "truncated" or "both". `id` is drawn from
    the seed, so that sub-environments can be told apart.
    """

    metadata = {"render_modes": []}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float64)
    action_space = gymnasium.spaces.Discrete(5)

    def __init__(self, ends=((3, "terminated"), (2, "truncated"), (1, "both"))):
        self.ends, self.episode, self.count = ends, -1, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.name, self.episode = int(self.np_random.integers(1000)), -1
        self.episode, self.count = self.episode + 1, 0
        return self._obs(-1), {"reset": True}

    def step(self, action):
        self.count += 1
        length, kind = self.ends[self.episode % len(self.ends)]
        ended = self.count >= length
        terminated, truncated = ended and kind != "truncated", ended and kind != "terminated"
        reward = 100 * self.episode + 10 * self.count + 0.1 * action
        return self._obs(action), reward, terminated, truncated, {"count": self.count}

    def _obs(self, action):
        return np.array([self.name, self.episode, self.count, action], np.float64)


class Bad(gymnasium.Env):
    """Goes wrong at step `at` in the way that is asked for."""

    metadata = {"render_modes": []}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, at=3, how="reward", number=float("nan")):
        self.at, self.how, self.number, self.count = at, how, number, 0
        self.resets = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count, self.resets = 0, self.resets + 1
        obs = np.zeros(3 if self.how == "shape" else 2, np.float32)
        bad = self.how == "start" or (self.how == "later start" and self.resets > 1)
        return obs + (self.number if bad else 0), {}

    def step(self, action):
        obs, reward, now = np.zeros(2, np.float32), 1.0, self.count == self.at
        self.count += 1
        if now and self.how == "reward":
            reward = self.number
        elif now and self.how == "observation":
            obs[1] = self.number
        elif now and self.how == "raise":
            raise OSError("the simulator is out of paper")
        elif now and self.how == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return obs, reward, False, False, {}


class Spaces(gymnasium.Env):
    """Any spaces; the observation is a fixed one, and actions are kept."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, observation_space=None, action_space=None, obs=None):
        self.observation_space, self.action_space, self.obs = observation_space, action_space, obs
        self.taken = []

    def reset(self, *, seed=None, options=None):
        return self.obs, {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.taken.append(action)
        return self.obs, 0.0, False, False, {}


for name in ("Scripted", "Bad", "Spaces"):
    if f"tests/{name}-v0" not in gymnasium.registry:
        gymnasium.register(f"tests/{name}-v0", f"{__name__}:{name}")
if "tests/Limited-v0" not in gymnasium.registry:
    gymnasium.register("tests/Limited-v0", f"{__name__}:Scripted", max_episode_steps=2)
