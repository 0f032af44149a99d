"""The chain and the pixel grid: closed forms beside plain loops, and two faces of one world."""

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from loopless.envs import EnvError
from loopless.envs.compiled.tables import Chain, Pixels, PixelsState, TableState
from loopless.envs.worlds import gym as gym_worlds
from loopless.envs.worlds.gym import ChainEnv, PixelsEnv
from loopless.envs.worlds.rules import ChainWorld, PixelsWorld

KEY = jax.random.key(0)


def backup(world, state, action, value, gamma):
    """The right side of Bellman's equation, with `value` of the next state."""
    reward = world.rewards[state, action]
    if world.terminates[state, action]:
        return reward
    return reward + gamma * value(world.next_states[state, action])


@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("gamma", [0.5, 0.9])
def test_value_iteration_arrives_at_the_closed_form(length, gamma, forever):
    world, q = ChainWorld(length, forever=forever), np.zeros((length, 2))
    for _ in range(400):
        q = np.array(
            [
                [backup(world, s, a, lambda after: q[after].max(), gamma) for a in range(2)]  # noqa: B023
                for s in range(length)
            ]
        )
    np.testing.assert_allclose(world.optimal_q(gamma), q, rtol=1e-12)


@pytest.mark.parametrize("forever", [False, True])
def test_repeated_evaluation_arrives_at_the_values_of_a_policy(forever):
    world, gamma, q = ChainWorld(4, forever=forever), 0.8, np.zeros((4, 2))
    right = np.array([0.1, 0.5, 0.9, 0.3])
    policy = np.stack([1 - right, right], 1)
    for _ in range(400):
        q = np.array(
            [
                [backup(world, s, a, lambda after: policy[after] @ q[after], gamma) for a in (0, 1)]  # noqa: B023
                for s in range(4)
            ]
        )
    np.testing.assert_allclose(world.policy_q(policy, gamma), q, rtol=1e-12)


def test_a_truncation_taken_for_a_termination_misses_the_endless_value():
    world, gamma = ChainWorld(forever=True, max_steps=20), 0.9
    wrong = (1 - gamma**world.max_steps) / (1 - gamma)
    assert world.optimal_q(gamma) == pytest.approx(10)
    assert wrong < 9


def sampled(face, first, key_of, actions, **fields):
    """What a compiled face gives under `actions` from its state `first`."""
    env = face(**fields)
    step, state, rows = jax.jit(env.step), first, []
    for action in actions:
        state, *row = step(state, action, KEY)
        rows.append([np.asarray(x) for x in row])
    return rows


def hosted(env, options, actions):
    """The first observation of a Gymnasium face, and what it gives under `actions`."""
    obs, _ = env.reset(seed=0, options=options)
    return obs, [env.step(action)[:4] for action in actions]


def assert_same(ours, theirs):
    for row, other in zip(ours, theirs, strict=True):
        for mine, yours in zip(row, other, strict=True):
            np.testing.assert_array_equal(mine, yours)
        assert row[0].dtype == other[0].dtype


@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("position", range(3))
def test_both_faces_of_the_chain_agree(position, forever):
    actions = np.random.default_rng(position).integers(0, 2, 9).tolist()
    first = TableState(np.int32(position), np.int32(0))
    ours = sampled(Chain, first, KEY, actions, length=3, max_steps=7, forever=forever)
    env = ChainEnv(length=3, max_steps=7, forever=forever)
    obs, theirs = hosted(env, {"position": position}, actions)
    np.testing.assert_array_equal(obs, np.eye(3)[position])
    assert_same(ours, theirs)
    assert theirs[6][3]


@pytest.mark.parametrize("seed", range(5))
def test_both_faces_of_the_grid_agree(seed):
    rng = np.random.default_rng(seed)
    agent, goal = rng.choice(9, 2, replace=False).tolist()
    actions = rng.integers(0, 4, 12).tolist()
    first = PixelsState(np.int32(agent), np.int32(goal), np.int32(0))
    ours = sampled(Pixels, first, KEY, actions, cells=3, max_steps=10)
    env = PixelsEnv(cells=3, max_steps=10)
    obs, theirs = hosted(env, {"agent": agent, "goal": goal}, actions)
    np.testing.assert_array_equal(obs, np.asarray(Pixels(cells=3).picture(first)))
    assert_same(ours, theirs)


def test_a_picture_shows_agent_and_goal_where_they_are():
    obs, _ = PixelsEnv(cells=3, scale=2).reset(options={"agent": 1, "goal": 6})
    assert obs.shape == (6, 6, 3)
    red, green, blue = (np.argwhere(obs[..., c] == 255).tolist() for c in range(3))
    assert red == [[0, 2], [0, 3], [1, 2], [1, 3]]
    assert green == [[4, 0], [4, 1], [5, 0], [5, 1]]
    assert blue == []


@pytest.mark.parametrize("seed", range(8))
def test_a_shortest_path_is_as_long_as_the_distance_says_and_pays_one(seed):
    env = PixelsEnv()
    env.reset(seed=seed)
    world, steps = env.world, 0
    distance = world.distance(env._agent, env._goal)
    assert 1 <= distance <= 14 < world.max_steps
    terminated = False
    while not terminated:
        there = [world.distance(world.next_cells[env._agent, a], env._goal) for a in range(4)]
        _, reward, terminated, truncated, _ = env.step(int(np.argmin(there)))
        steps += 1
        assert not truncated
        assert reward == terminated
    assert steps == distance


@pytest.mark.parametrize("face", [Chain(), Pixels()], ids=["chain", "pixels"])
def test_every_start_is_equally_likely(face):
    state, _ = jax.jit(jax.vmap(face.reset))(jax.random.split(KEY, 20_000))
    if isinstance(face, Chain):
        counts = np.bincount(state.position, minlength=face.length)
    else:
        assert (state.agent != state.goal).all()
        counts = np.bincount(state.goal, minlength=face.cells**2)
    expected = 20_000 / len(counts)
    chi2 = ((counts - expected) ** 2 / expected).sum()
    assert chi2 < len(counts) - 1 + 5 * np.sqrt(2 * (len(counts) - 1))


@pytest.mark.parametrize("env_id", sorted(gym_worlds._IDS))
def test_gymnasium_finds_nothing_to_complain_of(env_id):
    env = gymnasium.make(f"loopless.envs.worlds.gym:{env_id}", render_mode="rgb_array")
    check_env(env.unwrapped)
    env.reset(seed=0)
    frame = env.render()
    assert frame.dtype == np.uint8
    assert frame.shape[2] == 3


def test_all_wrong_fields_are_named_at_once():
    with pytest.raises(EnvError, match=r"cells .* received 1; scale .* received 0"):
        PixelsWorld(cells=1, scale=0)
    with pytest.raises(EnvError, match=r"length .* received 2.5"):
        ChainWorld(length=2.5)
