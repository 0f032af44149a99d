"""Every PPO loop makes the gradient steps that its settings ask for; the eager one is right."""

import numpy as np
import pytest

from loopless import reference
from loopless.bench.contest import enter
from suites.dqn_speed import slices
from suites.dqn_speed.slices import PPOTraining
from suites.ppo_speed import peers, plain

SMALL = PPOTraining(32, (6,), envs=2, horizon=8, epochs=2, minibatches=2)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def eager():
    """An eager loop with a rollout in which episodes ended."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    made = plain.Loop(PPOTraining(128, (6,), envs=2, horizon=64, epochs=2, minibatches=2))
    made.collect()
    return made


@pytest.mark.parametrize(
    "contender",
    [
        *slices.CONTENDERS[:2],
        *peers.CONTENDERS,
        plain.CONTENDER,
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


def test_the_eager_loop_goes_on_where_no_episode_ended(eager):
    obs, starts = eager.obs.numpy(), eager.starts.numpy().astype(bool)
    assert 0 < starts.sum() < 20
    moved = np.abs(np.diff(obs, axis=0)).max(-1)
    assert moved[~starts[1:]].max() < 2  # a step moves little
    assert np.abs(obs[starts]).max() <= 0.05  # where CartPole starts
    assert eager.rewards.numpy().all()


def test_the_eager_loop_has_the_advantages_of_the_reference(eager):
    import torch

    with torch.no_grad():
        last = eager.critic(eager.next_obs).flatten()
    values, ends = eager.values, torch.cat([eager.starts[1:], eager.next_starts[None]]).bool()
    next_values = torch.cat([values[1:], last[None]])
    expected, _ = reference.gae(
        *(x.double().numpy() for x in (eager.rewards, values, next_values)),
        ends.numpy(), np.zeros_like(ends.numpy()),
        gamma=eager.config.gamma, lambda_=eager.config.gae_lambda,
    )  # fmt: skip
    np.testing.assert_allclose(eager.advantages().numpy(), expected, atol=1e-4)


def test_the_eager_loop_has_the_loss_of_the_reference(eager):
    import torch

    advantages = eager.advantages()
    rows = {
        "obs": eager.obs[0], "action": eager.actions[0], "log_prob": eager.log_probs[0] - 0.3,
        "advantage": torch.tensor([-1.0, 2.0]), "return": advantages[0],
    }  # fmt: skip
    with torch.no_grad():
        law = torch.log_softmax(eager.actor(rows["obs"]), -1)
        values = eager.critic(rows["obs"]).flatten()
        found = float(eager.loss(rows))
    chosen = law.gather(1, rows["action"][:, None])[:, 0]
    normalized = (rows["advantage"] - 0.5) / rows["advantage"].std()
    arrays = (
        chosen,
        rows["log_prob"],
        normalized,
        values,
        rows["return"],
        -(law.exp() * law).sum(-1),
    )
    config = eager.config
    expected, _ = reference.ppo_loss(
        *(x.double().numpy() for x in arrays), clip=config.clip,
        value_coefficient=config.value_coefficient, entropy_coefficient=config.entropy_coefficient,
    )  # fmt: skip
    assert found == pytest.approx(expected, abs=1e-4)


def test_the_eager_loop_learns(eager):
    before = [part.detach().clone() for part in eager.parameters]
    assert eager.learn() == 4
    moved = [not a.equal(b) for a, b in zip(before, eager.parameters, strict=True)]
    assert all(moved)
