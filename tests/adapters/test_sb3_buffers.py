"""The buffers of `adapters.sb3` in Stable-Baselines3's own algorithms."""

import numpy as np
import pytest
import stable_baselines3
import torch
from gymnasium import spaces
from stable_baselines3.common import buffers as plain
from support.sb3 import CHOICES, NUMBERS, Toy

from loopless.adapters import sb3


def filled(kind, steps, observations, envs, **options):
    """Return a replay buffer with random transitions, the same for each kind."""
    rng = np.random.default_rng(0)
    actions = spaces.Discrete(3)
    buffer = kind(20 * envs, observations, actions, n_envs=envs, device="cpu", **options)
    shape = (envs, *(observations.shape or ()))

    def observe():
        if isinstance(observations, spaces.Discrete):
            return rng.integers(5, size=envs)
        return rng.normal(size=shape).astype(np.float32)

    for _ in range(steps):
        done = rng.random(envs) < 0.3
        infos = [{"TimeLimit.truncated": bool(cut)} for cut in done & (rng.random(envs) < 0.5)]
        action = rng.integers(3, size=envs)
        buffer.add(observe(), observe(), action, rng.normal(size=envs), done, infos)
    return buffer


@pytest.mark.parametrize("steps", [13, 20, 47])
@pytest.mark.parametrize("envs", [1, 3])
@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("observations", [NUMBERS, spaces.Discrete(5)])
def test_a_replay_buffer_draws_what_the_parents_draws(observations, once, envs, steps):
    options = {"optimize_memory_usage": once, "handle_timeout_termination": not once}
    kinds = plain.ReplayBuffer, sb3.ReplayBuffer
    theirs, ours = (filled(kind, steps, observations, envs, **options) for kind in kinds)
    assert (theirs.pos, theirs.full) == (ours.pos, ours.full)
    for name, array in theirs.__dict__.items():
        if isinstance(array, np.ndarray):
            np.testing.assert_array_equal(array, getattr(ours, name))
    batches = []
    for buffer in (theirs, ours):
        np.random.seed(0)
        batches.append([buffer.sample(8) for _ in range(3)])
    np.random.seed(0)
    many = ours.sample_many(3, 8)
    for row, (a, b) in enumerate(zip(*batches, strict=True)):
        for name in ("observations", "actions", "next_observations", "dones", "rewards"):
            right, given = getattr(a, name), getattr(b, name)
            assert (given.dtype, given.shape) == (right.dtype, right.shape)
            torch.testing.assert_close(given, right, rtol=0, atol=0)
            np.testing.assert_array_equal(many[name][row], right.numpy())


def test_a_replay_buffer_keeps_its_own_copy():
    buffer = sb3.ReplayBuffer(4, NUMBERS, CHOICES, device="cpu")
    obs = np.ones((1, 3), np.float32)
    buffer.add(obs, obs, np.zeros(1, int), np.zeros(1), np.zeros(1), [{}])
    obs[:] = 5
    batch = buffer.sample(2)
    assert (batch.observations == 1).all()
    batch.observations[:] = 7
    assert (buffer.observations[0] == 1).all()


def test_a_replay_buffer_in_sac():
    options = {"learning_starts": 10, "batch_size": 4, "buffer_size": 50, "seed": 0}
    models = []
    for kind in (plain.ReplayBuffer, sb3.ReplayBuffer):
        options |= {"replay_buffer_class": kind, "policy_kwargs": {"net_arch": [4]}}
        env = Toy(NUMBERS, spaces.Box(-1, 1, (1,), np.float32))
        model = stable_baselines3.SAC("MlpPolicy", env, device="cpu", **options)
        models.append(model.learn(20, log_interval=None))
    for a, b in zip(*(m.policy.parameters() for m in models), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("envs", [1, 4])
@pytest.mark.parametrize("gae_lambda", [0.0, 0.8, 1.0])
def test_a_rollout_buffer_is_the_parents(gae_lambda, envs):
    rng = np.random.default_rng(envs)
    steps = [
        (
            rng.normal(size=(envs, 3)).astype(np.float32),
            rng.integers(2, size=(envs, 1)),
            rng.normal(size=envs),
            rng.random(envs) < 0.2,
            torch.from_numpy(rng.normal(size=(envs, 1)).astype(np.float32)),
            torch.from_numpy(rng.normal(size=envs).astype(np.float32)),
        )
        for _ in range(50)
    ]
    last, dones = torch.from_numpy(rng.normal(size=(envs, 1)).astype(np.float32)), rng.random(envs)
    rollouts = []
    for kind in (plain.RolloutBuffer, sb3.RolloutBuffer):
        buffer = kind(50, NUMBERS, CHOICES, "cpu", gae_lambda, 0.98, envs)
        for _ in range(2):  # the second time over the remains of the first
            buffer.reset()
            assert not buffer.full
            for step in steps:
                buffer.add(*step)
        assert buffer.full
        buffer.compute_returns_and_advantage(last, dones < 0.5)
        np.random.seed(0)
        rollouts.append([batch._asdict() for batch in buffer.get(16)])
    for a, b in zip(*rollouts, strict=True):
        for name in a:
            assert (a[name].dtype, a[name].shape) == (b[name].dtype, b[name].shape)
            torch.testing.assert_close(b[name], a[name], rtol=1e-5, atol=1e-5)


def test_a_rollout_buffer_in_a2c():
    models = []
    for kind in (plain.RolloutBuffer, sb3.RolloutBuffer):
        env = Toy(NUMBERS, CHOICES)
        options = {"rollout_buffer_class": kind, "seed": 0, "device": "cpu"}
        models.append(stable_baselines3.A2C("MlpPolicy", env, **options).learn(20))
    for a, b in zip(*(m.policy.parameters() for m in models), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)
