"""Environments whose every number is known, so that a test can say what should come out.

They are registered with Gymnasium by text entry points, so that worker processes find them.
"""

import ctypes
import os
import signal
import time

import gymnasium
import numpy as np


class Scripted(gymnasium.Env):
    """Episodes of known lengths and ends, in turn; an observation is (id, episode, step, action).

    ends: [(length, kind), ...] with kind "terminated", "truncated" or "both". The id is drawn from
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


def legal(obs, n=5):
    """Return the masks that belong to observations [..., 4]: one action in three is illegal."""
    return (np.asarray(obs)[..., :3].sum(-1)[..., None] + np.arange(n)) % 3 != 0


class Legal(Scripted):
    """`Scripted` with action masks in `info`, which follow from its observations.

    how: "info", as an array; "list", as a list; "missing", not from an episode's second step on.
    """

    def __init__(self, how="info", n=5, sizes=None, **options):
        super().__init__(**options)
        self.how, self.n = how, sum(sizes) if sizes else n
        if sizes:
            self.action_space = gymnasium.spaces.MultiDiscrete(sizes)

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        return obs, info | self.told(obs)

    def step(self, action):
        obs, *others, info = super().step(np.ravel(action)[0])
        return obs, *others, info | self.told(obs)

    def told(self, obs):
        if self.how == "missing" and self.count > 1:
            return {}
        mask = legal(obs, self.n)
        return {"action_mask": mask.tolist() if self.how == "list" else mask.astype(np.int8)}


class LegalMethod(Scripted):
    """`Scripted` with the same masks, from a method `action_masks`."""

    def action_masks(self):
        return legal(self._obs(0))


class Echo(gymnasium.Env):
    """An environment whose observation is the last action, which must be in its action space."""

    metadata = {"render_modes": []}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float64)

    def __init__(self, kind="Box"):
        spaces = gymnasium.spaces
        self.action_space = {
            "Box": spaces.Box(np.array([-1.0, 0.0]), np.array([1.0, 2.0]), dtype=np.float64),
            "MultiDiscrete": spaces.MultiDiscrete([3, 4]),
        }[kind]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2), {}

    def step(self, action):
        assert self.action_space.contains(action), (action, action.dtype)
        return np.array(action, np.float64), float(action[0]), False, False, {}


def many_echoes(num_envs, kind="Box"):
    """Return a native vector environment of `Echo`."""
    return gymnasium.vector.SyncVectorEnv([lambda: Echo(kind)] * num_envs)


# What a step may wrongly return, and its place among (obs, reward, terminated, truncated).
WRONG = {
    "an observation that is one number": (0, np.float32(0.5)),
    "an observation of one number": (0, np.zeros(1, np.float32)),
    "an observation of two rows": (0, np.zeros((2, 2), np.float32)),
    "an observation of complex numbers": (0, np.zeros(2, complex)),
    "an observation of text": (0, np.array(["a", "b"])),
    "a ragged observation": (0, [1.0, [2.0]]),
    "no observation": (0, None),
    "a reward as text": (1, "1.0"),
    "a reward as an array": (1, np.ones(1)),
    "no reward": (1, None),
    "a complex reward": (1, 1j),
    "a flag as text": (2, "False"),
    "a flag as an array": (2, np.zeros(1, bool)),
    "no flag": (3, None),
    "a flag of two": (3, 2),
}


class Bad(gymnasium.Env):
    """An environment that goes wrong at step `at`, or at a reset, in the way that `how` says."""

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
        elif now and self.how == "sleep":
            time.sleep(1000)
        elif now and self.how == "loop":
            while True:
                pass
        elif now and self.how == "hold the lock":
            mutex, libc = ctypes.create_string_buffer(64), ctypes.PyDLL(None)
            libc.pthread_mutex_lock(mutex)
            libc.pthread_mutex_lock(mutex)  # C code that never lets another thread run
        elif now and self.how == "four":
            return obs, reward, False, {}
        elif now and self.how in WRONG:
            place, value = WRONG[self.how]
            returned = [obs, reward, False, False, {}]
            returned[place] = value
            return tuple(returned)
        return obs, reward, False, False, {}


class Bytes(gymnasium.Env):
    """An environment whose space has bytes, and which returns `numbers` of another dtype."""

    metadata = {"render_modes": []}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(0, 255, (2,), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, numbers=(1, 2), dtype="uint8"):
        self.numbers = list(numbers) if dtype == "list" else np.array(numbers, dtype)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.uint8), {}

    def step(self, action):
        return self.numbers, 0.0, False, False, {}


class Spaces(gymnasium.Env):
    """An environment of any spaces; its observation is fixed, and it records the actions."""

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


for name in ("Scripted", "Legal", "LegalMethod", "Echo", "Bad", "Bytes", "Spaces"):
    if f"tests/{name}-v0" not in gymnasium.registry:
        gymnasium.register(f"tests/{name}-v0", f"{__name__}:{name}")
if "tests/Echoes-v0" not in gymnasium.registry:
    gymnasium.register("tests/Echoes-v0", vector_entry_point=f"{__name__}:many_echoes")
if "tests/Limited-v0" not in gymnasium.registry:
    gymnasium.register("tests/Limited-v0", f"{__name__}:Scripted", max_episode_steps=2)
