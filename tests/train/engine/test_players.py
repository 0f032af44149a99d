"""Episodes of an evaluation: those that end, those that never would, and a signal meanwhile."""

import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from loopless.envs import HostedEnvs
from loopless.runs import signals
from loopless.train.engine import players


class Endless(gymnasium.Env):
    """Pays 1 a step; action 1 ends the episode after five steps, action 0 never does."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(1, np.float32), 1.0, bool(action) and self.steps >= 5, False, {}


gymnasium.register("tests/Endless-v0", Endless)
gymnasium.register("tests/Ending-v0", Endless, max_episode_steps=40)


@pytest.mark.parametrize(
    ("env", "limit", "length", "cut"),
    [
        ("tests/Endless-v0", 250, 250, 2),
        ("tests/Endless-v0", None, 300, 2),
        ("tests/Ending-v0", None, 40, 0),
        ("tests/Ending-v0", 7, 7, 2),
    ],
)
def test_an_episode_without_an_end_is_cut(env, limit, length, cut, monkeypatch):
    monkeypatch.setattr(players, "LONGEST_EVALUATION", 300)
    with HostedEnvs(env, 3, seed=0) as envs:
        found = players.first_episodes(envs, lambda obs: np.array([0, 1, 0]), limit)
    returns, lengths, cuts = found
    assert returns.tolist() == lengths.tolist() == [length, 5, length]
    assert cuts == cut


def test_a_signal_ends_an_evaluation_at_once(monkeypatch):
    calls = []

    class Asked:
        requested = property(lambda self: len(calls) >= 3)

    monkeypatch.setattr(signals, "_active", Asked())
    with HostedEnvs("tests/Endless-v0", 1, seed=0) as envs, pytest.raises(signals.Stopped):
        players.first_episodes(envs, lambda obs: calls.append(1) or np.zeros(1, int))
    assert len(calls) == 3


RECORD = """
import numpy as np
from loopless.train.dqn.config import DQN
from loopless.train.engine.players import Player

player = Player(DQN(env="CartPole-v1"), {}, lambda *_: lambda obs: np.zeros(1, np.int64))
print(len(player.frames(0)[0]))
"""


@pytest.mark.slow
def test_a_recording_looks_for_no_screen():
    """Without one, SDL would print an error."""
    hidden = {"XDG_RUNTIME_DIR", "SDL_VIDEODRIVER", "DISPLAY", "WAYLAND_DISPLAY"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [sys.executable, "-c", RECORD], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stderr == ""
    assert 5 < int(done.stdout) < 20
