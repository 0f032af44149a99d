"""`adapters.sb3.DQN` makes the run of Stable-Baselines3's DQN, draw for draw."""

import warnings

import numpy as np
import pytest
import stable_baselines3
import torch
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from support.sb3 import CHOICES, NUMBERS, Locals, Toy, assert_same_logs, assert_same_weights, pair

from loopless.adapters.sb3 import DQN, PrioritizedReplayBuffer, dqn
from loopless.adapters.sb3.updates import split

SMALL = {
    "policy_kwargs": {"net_arch": [16]},
    "buffer_size": 200,
    "learning_starts": 20,
    "batch_size": 8,
    "train_freq": 8,
    "gradient_steps": 4,
    "target_update_interval": 10,
    "exploration_fraction": 0.5,
}


def learn_both(models, steps=128):
    callbacks = []
    for model in models:
        model.set_random_seed(3)
        callbacks.append(Locals())
        model.learn(steps, callback=callbacks[-1], log_interval=None)
        model.random = np.random.get_state()[1:3]
    return callbacks


def assert_same_runs(models, atol=1e-6):
    theirs, ours = models
    assert ours._compiled.refusal is None
    assert ours._compiled.step.updates == theirs._n_updates == ours._n_updates > 0
    for name in ("observations", "actions", "rewards", "dones", "timeouts"):
        a, b = getattr(theirs.replay_buffer, name), getattr(ours.replay_buffer, name)
        if isinstance(a, dict):
            assert all(np.array_equal(a[key], b[key]) for key in a)
        else:
            np.testing.assert_array_equal(a, b)
    assert_same_weights(theirs, ours, atol)
    assert_same_logs(theirs, ours)
    np.testing.assert_array_equal(theirs.random[0], ours.random[0])
    assert theirs.random[1] == ours.random[1]


@pytest.fixture(scope="module")
def cartpole():
    models = pair("DQN", "CartPole-v1", **SMALL)
    return models, learn_both(models, 300)


def test_a_run_is_the_parents_run(cartpole):
    models, _ = cartpole
    assert_same_runs(models)
    assert models[1]._n_calls == models[0]._n_calls


def test_callbacks_see_the_same_names(cartpole):
    _, (theirs, ours) = cartpole
    assert theirs.names == ours.names
    assert {"step", "rollout_end", "training_start"} == set(ours.names)


@pytest.mark.parametrize("shape", [(4,), (1, 4), (5, 4)])
def test_predict_gives_the_parents_arrays(cartpole, shape):
    (_, ours), _ = cartpole
    obs = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    right, _ = stable_baselines3.DQN.predict(ours, obs, deterministic=True)
    actions, state = ours.predict(obs, deterministic=True)
    np.testing.assert_array_equal(actions, right)
    assert (type(actions), actions.dtype, actions.shape, state) == (
        type(right),
        right.dtype,
        right.shape,
        None,
    )
    np.random.seed(0)
    first = ours.predict(obs)[0]
    np.random.seed(0)
    np.testing.assert_array_equal(first, stable_baselines3.DQN.predict(ours, obs)[0])


def test_predict_refuses_what_the_parent_refuses(cartpole):
    (_, ours), _ = cartpole
    with pytest.raises(ValueError, match="Unexpected observation shape"):
        ours.predict(np.zeros((2, 3), np.float32), deterministic=True)
    with pytest.raises(ValueError, match="mixing Gym API"):
        ours.predict((np.zeros(4, np.float32), {}), deterministic=True)


def test_predict_follows_new_weights(cartpole):
    (_, ours), _ = cartpole
    saved = ours.get_parameters()
    obs = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    ours.predict(obs, deterministic=True)
    with torch.no_grad():
        for parameter in ours.q_net.parameters():
            parameter.neg_()
    right, _ = stable_baselines3.DQN.predict(ours, obs, deterministic=True)
    np.testing.assert_array_equal(ours.predict(obs, deterministic=True)[0], right)
    ours.set_parameters(saved)


