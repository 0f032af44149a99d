"""Every compiled environment describes itself, starts and is cut off like Gymnasium's of its id."""

import jax
import numpy as np
import pytest

from loopless.envs import HostedEnvs, autoreset, compiled_ids, make_compiled
from loopless.envs.compiled.classic import Acrobot
from loopless.envs.spaces import Discrete

COMPILED = {env_id: make_compiled(env_id) for env_id in compiled_ids()} | {"Acrobot-v1": Acrobot()}
DRAWS = 600
KEYS = jax.random.split(jax.random.key(0), DRAWS)


@pytest.mark.parametrize("env_id", COMPILED)
def test_spaces_and_limits_are_equal(env_id):
    env = COMPILED[env_id]
    compiled = autoreset(env, 2)
    with HostedEnvs(env_id, 1) as hosted:
        assert_alike(env, compiled, hosted)


def assert_alike(env, compiled, hosted):
    assert hosted.obs_space.shape == compiled.obs_space.shape
    assert hosted.obs_space.dtype == compiled.obs_space.dtype
    assert hosted.action_space == compiled.action_space
    assert hosted.max_steps == compiled.max_steps
    assert (hosted.obs_shape, hosted.obs_dtype) == (env.obs_shape, env.obs_dtype)
    if isinstance(hosted.action_space, Discrete):
        assert hosted.actions == env.actions
    assert (hosted.mask is not None) == compiled.has_masks


def first_observations(env, hosted):
    _, ours = jax.vmap(env.reset)(KEYS)  # op by op: what they share is compiled once for all
    theirs = []
    for seed in range(DRAWS):
        hosted.restart(seed)
        theirs.append(hosted.obs[0].copy())
    return [np.asarray(obs, np.float64).reshape(DRAWS, -1) for obs in (ours, theirs)]


# Grids start alike whatever their rooms: one of them stands for all.
STARTING = [i for i in COMPILED if "/Grid" not in i or i == "loopless/GridRoom-4-v0"]


@pytest.mark.slow
@pytest.mark.parametrize("env_id", STARTING)
def test_starts_have_the_same_range_and_law(env_id):
    with HostedEnvs(env_id, 1) as hosted:
        ours, theirs = first_observations(COMPILED[env_id], hosted)
    low, high = theirs.min(0), theirs.max(0)
    near = 0.02 * (high - low)  # six times what the extremes of so many draws are off by
    assert (np.abs(ours.min(0) - low) <= near).all()
    assert (np.abs(ours.max(0) - high) <= near).all()
    for mine, yours in zip(ours.T, theirs.T, strict=True):  # Kolmogorov and Smirnov
        at = np.concatenate([mine, yours])
        shares = [np.searchsorted(np.sort(x), at, "right") / DRAWS for x in (mine, yours)]
        assert np.abs(shares[0] - shares[1]).max() < 2.6 * np.sqrt(2 / DRAWS)  # p = 3e-6
