"""Known bugs of Q-learning, put in one at a time: each is caught, and without it all is well."""

from dataclasses import replace

import dqn_checks
import jax
import jax.numpy as jnp
import pytest

from loopless.envs.compiled.autoreset import Autoreset
from loopless.kernels.q_learning import q_loss
from loopless.train.dqn.algorithm import DQNAlgorithm
from loopless.train.dqn.compiled import CompiledDQN

pytestmark = pytest.mark.slow


def done_for_terminated(monkeypatch):
    right = DQNAlgorithm.targets

    def targets(self, weights, batch, next_q):
        ended = batch["terminated"] | batch["truncated"]
        return right(self, weights, {**batch, "terminated": ended}, next_q)

    monkeypatch.setattr(DQNAlgorithm, "targets", targets)


def gradient_through_the_target(monkeypatch):
    def gradient(self, weights, batch, next_q):
        def loss_of(weights):
            after = self.values(weights, batch["next_obs"]).max(-1)
            discounted = batch["reward"] + self.config.gamma * after
            targets = jnp.where(batch["terminated"], batch["reward"], discounted)
            q = self.values(weights, batch["obs"])
            taken = jnp.take_along_axis(q, batch["action"][:, None], 1)[:, 0]
            errors = taken - targets
            return (errors**2).mean(), ((errors**2).mean(), errors, taken.mean())

        return jax.grad(loss_of, has_aux=True)(weights)

    monkeypatch.setattr(DQNAlgorithm, "gradient", gradient)


def mega_batch_for_sequential_updates(monkeypatch):
    right = DQNAlgorithm.learn

    def learn(self, *args):
        learner, replay, report = right(
            replace(self, config=replace(self.config, mega_batch=True)), *args
        )
        shape = (self.config.updates, 1)
        return learner, replay, jax.tree.map(lambda x: jnp.broadcast_to(x, shape), report)

    monkeypatch.setattr(DQNAlgorithm, "learn", learn)


def online_network_for_the_target(monkeypatch):
    def values(self, learner, batch):
        return self.values(learner.weights, batch["next_obs"])

    monkeypatch.setattr(DQNAlgorithm, "target_values", values)


def stale_priorities(monkeypatch):
    def learn(self, learner, replay, key, beta):
        def draw(carry, key):
            learner, written = carry
            batch = self.sample(replay, key, beta, None)  # as it was when the event began
            rows = batch, self.target_values(learner, batch)
            learner, (report, priorities) = self._repeat(learner, rows)
            written = self.replay.update_priorities(written, batch["indices"], priorities)
            return (learner, written), report

        keys = jax.random.split(key, self.config.draws)
        (learner, written), report = jax.lax.scan(draw, (learner, replay), keys)
        return learner, written, report

    monkeypatch.setattr(DQNAlgorithm, "learn", learn)


def next_state_across_a_reset(monkeypatch):
    right = Autoreset.step

    def step(self, *args):
        running, after = right(self, *args)
        return running, after._replace(next_obs=after.obs)

    monkeypatch.setattr(Autoreset, "step", step)


def one_coin_for_all_envs(monkeypatch):
    right = CompiledDQN.noise

    def noise(self, key, shape):
        one = right(self, key, (*shape[:-1], 1))
        return jax.tree.map(lambda x: jnp.repeat(x, shape[-1], len(shape) - 1), one)

    monkeypatch.setattr(CompiledDQN, "noise", noise)


def weights_of_rows_forgotten(monkeypatch):
    def loss(q, actions, targets, *, weights=None, **options):
        return q_loss(q, actions, targets, **options)

    monkeypatch.setattr("loopless.train.dqn.algorithm.q_loss", loss)


def plain_vanilla():
    dqn_checks.updates_are_plain_python_s("vanilla", target="off")


def plain_dqn():
    dqn_checks.updates_are_plain_python_s("dqn")


def plain_weighted():
    dqn_checks.updates_are_plain_python_s("dqn", prioritized="block")


def fused_uniform():
    dqn_checks.fused_is_the_loop(updates=4)


def fused_exact():
    dqn_checks.fused_is_the_loop(updates=4, prioritized="exact")


CAUGHT_BY = {
    done_for_terminated: dqn_checks.a_time_limit_is_no_end,
    gradient_through_the_target: plain_vanilla,
    mega_batch_for_sequential_updates: fused_uniform,
    online_network_for_the_target: plain_dqn,
    stale_priorities: fused_exact,
    next_state_across_a_reset: dqn_checks.the_successor_is_the_true_one,
    one_coin_for_all_envs: dqn_checks.each_env_throws_its_own_coin,
    weights_of_rows_forgotten: plain_weighted,
}


def named(function):
    return function.__name__


@pytest.mark.parametrize("check", CAUGHT_BY.values(), ids=named)
def test_the_real_thing_passes(check):
    check()


@pytest.mark.parametrize("mutant", CAUGHT_BY, ids=named)
def test_a_mutant_is_caught(mutant, monkeypatch):
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        CAUGHT_BY[mutant]()


def test_only_experience_is_stored():
    dqn_checks.only_experience_is_stored()


def keep_fillers(trainer):
    trainer.has_fillers = False


def break_successors(trainer):
    collect = trainer.envs.collect

    def broken(*args, **options):
        block = collect(*args, **options)
        block.valid[:] = True
        block.next_obs[:] = block.all_obs[1:]
        return block

    trainer.envs.collect = broken


@pytest.mark.parametrize("mutant", [keep_fillers, break_successors], ids=named)
def test_a_filler_step_that_is_stored_is_caught(mutant):
    with pytest.raises(AssertionError):
        dqn_checks.only_experience_is_stored(change=mutant)


def test_boltzmann_noise_is_each_env_s_own_too():
    dqn_checks.each_env_throws_its_own_coin("boltzmann")