def test_predict_follows_a_replaced_network(cartpole):
    (_, ours), _ = cartpole
    obs = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    ours.predict(obs, deterministic=True)
    network = ours.q_net.q_net
    ours.q_net.q_net = torch.nn.Sequential(torch.nn.Linear(4, 2))
    right, _ = stable_baselines3.DQN.predict(ours, obs, deterministic=True)
    np.testing.assert_array_equal(ours.predict(obs, deterministic=True)[0], right)
    ours.q_net.q_net = network


def test_several_normalized_environments():
    def env():
        limits = [lambda n=n: Toy(NUMBERS, CHOICES, n, truncates=n == 5) for n in (5, 9)]
        return VecNormalize(DummyVecEnv(limits), clip_obs=0.5)

    models = pair("DQN", env, **SMALL)
    learn_both(models)
    assert_same_runs(models)
    assert models[1].replay_buffer.timeouts.any()


def test_n_step_returns_keep_their_discounts():
    models = pair("DQN", lambda: Toy(NUMBERS, CHOICES), **SMALL, n_steps=3)
    learn_both(models)
    assert_same_runs(models)


def test_dict_observations():
    space = spaces.Dict({"a": NUMBERS, "b": spaces.Discrete(3)})
    models = pair("DQN", lambda: Toy(space, CHOICES), policy="MultiInputPolicy", **SMALL)
    learn_both(models, 64)
    assert_same_runs(models)


def test_memory_of_one_copy_and_discrete_observations():
    options = SMALL | {
        "optimize_memory_usage": True,
        "buffer_size": 40,
        "replay_buffer_kwargs": {"handle_timeout_termination": False},
    }
    models = pair("DQN", lambda: Toy(spaces.Discrete(5), CHOICES), **options)
    learn_both(models)
    assert_same_runs(models)
    assert models[1]._compiled.actor is not None


@pytest.mark.slow
def test_pictures():
    picture = spaces.Box(0, 255, (1, 36, 36), np.uint8)
    options = SMALL | {"policy_kwargs": {}, "gradient_steps": 2, "batch_size": 4}
    models = pair("DQN", lambda: Toy(picture, CHOICES), policy="CnnPolicy", **options)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="fuse: .* so these run in eager")
        learn_both(models, 40)
    assert_same_runs(models, atol=1e-5)


def dropout(inputs, outputs, sizes, activation, **_):
    from torch import nn

    return [nn.Linear(inputs, 8), nn.Dropout(0.5), nn.Linear(8, outputs)]


def test_what_fuse_refuses_goes_on_in_the_parents_code_and_is_said_once(monkeypatch):
    monkeypatch.setattr("stable_baselines3.dqn.policies.create_mlp", dropout)
    models = pair("DQN", lambda: Toy(NUMBERS, CHOICES), **SMALL)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        learn_both(models, 64)
    (message,) = [str(w.message) for w in caught if "adapters.sb3" in str(w.message)]
    assert "go on in Stable-Baselines3's own code" in message
    assert "random" in message
    assert_same_weights(*models, atol=0)
    assert_same_logs(*models)


def test_an_update_that_is_not_finite_goes_on_as_in_the_parent():
    _, ours = pair("DQN", lambda: Toy(NUMBERS, CHOICES), **SMALL)
    ours.learn(32, log_interval=None)
    ours.replay_buffer.rewards[:] = np.inf
    with pytest.warns(UserWarning, match="not finite"):
        ours.train(4, 8)
    assert ours._n_updates == 8 + 4


def test_a_model_on_another_policy_is_read_anew(cartpole):
    (_, ours), _ = cartpole
    step = ours._compiled.step
    optimizer = ours.policy.optimizer
    ours.policy.optimizer = torch.optim.SGD(ours.q_net.parameters(), lr=0.1)
    assert ours._compiled.prepare(dqn.loss, ours.q_net, ours.policy.optimizer, 10)
    assert ours._compiled.step is not step
    ours.policy.optimizer = optimizer


