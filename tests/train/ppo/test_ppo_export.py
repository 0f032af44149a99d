"""An exported PPO policy acts from NumPy alone, by the words of its card."""

import numpy as np
import pytest
from ppo_cases import CHOICE, CHOICES, NUMBERS, algorithm_of, learner_of, small

from loopless.envs.spaces import Box
from loopless.train.ppo.algorithm import build
from loopless.train.ppo.policy import describe_policy, make_policy


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Reader:
    """Acts by arrays and card, as the card's `use` says."""

    def __init__(self, arrays, card):
        self.arrays, self.card = arrays, card
        width = len(arrays["core/recurrent"]) if card["core"] != "none" else 0
        self.h, self.c = np.zeros(width), np.zeros(width)

    def __call__(self, obs):
        arrays, card = self.arrays, self.card
        x = np.asarray(obs, np.float64)
        if "strides" in card:
            x = self.pictures(x / 255)
        if "obs_mean" in arrays:
            x = np.clip((x - arrays["obs_mean"]) * arrays["obs_scale"], -10, 10)
        x = x.ravel()
        last = card["layers"] - 1
        for k in range(last):
            x = np.tanh(x @ arrays[f"layers/{k}/weight"] + arrays[f"layers/{k}/bias"])
        x = getattr(self, card["core"])(x)
        return self.action(x @ arrays[f"layers/{last}/weight"] + arrays[f"layers/{last}/bias"])

    def none(self, x):
        return x

    def gru(self, x):
        ir, iz, i_n = np.split(self.into(x), 3)
        ur, uz, un = np.split(self.h @ self.arrays["core/recurrent"], 3)
        r, z = sigmoid(ir + ur), sigmoid(iz + uz + 1)
        n = np.tanh(i_n + r * (un + self.arrays["core/bias"]))
        self.h = n + z * (self.h - n)
        return self.h

    def lstm(self, x):
        i, f, o, g = np.split(self.into(x) + self.h @ self.arrays["core/recurrent"], 4)
        self.c = sigmoid(f + 1) * self.c + sigmoid(i) * np.tanh(g)
        self.h = sigmoid(o) * np.tanh(self.c)
        return self.h

    def into(self, x):
        return x @ self.arrays["core/inputs/weight"] + self.arrays["core/inputs/bias"]

    def pictures(self, x):
        for k, stride in enumerate(self.card["strides"]):
            weight, bias = self.arrays[f"conv/{k}/weight"], self.arrays[f"conv/{k}/bias"]
            windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[:2], (0, 1))
            x = np.tanh(np.einsum("hwcij,ijco->hwo", windows[::stride, ::stride], weight) + bias)
        return x

    def action(self, out):
        actions = self.card["actions"]
        if isinstance(actions, int):
            return np.argmax(out)
        if isinstance(actions, list):
            return [np.argmax(part) for part in np.split(out, np.cumsum(actions)[:-1])]
        u = np.split(out, 2)[0] if actions["state_std"] else out
        low, high = np.array(actions["low"]), np.array(actions["high"])
        if actions["squash"]:
            u = low + (np.tanh(u) + 1) / 2 * (high - low)
        return np.clip(u, low, high).reshape(actions["shape"])


KINDS = {
    "choice, normalised": (CHOICE, {"normalize_obs": True}),
    "choices": (CHOICES, {}),
    "numbers": (NUMBERS, {}),
    "numbers, squashed": (NUMBERS, {"squash": True, "state_std": True}),
    "gru": (CHOICE, {"core": "gru", "core_width": 4, "minibatches": 2}),
    "lstm": (NUMBERS, {"core": "lstm", "core_width": 4, "minibatches": 2}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_export_acts_like_the_policy_from_numpy_alone(kind):
    actions, options = KINDS[kind]
    algorithm = algorithm_of(small(**options), actions, "float32")
    learner, rng = learner_of(algorithm, "float32"), np.random.default_rng(3)
    acting = {name: np.asarray(x) for name, x in learner.acting().items()}
    if "obs_mean" in acting:
        acting |= {"obs_mean": rng.normal(size=3).astype(np.float32)}
        acting |= {"obs_variance": rng.random(3).astype(np.float32) + 0.1}
    check(algorithm, acting, rng.normal(size=(20, 3)).astype(np.float32))


def test_an_export_of_convolutions_acts_like_the_policy():
    algorithm = build(small(), Box((8, 8, 2), "uint8"), CHOICE, None)
    learner, rng = learner_of(algorithm, "float32"), np.random.default_rng(3)
    pictures = rng.integers(0, 256, (10, 8, 8, 2)).astype(np.uint8)
    check(algorithm, {"online": np.asarray(learner.weights)}, pictures)


def check(algorithm, acting, observations):
    """A policy's greedy actions against the reader's, one observation after the other."""
    reader = Reader(*describe_policy(algorithm, acting))
    policy = make_policy(algorithm, acting, 0, greedy=True)
    ours = np.array([policy(obs[None])[0].copy() for obs in observations])
    theirs = np.array([reader(obs) for obs in observations])
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert np.ptp(ours, 0).max() > 0
