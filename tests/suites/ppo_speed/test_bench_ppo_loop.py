"""Every PPO loop makes the gradient steps that its settings ask for."""

import pytest

from loopless.bench.contest import enter
from suites.dqn_speed import slices
from suites.dqn_speed.slices import PPOTraining
from suites.ppo_speed import peers, plain

SMALL = PPOTraining(32, (6,), envs=2, horizon=8, epochs=2, minibatches=2)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "contender",
    [
        *slices.CONTENDERS[:2],
        *peers.CONTENDERS,
        peers.COMPILED,
        plain.COMPILED,
    ],
    ids=lambda x: x.name,
)
def test_a_slice_makes_the_gradient_steps_it_should(contender):
    if contender.role == "peer":
        pytest.importorskip("sbx")
        pytest.importorskip("rejax")
    row = enter(contender, "steps", SMALL).row
    assert (row.status, row.reason) == ("ok", "")


def test_the_compiled_form_solves_cartpole():
    jax, envs = pytest.importorskip("jax"), plain.Environments(4)
    pytest.importorskip("gymnax")
    weights = plain.in_jax(PPOTraining(102_400)).state.weights["actor"]

    def step(carry, key):
        action = plain.forward(weights, carry[0], jax.numpy.tanh).argmax(1)
        obs, state, _, done = envs.step(key, carry[1], action)
        return (obs, state), done

    keys = jax.random.split(jax.random.key(7), 500)
    ended = jax.lax.scan(step, envs.reset(keys[0]), keys)[1]
    assert ended.sum() < 10  # 500 steps each; a policy that learned nothing ends ten times as many


def test_a_slice_is_whole_rollouts():
    assert (SMALL.rows, SMALL.gradient_steps) == (16, 2 * 4)
    assert PPOTraining(5_120).gradient_steps == 10 * 16


def test_everyone_is_told_the_same():
    case = PPOTraining(5_120)
    config, told = case.config(), peers.options(case)
    assert (told["n_steps"], told["batch_size"], told["n_epochs"]) == (128, 128, 4)
    assert (config.envs, config.horizon, config.epochs, config.minibatches) == (4, 128, 4, 4)
    assert config.learning_rate == config.learning_rate_end == told["learning_rate"]
    assert told["policy_kwargs"] == {"net_arch": [64, 64]}
    assert (config.activation, config.algorithm, config.core) == ("tanh", "ppo", "none")
    assert not any((config.normalize_obs, config.normalize_rewards, config.target_kl))
    assert not config.problems()
