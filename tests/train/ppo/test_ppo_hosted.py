"""Hosted runs of PPO: the same learner as compiled ones, no filler, memory emptied at ends."""

from dataclasses import replace
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_results import calls_of_programs, resume, train, trainer_of

from loopless.envs import HostedEnvs
from loopless.runs.checkpoint import Checkpoints
from loopless.runs.progress.clock import Clock
from loopless.train.ppo.config import PPO
from loopless.train.ppo.hosted import learn_rollout

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_renderer")]

TINY = PPO(
    env="loopless/Chain-v0", mode="hosted", hidden=(6,), envs=2, horizon=8, minibatches=2,
    epochs=2, steps=160, log_every=32, eval_every=64, eval_episodes=4, checkpoint_every=64,
    learning_rate=0.01,
)  # fmt: skip
KINDS = {
    "normalised": {"normalize_obs": True, "normalize_rewards": True},
    "overlapped": {"overlap": True},
    "recurrent": {"core": "gru", "core_width": 4, "env": "loopless/Memory-v0"},
    "masked": {"env": "loopless/Masked-v0"},
    "a2c": {"algorithm": "a2c"},
    "native": {"env": "CartPole-v1", "vectorization": "native"},
    "numbers": {"env": "Pendulum-v1", "squash": True},
    "pictures": {"env": "loopless/Pixels-v0"},
}


def seen_by_the_learner(trainer):
    """The learner, the rollouts that it gets, and what came out."""
    calls, learn = [], trainer.agent._learn

    def spied(learner, settings, acted, rollout, key, number):
        before = jax.tree.map(np.array, learner)
        rollout = jax.tree.map(np.array, rollout)
        learner, report = learn(learner, settings, acted, rollout, key, number)
        calls.append((before, acted, rollout, jax.tree.map(np.array, learner)))
        return learner, report

    trainer.agent._learn = spied
    return calls


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_trains_and_is_judged(kind):
    trainer = trainer_of(replace(TINY, **KINDS[kind]))
    calls = seen_by_the_learner(trainer)
    try:
        while trainer.step < trainer.total:
            row = trainer.advance(Clock())
        evaluation = trainer.evaluate()
    finally:
        trainer.close()
    assert row["updates"] == 10 * (1 if kind == "a2c" else 4)
    assert np.isfinite([row["loss"], row["entropy"], evaluation["eval_return"]]).all()
    check = {
        "overlapped": acted_with_older_weights, "recurrent": memory_is_emptied_at_ends,
        "masked": only_legal_actions, "native": fillers_have_no_weight,
        "pictures": outputs_of_acting_are_those_of_the_network,
    }.get(kind)  # fmt: skip
    if check is not None:
        check(trainer, calls)


def acted_with_older_weights(trainer, calls):
    """The first rollout and the second by the first weights; later ones by weights one call old."""
    for number in range(2, len(calls)):
        acted = calls[number][1]["online"]
        np.testing.assert_array_equal(acted, calls[number - 1][0].weights)
        assert not np.array_equal(acted, calls[number][0].weights)


def memory_is_emptied_at_ends(trainer, calls):
    """The memory that a window begins with is what its predecessor's rows leave behind."""
    algorithm, ends = trainer.agent.algorithm, 0
    for (before, _, first, _), (_, _, second, _) in pairwise(calls):
        net = algorithm.rebuild(before.weights)
        memories = net.unroll(first.memory, first.all_obs[:-1], first.starts[:-1])[3]
        np.testing.assert_allclose(second.memory, memories[-1], rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(second.starts[0], first.starts[-1])
        ends += int(first.starts[1:].sum())
    assert ends > 0


def only_legal_actions(trainer, calls):
    for _, _, rollout, _ in calls:
        taken = np.take_along_axis(rollout.masks, rollout.action[..., None], 2)
        assert taken.all()
        assert not rollout.masks.all()


def fillers_have_no_weight(trainer, calls):
    """What a filler says changes nothing that is learned."""
    fillers = sum(int((~rollout.valid).sum()) for _, _, rollout, _ in calls)
    assert fillers > 0
    algorithm, settings = trainer.agent.algorithm, trainer.agent.settings
    learn = jax.jit(lambda learner, *args: learn_rollout(algorithm, learner, settings, *args))
    number = next(i for i, call in enumerate(calls) if not call[2].valid.all())
    before, acted, rollout, after = calls[number]
    valid = rollout.valid
    rollout = rollout._replace(
        reward=np.where(valid, rollout.reward, 1e6).astype(np.float32),
        action=np.where(valid, rollout.action, 0),
        terminated=np.where(valid, rollout.terminated, True),
    )
    again, _ = learn(before, acted, rollout, trainer.agent.key, np.int32(number))
    np.testing.assert_allclose(again.weights, after.weights, rtol=1e-5, atol=1e-7)
    wrong = rollout._replace(valid=np.ones_like(valid))
    wrong, _ = learn(before, acted, wrong, trainer.agent.key, np.int32(number))
    assert not np.allclose(wrong.weights, after.weights, rtol=1e-5, atol=1e-7)


def outputs_of_acting_are_those_of_the_network(trainer, calls):
    """The learner gets what acting has computed, and its advantages are as if it had not."""
    algorithm = trainer.agent.algorithm
    prepare = jax.jit(
        lambda learner, rollout: algorithm.prepare(learner, learner.acting(), rollout)
    )
    for before, _, rollout, _ in calls:
        net = algorithm.rebuild(jnp.asarray(before.weights))
        params, _, values = net(rollout.all_obs[:-1])
        np.testing.assert_allclose(rollout.outputs[0], params, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(rollout.outputs[1], values, rtol=1e-5, atol=1e-6)
        _, steps = prepare(before, rollout)
        _, again = prepare(before, rollout._replace(outputs=None))
        for name, array in steps.items():
            np.testing.assert_allclose(array, again[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_a_hosted_run_is_resumed_from_its_weights(tmp_path):
    config = replace(TINY, normalize_obs=True)
    killed = train(tmp_path, config, "killed", dies_after=96)
    before = Checkpoints(killed).load().arrays
    assert int(before["event"]) == 4
    resume(killed)
    after = Checkpoints(killed).load().arrays
    assert int(after["event"]) == 10
    assert after["learner/obs/seen"] == 160
    assert not np.array_equal(before["weights/obs_mean"], after["weights/obs_mean"])


def test_a_rollout_is_one_call_and_acting_is_none(tmp_path):
    trainer = trainer_of(replace(TINY, steps=1_600))
    try:
        trainer.advance(Clock())
        calls = calls_of_programs(tmp_path, lambda: trainer.advance(Clock()))
        assert calls == 2
    finally:
        trainer.close()


def test_the_environments_that_were_made_are_closed_if_the_config_does_not_fit(monkeypatch):
    closed = []
    close = HostedEnvs.close
    monkeypatch.setattr(HostedEnvs, "close", lambda self: (closed.append(self), close(self)))
    with pytest.raises(Exception, match="squash is for Box"):
        trainer_of(replace(TINY, squash=True))
    assert closed
