"""`load_policy` in environments of every kind, and what it refuses."""

import json
from dataclasses import replace

import gymnasium
import jax
import numpy as np
import pytest

import loopless
from loopless.runs.checkpoint import export_weights
from loopless.runs.failures import Failure
from loopless.train import dqn, ppo
from loopless.train.dqn.config import DQN
from loopless.train.engine.players import evaluation_envs
from loopless.train.ppo.config import PPO


class Numbered(gymnasium.Env):
    """Observations 3, 4, 5 and actions −5, −4, −3: both are counted from another start than 0."""

    observation_space = gymnasium.spaces.Discrete(3, start=3)
    action_space = gymnasium.spaces.Discrete(3, start=-5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 3, {}

    def step(self, action):
        assert self.action_space.contains(action), action
        return 3 + (action + 5) % 3, 1.0, False, False, {}


gymnasium.register("Numbered-v0", Numbered, max_episode_steps=6)


def weights_of(module, config, seed: int = 0) -> dict:
    """Return weights large enough that actions differ from observation to observation."""
    with evaluation_envs(config, 1, 0) as envs:
        if module is dqn:
            from loopless.train.dqn.algorithm import build

            shapes = jax.eval_shape(
                build(config, envs.obs_space, envs.actions).init, jax.random.key(0)
            )[0]
        else:
            from loopless.train.ppo.algorithm import build as build_ppo

            algorithm = build_ppo(config, envs.obs_space, envs.action_space, envs.max_steps)
            shapes = jax.eval_shape(algorithm.init, jax.random.key(0))
    size = shapes.weights.size
    return {"online": np.random.default_rng(seed).normal(size=size).astype(np.float32)}


@pytest.mark.parametrize("env", ["FrozenLake-v1", "Numbered-v0", "CartPole-v1"])
@pytest.mark.parametrize("module", [dqn, ppo], ids=["dqn", "ppo"])
def test_a_loaded_policy_plays_like_the_trained_one(module, env, tmp_path):
    config = (DQN if module is dqn else PPO)(env=env, hidden=(8,))
    play_both(module, config, tmp_path)


@pytest.mark.parametrize("squash", [False, True])
def test_a_loaded_policy_moves_like_the_trained_one(squash, tmp_path):
    play_both(ppo, PPO(env="Pendulum-v1", hidden=(8,), squash=squash), tmp_path)


def play_both(module, config, folder):
    """Play one episode by the player of `loopless play` and by the export; returns are equal."""
    weights = weights_of(module, config)
    returns, lengths, _ = module.player(config, weights).episodes(1, 5)
    export_weights(folder / "policy.safetensors", *module.export(config, weights))
    policy = loopless.load_policy(folder)
    env, total, steps, ended = gymnasium.make(config.env), 0.0, 0, False
    obs, _ = env.reset(seed=int(np.random.SeedSequence(5).generate_state(1)[0]) >> 1)
    while not ended:
        obs, reward, terminated, truncated, _ = env.step(policy(obs))
        total, steps, ended = total + float(reward), steps + 1, terminated or truncated
    env.close()
    assert steps == lengths[0]
    assert total == pytest.approx(returns[0], rel=1e-4)


@pytest.fixture
def exported(tmp_path):
    config = replace(DQN(env="CartPole-v1"), hidden=(4,))
    file = tmp_path / "policy.safetensors"
    export_weights(file, *dqn.export(config, weights_of(dqn, config)))
    return file


def test_a_policy_of_this_kind_needs_neither_jax_nor_gymnasium(exported):
    import subprocess
    import sys

    code = (
        "import sys, loopless; policy = loopless.load_policy(sys.argv[1]); print(policy([0] * 4));"
        "assert not {'jax', 'torch', 'gymnasium', 'equinox'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code, exported], capture_output=True, text=True)
    assert done.stderr == ""
    assert int(done.stdout) in (0, 1)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 2, 4), ()])
def test_an_observation_of_another_shape_is_refused(exported, shape):
    with pytest.raises(ValueError, match=r"expected \(4,\)"):
        loopless.load_policy(exported)(np.zeros(shape))


@pytest.mark.parametrize("observation", [2, 6, 3.5, np.nan])
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_a_number_that_is_no_observation_is_refused(observation, tmp_path):
    config = DQN(env="Numbered-v0", hidden=(4,))
    export_weights(tmp_path / "policy.safetensors", *dqn.export(config, weights_of(dqn, config)))
    with pytest.raises(ValueError, match="whole numbers from 3 to 5"):
        loopless.load_policy(tmp_path)(observation)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda file: file.with_suffix(".json").unlink(), "cannot read"),
        (lambda file: file.with_suffix(".json").write_text("[" * 100_000), "cannot read"),
        (lambda file: file.with_suffix(".json").write_text("[]"), "no policy"),
        (lambda file: file.write_bytes(file.read_bytes()[:100]), "cannot read"),
        (lambda file: file.unlink(), "neither a run nor an export"),
        (
            lambda file: file.with_suffix(".json").write_text(
                json.dumps(json.loads(file.with_suffix(".json").read_text()) | {"arrays": {}})
            ),
            "differ in the names and shapes",
        ),
    ],
)
def test_a_damaged_export_is_refused_in_words(damage, message, exported):
    damage(exported)
    with pytest.raises(Failure, match=message):
        loopless.load_policy(exported)
