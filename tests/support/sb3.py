"""Pairs of models, Stable-Baselines3's own and ours, with equal weights and generators."""

import gymnasium as gym
import numpy as np
import stable_baselines3
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback

from loopless.adapters import sb3


class Toy(gym.Env):
    """Random observations and rewards of any spaces; ends by itself or by a limit."""

    def __init__(self, observation_space, action_space, length=7, truncates=False):
        self.observation_space, self.action_space = observation_space, action_space
        self.length, self.truncates = length, truncates

    def _observe(self):
        return self.observation_space.sample()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        if seed is not None:
            self.observation_space.seed(seed)
        return self._observe(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.steps += 1
        over = self.steps == self.length
        reward = float(self.np_random.normal())
        cut = over and self.truncates
        return self._observe(), reward, over and not cut, cut, {}


NUMBERS = spaces.Box(-1, 1, (3,), np.float32)
CHOICES = spaces.Discrete(2)


class Locals(BaseCallback):
    """Collects the names that callbacks see."""

    def __init__(self):
        super().__init__()
        self.names = {}

    def _note(self, event):
        self.names.setdefault(event, set()).update(self.locals)

    def _on_step(self):
        self._note("step")
        return True

    def _on_rollout_end(self):
        self._note("rollout_end")

    def _on_training_start(self):
        self._note("training_start")


def pair(name, env, **options):
    """Return Stable-Baselines3's model and ours, made from the same seed."""
    options = {"seed": 3, "device": "cpu", "policy": "MlpPolicy"} | options
    policy = options.pop("policy")
    classes = getattr(stable_baselines3, name), getattr(sb3, name)
    return [kind(policy, env() if callable(env) else env, **options) for kind in classes]


def weights(model):
    return {name: x.detach().numpy().copy() for name, x in model.policy.state_dict().items()}


def assert_same_weights(theirs, ours, atol):
    moments = [m.policy.optimizer.state_dict()["state"] for m in (theirs, ours)]
    assert {k: int(s["step"]) for k, s in moments[0].items()} == {
        k: int(s["step"]) for k, s in moments[1].items()
    }
    a, b = weights(theirs), weights(ours)
    assert a.keys() == b.keys()
    for key in a:
        np.testing.assert_allclose(b[key], a[key], rtol=0, atol=atol, err_msg=key)


def logged(model):
    """Return what the logger holds, without times."""
    return {k: v for k, v in model.logger.name_to_value.items() if not k.startswith("time/")}


def assert_same_logs(theirs, ours, rtol=2e-4):
    a, b = logged(theirs), logged(ours)
    assert a.keys() == b.keys()
    assert theirs.logger.name_to_excluded == ours.logger.name_to_excluded
    for key in a:
        np.testing.assert_allclose(b[key], a[key], rtol=rtol, atol=1e-6, err_msg=key)