@pytest.mark.parametrize(
    ("updates", "size", "constant", "calls"),
    [
        (128, 1, True, [128]),
        (1000, 1, True, [512, 488]),
        (87, 1, False, [64, 16, 4, 1, 1, 1]),
        (10, 16 * 2**20, True, [4, 4, 2]),
        (2, 10**9, True, [1, 1]),
        (0, 1, True, []),
    ],
)
def test_calls_of_few_sizes(updates, size, constant, calls):
    assert list(split(updates, size, constant=constant)) == calls


# --- prioritized -------------------------------------------------------------------------------


def prioritized(**options):
    chosen = {"replay_buffer_class": PrioritizedReplayBuffer}
    return DQN("MlpPolicy", Toy(NUMBERS, CHOICES), **SMALL, **chosen, **options, seed=0)


@pytest.mark.parametrize("name", ["DQN", "SAC"])
def test_prioritized_replay_is_refused_elsewhere(name):
    env = Toy(NUMBERS, CHOICES if name == "DQN" else NUMBERS)
    kind = getattr(stable_baselines3, name)
    with pytest.raises(TypeError, match=r"works with loopless\.adapters\.sb3\.DQN alone"):
        kind("MlpPolicy", env, replay_buffer_class=PrioritizedReplayBuffer)


@pytest.mark.parametrize("fused", [True, False])
def test_prioritized_replay_learns_weighted(fused, recwarn):
    model = prioritized(replay_buffer_kwargs={"alpha": 1.0, "beta": 0.5})
    if not fused:
        model._compiled.refuse("a test")
    model.learn(24, log_interval=None)
    buffer = model.replay_buffer
    assert model._n_updates == 4
    assert len(np.unique(buffer.priorities.priorities)) > 4
    before = {name: x.clone() for name, x in model.q_net.state_dict().items()}
    state = np.random.get_state()
    drawn = buffer.priorities.state()
    batch = buffer.sample_many(1, 8, None, model._current_progress_remaining)
    buffer.priorities.restore(drawn)
    np.random.set_state(state)
    assert batch["weights"].max() == 1
    assert batch["weights"].min() < 1
    model.train(1, 8)
    after = {name: x.clone() for name, x in model.q_net.state_dict().items()}
    model.q_net.load_state_dict(before)
    tensors = {name: torch.from_numpy(x[0]) for name, x in batch.items() if name != "indices"}
    with torch.no_grad():
        best = model.q_net_target(tensors["next_observations"]).max(1, keepdim=True).values
        targets = tensors["rewards"] + 0.99 * (1 - tensors["dones"]) * best
        errors = model.q_net(tensors["observations"]).gather(1, tensors["actions"]) - targets
    distances = errors.abs()
    huber = torch.where(distances < 1, 0.5 * errors**2, distances - 0.5)
    value = (tensors["weights"] * huber).mean()
    assert model.logger.name_to_value["train/loss"] == pytest.approx(value.item(), rel=1e-5)
    new = buffer.priorities.priorities[batch["indices"][0]]
    np.testing.assert_allclose(new, np.abs(errors.numpy())[:, 0] + 1e-6, rtol=1e-4)
    assert any((before[name] != after[name]).any() for name in before)


def test_prioritized_beta_grows_with_progress():
    model = prioritized(replay_buffer_kwargs={"alpha": 1.0, "beta": 0.0})
    model.learn(24, log_interval=None)
    buffer, lowest = model.replay_buffer, []
    for progress in (1.0, 0.5, 0.0):
        lowest.append(buffer.sample_many(20, 8, None, progress)["weights"].min())
    assert lowest[0] == 1
    assert lowest[0] > lowest[1] > lowest[2]


def test_prioritized_in_vectorized_environments():
    env = make_vec_env(lambda: Toy(NUMBERS, CHOICES), n_envs=3)
    chosen = {"replay_buffer_class": PrioritizedReplayBuffer}
    model = DQN("MlpPolicy", env, **SMALL | {"learning_starts": 1000}, **chosen)
    model.learn(300, log_interval=None)
    buffer = model.replay_buffer
    assert len(buffer.priorities) == buffer.size() * 3 == 198
    batch = buffer.sample_many(2, 50)
    flat = buffer.observations.reshape(-1, 3)
    np.testing.assert_array_equal(batch["observations"], flat[batch["indices"]])
