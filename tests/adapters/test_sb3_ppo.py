"""`adapters.sb3.PPO` makes the updates of Stable-Baselines3's PPO, and acts by its law."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import stable_baselines3
import torch
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import VecNormalize
from support.sb3 import (
    CHOICES,
    NUMBERS,
    Locals,
    Toy,
    assert_same_logs,
    assert_same_weights,
    pair,
)

from loopless.adapters.sb3 import PPO

pytestmark = pytest.mark.slow  # every model compiles its updates

SMALL = {"n_steps": 16, "batch_size": 8, "n_epochs": 2, "policy_kwargs": {"net_arch": [8]}}


def toy(actions, observations=NUMBERS, envs=2, **options):
    return lambda: make_vec_env(lambda: Toy(observations, actions, **options), n_envs=envs)


def train_both(models):
    """Let both learn from the rollout of the first, from equal weights."""
    theirs, ours = models
    for model in models:
        model._setup_learn(1000)
        model.set_random_seed(5)
        model._current_progress_remaining = 0.7
    theirs.collect_rollouts(theirs.env, _no_callback(theirs), theirs.rollout_buffer, theirs.n_steps)
    for name, value in theirs.rollout_buffer.__dict__.items():
        setattr(ours.rollout_buffer, name, copy.deepcopy(value))
    ours.set_parameters(copy.deepcopy(theirs.get_parameters()))
    for model in models:
        np.random.seed(1)
        model.train()
        model.random = np.random.get_state()[1:3]


def _no_callback(model):
    return model._init_callback(None)


def assert_same_updates(models, atol=2e-6):
    theirs, ours = models
    assert ours._compiled.refusal is None
    assert ours._n_updates == theirs._n_updates > 0
    assert_same_weights(theirs, ours, atol)
    assert_same_logs(theirs, ours)
    np.testing.assert_array_equal(theirs.random[0], ours.random[0])
    assert theirs.random[1] == ours.random[1]
    for name in ("values", "advantages", "actions"):
        a, b = getattr(theirs.rollout_buffer, name), getattr(ours.rollout_buffer, name)
        np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module")
def discrete():
    options = SMALL | {
        "learning_rate": LinearSchedule(1e-3, 1e-4, 1.0),
        "clip_range": LinearSchedule(0.3, 0.0, 1.0),
        "clip_range_vf": 1e-3,
        "ent_coef": 0.01,
    }
    models = pair("PPO", toy(CHOICES), **options)
    train_both(models)
    return models


def test_first_updates_are_the_parents(discrete):
    assert_same_updates(discrete)
    assert discrete[1].logger.name_to_value["train/clip_range"] == pytest.approx(0.21)


def test_coefficients_and_schedules_change_without_another_program(discrete):
    theirs, ours = discrete
    for model in discrete:
        model.ent_coef, model._current_progress_remaining = 0.5, 0.4
    programs = len(ours._compiled.step.programs)
    train_both(discrete)
    assert_same_updates(discrete)
    assert len(ours._compiled.step.programs) == programs
    assert ours.logger.name_to_value["train/clip_range"] == theirs.clip_range(0.7)


def test_several_choices():
    models = pair("PPO", toy(spaces.MultiDiscrete([2, 3])), **SMALL, normalize_advantage=False)
    train_both(models)
    assert_same_updates(models)
    _check_actor(models[1])


def test_numbers_as_actions():
    actions = spaces.Box(-0.5, 2, (2,), np.float32)
    models = pair("PPO", toy(actions, truncates=True), **SMALL)
    train_both(models)
    assert_same_updates(models)
    assert "train/std" in models[1].logger.name_to_value
    _check_actor(models[1])
    with torch.no_grad():
        models[1].policy.log_std += 1.5
    _check_actor(models[1])


def test_a_last_minibatch_that_is_smaller():
    with pytest.warns(UserWarning, match="truncated mini-batch"):
        models = pair("PPO", toy(CHOICES), **SMALL | {"batch_size": 12})
    train_both(models)
    assert_same_updates(models)


def test_dict_observations():
    space = spaces.Dict({"a": NUMBERS, "b": spaces.Discrete(3)})
    models = pair("PPO", toy(CHOICES, space), policy="MultiInputPolicy", **SMALL)
    train_both(models)
    assert_same_updates(models)


@pytest.mark.parametrize("target_kl", [1e-9, 2e-4, 10.0])
def test_updates_end_early_as_in_the_parent(target_kl, capsys):
    options = SMALL | {"n_epochs": 3, "learning_rate": 3e-3, "verbose": 1}
    models = pair("PPO", toy(CHOICES), **options, target_kl=target_kl)
    capsys.readouterr()
    train_both(models)
    assert_same_updates(models)
    lines = [line for line in capsys.readouterr().out.split("\n") if "Early" in line]
    assert len(lines) == (0 if target_kl == 10 else 2)
    assert len(set(lines)) <= 1
    steps = int(models[1].policy.optimizer.state_dict()["state"][0]["step"])
    assert steps == 12 if target_kl == 10 else steps < 12


@pytest.mark.slow
def test_pictures():
    picture = spaces.Box(0, 255, (1, 36, 36), np.uint8)
    models = pair(
        "PPO", toy(CHOICES, picture), policy="CnnPolicy", n_steps=4, batch_size=4, n_epochs=1
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="fuse: .* so these run in eager")
        train_both(models)
    assert_same_updates(models, atol=1e-4)
    assert models[1]._compiled.find_actor(models[1].policy) is None


def test_gsde_goes_on_in_the_parents_code():
    model = PPO("MlpPolicy", toy(NUMBERS)(), **SMALL, use_sde=True, device="cpu")
    with pytest.warns(UserWarning, match=r"own code: gSDE"):
        model.learn(32)
    model.learn(32)  # said once
    assert model._n_updates == 4


def test_binary_actions_act_as_in_the_parent():
    model = PPO("MlpPolicy", toy(spaces.MultiBinary(3))(), **SMALL, device="cpu")
    model.learn(32)
    assert model._compiled.actor is None
    assert model.predict(np.zeros(3, np.float32))[0].shape == (3,)


# --- acting ------------------------------------------------------------------------------------


def _check_actor(model):
    """Compare the compiled forward with the policy's own."""
    policy = model.policy
    policy.set_training_mode(False)
    actor = model._compiled.find_actor(policy)
    obs = torch.as_tensor(model.env.reset())
    for deterministic in (False, True):
        actions, values, log_probs = actor.forward(obs, deterministic)
        with torch.no_grad():
            own, _, _ = policy(obs, deterministic)
            right_values, right_log_probs, _ = policy.evaluate_actions(obs, actions)
        assert (actions.dtype, actions.shape) == (own.dtype, own.shape)
        assert values.shape == right_values.shape
        torch.testing.assert_close(values, right_values, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(log_probs, right_log_probs, rtol=1e-5, atol=1e-5)
        if deterministic:
            torch.testing.assert_close(actions, own, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(actor.predict_values(obs), right_values, rtol=1e-5, atol=1e-5)


def test_the_actor_is_the_policy(discrete):
    _check_actor(discrete[1])


@pytest.mark.parametrize("shape", [(3,), (1, 3), (5, 3)])
@pytest.mark.parametrize("actions", [CHOICES, spaces.Box(-0.01, 0.01, (2,), np.float32)])
def test_predict_gives_the_parents_arrays(actions, shape):
    model = PPO("MlpPolicy", toy(actions)(), **SMALL, device="cpu", seed=0)
    obs = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    right, _ = stable_baselines3.PPO.predict(model, obs, deterministic=True)
    given, state = model.predict(obs, deterministic=True)
    np.testing.assert_allclose(given, right, rtol=1e-5, atol=1e-6)
    assert (given.dtype, given.shape, state) == (right.dtype, right.shape, None)
    drawn, _ = model.predict(obs)
    assert (drawn.dtype, drawn.shape) == (right.dtype, right.shape)
    for action in drawn.reshape(-1, *model.action_space.shape):
        assert model.action_space.contains(action)


def test_callbacks_see_the_same_names_and_a_copied_policy_acts_for_itself():
    models = pair("PPO", lambda: VecNormalize(toy(CHOICES)()), **SMALL | {"n_epochs": 1})
    callbacks = [Locals() for _ in models]

    class Copies(Locals):
        def _on_step(self):
            twin = copy.deepcopy(self.model.policy)
            with torch.no_grad():
                twin.value_net.bias.fill_(100.0)
            obs = torch.zeros(1, 3)
            assert twin(obs)[1].item() > 50
            assert self.model.policy(obs)[1].item() < 50
            pickle.loads(pickle.dumps(self.model.policy.forward))
            return super()._on_step()

    callbacks[1] = Copies()
    for model, callback in zip(models, callbacks, strict=True):
        model.learn(32, callback=callback)
    assert callbacks[0].names == callbacks[1].names
    assert "forward" not in models[1].policy.__dict__


def test_one_seed_gives_one_run():
    runs = []
    for _ in range(2):
        model = PPO("MlpPolicy", toy(CHOICES)(), **SMALL, device="cpu", seed=7)
        model.learn(64)
        runs.append(model)
    assert_same_weights(*runs, atol=0)
    np.testing.assert_array_equal(runs[0].rollout_buffer.actions, runs[1].rollout_buffer.actions)


def test_a_rollout_buffer_of_ones_own_goes_on_in_the_parents_code():
    class Mine(stable_baselines3.common.buffers.RolloutBuffer):
        pass

    options = SMALL | {"rollout_buffer_class": Mine}
    model = PPO("MlpPolicy", toy(CHOICES)(), **options, device="cpu")
    with pytest.warns(UserWarning, match="its rollout buffer is a Mine"):
        model.learn(32)
    assert type(model.rollout_buffer) is Mine
