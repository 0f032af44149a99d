"""Compiled environments side by side: every row beside a plain loop with if and else."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopless.envs import EnvError, autoreset, make_compiled
from loopless.envs.compiled.tables import Chain
from loopless.envs.spaces import Box, Discrete

ENVS, STEPS = 3, 14


class EndsState(NamedTuple):
    mark: jax.Array
    length: jax.Array
    kind: jax.Array
    step: jax.Array


class Ends:
    """Episodes of 1 to 4 steps that end in one of three ways; every number is told apart.

    The key of a step is seen in the reward, and the mark of an episode in its observations.
    """

    obs_shape, obs_dtype, actions, max_steps = (2, 2), "float32", 5, None

    def reset(self, key):
        mark, length, kind = jax.random.uniform(key, (3,), jnp.float32)
        length, kind = (1 + 4 * length).astype(jnp.int32), (3 * kind).astype(jnp.int32)
        state = EndsState(mark, length, kind, jnp.int32(0))
        return state, self.observe(state, jnp.int32(-1))

    def step(self, state, action, key):
        state = state._replace(step=state.step + 1)
        ended = state.step >= state.length
        reward = action + jax.random.uniform(key, (), jnp.float32)
        obs = self.observe(state, action)
        return state, obs, reward, ended & (state.kind != 0), ended & (state.kind != 1)

    def observe(self, state, action):
        return jnp.stack([state.mark, state.length, state.step, action]).reshape(2, 2)


WORLD = autoreset(Ends(), ENVS)


def scanned(world, key, actions, first, running):
    """The steps from number `first` in one scan."""
    draws = world.draws(key, first + jnp.arange(len(actions)))
    return jax.lax.scan(lambda c, x: world.step(c, *x), running, (actions, draws))


def run(world, key, actions):
    """All steps from the first reset on."""
    return chunk(world, key, actions, 0, start(world, key))


chunk = jax.jit(scanned, static_argnums=0)
start = jax.jit(lambda world, key: world.reset(key)[0], static_argnums=0)
all_draws = jax.jit(lambda key: WORLD.draws(key, jnp.arange(STEPS)))
reward_noise = jax.jit(jax.vmap(jax.vmap(lambda key: jax.random.uniform(key, (), jnp.float32))))


def plain_loop(key, actions):
    """One environment after the other, one step after the other; only the draws are taken over."""
    draws = all_draws(key)
    noise, fresh = np.asarray(reward_noise(draws.key)), jax.tree.map(np.asarray, draws.state)
    first = jax.tree.map(np.asarray, start(WORLD, key).state)
    columns = []
    for i in range(ENVS):
        mark, length, kind, _ = (field[i] for field in first)
        step, total, column = 0, 0.0, []
        for t in range(STEPS):
            step += 1
            reward = actions[t, i] + noise[t, i]
            total += reward
            terminated = step == length and kind in (1, 2)
            truncated = step == length and kind in (0, 2)
            next_obs = obs = [[mark, length], [step, actions[t, i]]]
            totals = (total, step)
            if terminated or truncated:
                mark, length, kind, _ = (field[t, i] for field in fresh)
                step, total, obs = 0, 0.0, [[mark, length], [0, -1]]
            column.append((next_obs, reward, terminated, truncated, True, obs, *totals))
        columns.append(column)
    return [
        np.array([[columns[i][t][field] for i in range(ENVS)] for t in range(STEPS)])
        for field in range(8)
    ]


@pytest.mark.slow
@given(seed=st.integers(0, 2**31 - 1), actions=st.integers(0, 2**31 - 1))
def test_every_row_equals_a_plain_loops(seed, actions):
    key = jax.random.key(seed)
    actions = np.random.default_rng(actions).integers(0, 5, (STEPS, ENVS)).astype(np.int32)
    _, rows = run(WORLD, key, actions)
    assert rows.mask is None
    names, rows_but_masks = rows._fields[:-1], rows[:-1]
    for name, ours, plain in zip(names, rows_but_masks, plain_loop(key, actions), strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-6, err_msg=name)
    np.testing.assert_array_equal(rows.ended, rows.terminated | rows.truncated)


def test_the_final_observation_and_the_first_of_the_next_episode_are_kept_apart():
    actions = np.zeros((STEPS, ENVS), np.int32)
    _, rows = run(WORLD, jax.random.key(1), actions)
    ended = np.asarray(rows.ended)
    steps_then, steps_next = np.asarray(rows.next_obs[:, :, 1, 0]), np.asarray(rows.obs[:, :, 1, 0])
    assert ended.any()
    assert (steps_then >= 1).all()
    np.testing.assert_array_equal(steps_next == 0, ended)
    np.testing.assert_array_equal(rows.obs[~ended], rows.next_obs[~ended])


def test_results_do_not_depend_on_chunks():
    key, actions = jax.random.key(2), np.ones((STEPS, ENVS), np.int32)
    _, whole = run(WORLD, key, actions)
    half = STEPS // 2
    between, one = chunk(WORLD, key, actions[:half], 0, start(WORLD, key))
    _, two = chunk(WORLD, key, actions[half:], half, between)
    joined = jax.tree.map(lambda a, b: np.concatenate([a, b]), one, two)
    jax.tree.map(np.testing.assert_array_equal, joined, whole)


def test_a_draw_of_one_step_is_the_row_of_a_draw_of_many():
    key = jax.random.key(3)
    many, one = all_draws(key), jax.jit(WORLD.draws)(key, 2)
    np.testing.assert_array_equal(many.obs[2], one.obs)
    np.testing.assert_array_equal(jax.random.key_data(many.key[2]), jax.random.key_data(one.key))


def test_an_environment_is_the_same_whoever_runs_beside_it():
    key, actions = jax.random.key(4), np.ones((STEPS, ENVS), np.int32)
    _, three = run(WORLD, key, actions)
    _, one = run(autoreset(Ends(), 1), key, actions[:, :1])
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[:, :1], b), three, one)


def test_environments_and_steps_and_the_first_reset_draw_apart():
    key = jax.random.key(5)
    drawn = all_draws(key)
    marks = np.concatenate([start(WORLD, key).state.mark, drawn.state.mark.ravel()])
    assert len(set(marks.tolist())) == marks.size
    keys = np.asarray(jax.random.key_data(drawn.key)).reshape(-1, 2)
    assert len(set(map(tuple, keys.tolist()))) == len(keys)


@pytest.mark.slow
def test_seeds_can_be_vmapped():
    actions = np.ones((STEPS, ENVS), np.int32)
    keys = jax.random.split(jax.random.key(6), 2)
    _, both = jax.jit(jax.vmap(lambda key: run(WORLD, key, actions)))(keys)
    for k in range(2):
        _, alone = run(WORLD, keys[k], actions)
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[k], b), both, alone)  # noqa: B023


@pytest.mark.parametrize("env_id", ["CartPole-v1", "loopless/Chain-v0", "loopless/Pixels-v0"])
def test_shipped_environments_run_in_a_scan(env_id):
    world = autoreset(make_compiled(env_id, max_steps=5), 2)
    actions = np.zeros((6, 2), np.int32)
    _, rows = jax.eval_shape(lambda key: run(world, key, actions), jax.random.key(0))
    assert rows.obs.shape == rows.next_obs.shape == (6, 2, *world.obs_space.shape)
    assert rows.obs.dtype == rows.next_obs.dtype == world.obs_space.dtype
    assert world.action_space == Discrete(make_compiled(env_id).actions)


class Continuous(Ends):
    action_space = Box((2,), "float32", -1.0, 1.0)

    def step(self, state, action, key):
        return super().step(state, action.sum(), key)


def test_continuous_actions_pass():
    world = autoreset(Continuous(), ENVS)
    assert world.action_space == Box((2,), "float32", -1.0, 1.0)
    actions = np.full((STEPS, ENVS, 2), 0.5, np.float32)
    _, rows = jax.eval_shape(lambda key: run(world, key, actions), jax.random.key(0))
    assert rows.reward.shape == (STEPS, ENVS)


class Grows(Ends):
    def step(self, state, action, key):
        state, *rest = super().step(state, action, key)
        return state._replace(step=state.step.astype(jnp.float32)), *rest


class Reshapes(Ends):
    def observe(self, state, action):
        return super().observe(state, action).ravel()


class Done(Ends):
    def step(self, state, action, key):
        state, obs, reward, terminated, truncated = super().step(state, action, key)
        return state, obs, reward.astype(jnp.int32), terminated | truncated


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (Grows(), r"Grows: step returns a state of .*: a scan needs one"),
        (Reshapes(), r"reset returns an observation of \(\(4,\).*; step returns an observation"),
        (Done(), r"the reward is .*int32.*; step ends with .* not with the booleans"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_an_environment_that_fits_no_scan_is_refused_with_all_reasons(env, words):
    with pytest.raises(EnvError, match=words):
        autoreset(env)


@pytest.mark.parametrize("envs", [0, -1, 1.5, True])
def test_a_number_of_environments_is_a_count(envs):
    with pytest.raises(EnvError, match="envs must be an integer of at least 1"):
        autoreset(Chain(), envs)
