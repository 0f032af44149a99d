"""PPO where the truth is known: endless reward behind a time limit, memory, masks; and mutants."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ppo_cases import KEY, NUMBERS, algorithm_of, learner_of, rollout_of, small

from loopless.envs import autoreset, make_compiled
from loopless.envs.compiled.tables import Chain
from loopless.nets import actor_critic, distributions, recurrent
from loopless.train.engine.rollouts import cut_minibatches, flatten_steps
from loopless.train.ppo.algorithm import PPOAlgorithm, build
from loopless.train.ppo.compiled import CompiledPPO
from loopless.train.ppo.config import PPO

pytestmark = pytest.mark.slow

GAMMA = 0.9
FOREVER = Chain(forever=True, max_steps=7)
TABLE = PPO(
    hidden=(), envs=8, horizon=16, minibatches=2, gamma=GAMMA, learning_rate=0.1, steps=12_800,
    gae_lambda=0.9, max_gradient_norm=0.0,
)  # fmt: skip
RECURRENT = PPO(
    env="loopless/Memory-v0", core="gru", core_width=16, hidden=(16,), envs=16, horizon=32,
    learning_rate=3e-3, steps=25_600, gamma=1.0,
)  # fmt: skip


def trained(env, config):
    """The run's functions, and its carry after all steps."""
    assert not config.problems(), config.problems()
    world = autoreset(env, config.envs)
    algorithm = build(config, world.obs_space, world.action_space, world.max_steps)
    run = CompiledPPO(algorithm, world, world)
    key, rollouts = jax.random.key(config.seed), np.int32(config.steps // config.rollout_size)
    chunk = jax.jit(run.chunk)
    carry, _ = chunk(jax.jit(run.init)(key), key, np.int32(0), rollouts)
    _, (late, _) = chunk(carry, key, rollouts, np.int32(4))
    return algorithm, carry, float(late.total_return / late.ended)


def a_time_limit_is_no_end():
    """Cut after 7 steps, a reward of 1 for ever is worth 1/(1−γ)."""
    algorithm, carry, _ = trained(FOREVER, TABLE)
    net = algorithm.rebuild(carry.learner.weights)
    values = net(jnp.asarray(FOREVER.observations))[2]
    np.testing.assert_allclose(values, 1 / (1 - GAMMA), atol=0.2)


def test_a_time_limit_is_no_end():
    a_time_limit_is_no_end()


def test_truncation_taken_for_termination_is_caught(monkeypatch):
    right = PPOAlgorithm.prepare

    def prepare(self, learner, acted, rollout):
        ended = rollout.terminated | rollout.truncated
        return right(self, learner, acted, rollout._replace(terminated=ended))

    monkeypatch.setattr(PPOAlgorithm, "prepare", prepare)
    with pytest.raises(AssertionError):
        a_time_limit_is_no_end()


def test_a_core_remembers_what_no_other_policy_can_know():
    env = make_compiled(RECURRENT.env, length=4)
    assert trained(env, RECURRENT)[2] > 0.95


def test_without_a_core_the_cue_is_guessed():
    env = make_compiled(RECURRENT.env, length=4)
    assert trained(env, replace(RECURRENT, core="none"))[2] < 0.75


def test_illegal_actions_are_never_taken():
    """An illegal action ends an episode with −1: by the mask, it is never chosen."""
    env = make_compiled("loopless/Masked-v0")
    config = PPO(hidden=(8,), envs=4, horizon=32, steps=128)
    world = autoreset(env, 4)
    algorithm = build(config, world.obs_space, world.action_space, world.max_steps)
    run = CompiledPPO(algorithm, world, world)

    @jax.jit
    def collect(key):
        _, rollout, _ = run.collect(run.init(key), key, jnp.int32(0), key)
        return rollout

    rollout = collect(KEY)
    legal = np.take_along_axis(np.asarray(rollout.masks), np.asarray(rollout.action)[..., None], 2)
    assert legal.all()
    assert not np.asarray(rollout.masks).all()


# --- sequences -----------------------------------------------------------------------------------

SEQUENCES = {"core": "gru", "core_width": 4, "minibatches": 2, "epochs": 2}


def memories(algorithm, learner, rollout):
    """The memory after each row by one step after the other, emptied at starts by hand."""
    net = algorithm.rebuild(learner.weights)
    memory, after = np.asarray(rollout.memory), []
    for t in range(len(rollout.reward)):
        memory = np.where(rollout.starts[t][:, None], 0.0, memory)
        still = np.zeros(len(memory), bool)
        memory = np.asarray(net.step(jnp.asarray(memory), rollout.all_obs[t], still)[3])
        after.append(memory)
    return after


def sequences_are_thought_over_in_order():
    """Values of rows and of true successors, each by the memory that led there."""
    algorithm = algorithm_of(small(**SEQUENCES))
    learner = learner_of(algorithm)
    start = np.random.default_rng(5).normal(size=(4, 4))
    rollout = rollout_of(memory=jnp.asarray(start))
    after = memories(algorithm, learner, rollout)
    net = algorithm.rebuild(learner.weights)
    _, rows = jax.jit(algorithm.prepare)(learner, learner.acting(), rollout)
    config = algorithm.config
    for t in range(6):
        before = start if t == 0 else after[t - 1]
        before = np.where(rollout.starts[t][:, None], 0.0, before)
        values = net.value_after(jnp.asarray(before), rollout.all_obs[t])
        np.testing.assert_allclose(rows["old_value"][t], values, rtol=1e-9)
    cut = (rollout.truncated & ~rollout.terminated)[2]
    successor = net.value_after(jnp.asarray(after[2]), rollout.next_obs[2])
    expected = rollout.reward[2] + config.gamma * np.asarray(successor)
    np.testing.assert_allclose(rows["return"][2][cut], expected[cut], rtol=1e-9)


def test_sequences_are_thought_over_in_order():
    sequences_are_thought_over_in_order()


def test_memory_that_leaks_across_an_end_is_caught(monkeypatch):
    monkeypatch.setattr(recurrent, "forget", lambda memory, starts: memory)
    monkeypatch.setattr(actor_critic, "forget", lambda memory, starts: memory)
    with pytest.raises(AssertionError):
        sequences_are_thought_over_in_order()


def test_a_window_goes_on_where_the_last_one_ended():
    """Collected in two windows, a policy acts as it does in one."""
    env = make_compiled("loopless/Memory-v0")

    def rows(horizon, windows):
        config = PPO(core="lstm", core_width=4, hidden=(4,), envs=2, horizon=horizon, minibatches=1)
        world = autoreset(env, 2)
        algorithm = build(config, world.obs_space, world.action_space, world.max_steps)
        carry, found, key = (
            jax.jit(CompiledPPO(algorithm, world, world).init)(KEY),
            [],
            jax.random.key(1),
        )
        noise = np.asarray(algorithm.head.noise(key, (12, 2)))

        @jax.jit
        def collect(noise, number, carry):
            own = replace(algorithm, head=_Fixed(algorithm.head, noise))
            carry, rollout, _ = CompiledPPO(own, world, world).collect(carry, KEY, number, key)
            return carry, rollout

        for window in range(windows):
            part = noise[window * horizon : (window + 1) * horizon]
            carry, rollout = collect(part, np.int32(window), carry)
            found.append(rollout)
        names = ("action", "reward", "terminated")
        return [np.concatenate([getattr(part, name) for part in found]) for name in names]

    for one, two in zip(rows(12, 1), rows(6, 2), strict=True):
        np.testing.assert_array_equal(one, two)


class _Fixed:
    """A head whose noise is given."""

    def __init__(self, head, noise):
        self._head, self._noise = head, noise

    def __call__(self, *args):
        return self._head(*args)

    def __getattr__(self, name):
        return getattr(self._head, name)

    def noise(self, key, shape):
        return self._noise


def test_minibatches_of_sequences_are_whole_columns():
    algorithm = algorithm_of(small(**SEQUENCES))
    rollout = rollout_of(memory=jnp.arange(16.0).reshape(4, 4))
    learner = learner_of(algorithm)
    _, rows = jax.jit(algorithm.prepare)(learner, learner.acting(), rollout)
    units = flatten_steps(rows, rollout.memory)
    parts = cut_minibatches(units, jnp.array([2, 0, 3, 1]), 2)
    assert parts["obs"].shape == (2, 6, 2, 3)
    np.testing.assert_array_equal(parts["obs"][0, :, 0], rollout.all_obs[:-1, 2])
    np.testing.assert_array_equal(parts["obs"][1, :, 1], rollout.all_obs[:-1, 1])
    np.testing.assert_array_equal(parts["starts"][1, :, 0], rollout.starts[:-1, 3])
    np.testing.assert_array_equal(parts["memory"][0], rollout.memory[jnp.array([2, 0])])


# --- squashed numbers ----------------------------------------------------------------------------


def the_old_log_probability_is_that_of_the_action():
    """By the change of variables, worked out in NumPy."""
    algorithm = algorithm_of(small(squash=True), NUMBERS)
    learner, rollout = learner_of(algorithm), rollout_of(NUMBERS)
    u = np.asarray(rollout.action, np.float64)
    _, rows = jax.jit(algorithm.prepare)(learner, learner.acting(), rollout._replace(action=u))
    net = algorithm.rebuild(learner.weights)
    mean, log_std, _ = (np.asarray(x) for x in net(rollout.all_obs[:-1]))
    normal = -0.5 * ((u - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
    expected = (normal - np.log(1 - np.tanh(u) ** 2)).sum(-1)
    np.testing.assert_allclose(rows["old_log_prob"], expected, rtol=1e-9)


def test_the_old_log_probability_is_that_of_the_action():
    the_old_log_probability_is_that_of_the_action()


def test_a_squashed_law_without_its_correction_is_caught(monkeypatch):
    monkeypatch.setattr(distributions, "_log_slope", jnp.zeros_like)
    with pytest.raises(AssertionError):
        the_old_log_probability_is_that_of_the_action()
