"""An exported PPO policy acts from NumPy alone, like the network that it was."""

import numpy as np
import pytest
from ppo_cases import CHOICE, CHOICES, NUMBERS, algorithm_of, learner_of, small

import loopless
from loopless.envs.spaces import Box
from loopless.runs.checkpoint import export_weights
from loopless.train.ppo.algorithm import build
from loopless.train.ppo.policy import describe_policy, make_policy

KINDS = {
    "choice, normalized": (CHOICE, {"normalize_obs": True}),
    "numbers, normalized": (NUMBERS, {"normalize_obs": True, "squash": True}),
    "choices": (CHOICES, {}),
    "numbers": (NUMBERS, {}),
    "numbers, squashed": (NUMBERS, {"squash": True, "state_std": True}),
    "gru": (CHOICE, {"core": "gru", "core_width": 4, "minibatches": 2}),
    "lstm": (NUMBERS, {"core": "lstm", "core_width": 4, "minibatches": 2}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_export_acts_like_the_policy_from_numpy_alone(kind, tmp_path):
    actions, options = KINDS[kind]
    algorithm = algorithm_of(small(**options), actions, "float32")
    learner, rng = learner_of(algorithm, "float32"), np.random.default_rng(3)
    acting = {name: np.asarray(x) for name, x in learner.acting().items()}
    if "obs_mean" in acting:
        acting |= {"obs_mean": rng.normal(size=3).astype(np.float32)}
        acting |= {"obs_variance": rng.random(3).astype(np.float32) + 0.1}
    obs = 20 * rng.normal(size=(20, 3)) if "obs_mean" in acting else rng.normal(size=(20, 3))
    check(algorithm, acting, obs.astype(np.float32), tmp_path)  # some beyond the clip


def test_an_export_of_convolutions_acts_like_the_policy(tmp_path):
    algorithm = build(small(), Box((8, 8, 2), "uint8"), CHOICE, None)
    learner, rng = learner_of(algorithm, "float32"), np.random.default_rng(3)
    pictures = rng.integers(0, 256, (10, 8, 8, 2)).astype(np.uint8)
    check(algorithm, {"online": np.asarray(learner.weights)}, pictures, tmp_path)


def check(algorithm, acting, observations, folder):
    """Compare a policy's greedy actions with those of its export, alone and several at once."""
    export_weights(folder / "policy.safetensors", *describe_policy(algorithm, acting))
    exported = loopless.load_policy(folder)
    policy = make_policy(algorithm, acting, 0, greedy=True)
    ours = np.array([policy(obs[None])[0].copy() for obs in observations])
    theirs = np.array([exported(obs) for obs in observations])
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert np.ptp(ours, 0).max() > 0
    policy.forget()
    exported.reset()
    together = observations.reshape(5, -1, *observations.shape[1:])
    for rows in together:
        np.testing.assert_allclose(policy(rows), exported(rows), atol=1e-5)


def test_a_recurrent_export_forgets_where_it_is_told_to(tmp_path):
    algorithm = algorithm_of(small(core="lstm", core_width=4, minibatches=2), NUMBERS, "float32")
    acting = {"online": np.asarray(learner_of(algorithm, "float32").weights)}
    export_weights(tmp_path / "policy.safetensors", *describe_policy(algorithm, acting))
    policy, rng = loopless.load_policy(tmp_path), np.random.default_rng(0)
    old, new = rng.normal(size=(2, 3, 3)).astype(np.float32)
    first = policy(new)
    policy.reset()
    policy(old)
    policy.reset([True, False, True])
    actions = policy(new)
    np.testing.assert_array_equal(actions[[0, 2]], first[[0, 2]])
    assert np.abs(actions[1] - first[1]).max() > 1e-4


def test_an_export_leaves_out_what_is_not_legal(tmp_path):
    algorithm = algorithm_of(small(), CHOICES, "float32")
    acting = {"online": np.asarray(learner_of(algorithm, "float32").weights)}
    export_weights(tmp_path / "policy.safetensors", *describe_policy(algorithm, acting))
    rng = np.random.default_rng(4)
    obs, masks = rng.normal(size=(50, 3)).astype(np.float32), rng.random((50, 5)) < 0.5
    ours = make_policy(algorithm, acting, 0, greedy=True)(obs, masks)
    np.testing.assert_array_equal(loopless.load_policy(tmp_path)(obs, masks), ours)
    assert (loopless.load_policy(tmp_path)(obs) != ours).any()
