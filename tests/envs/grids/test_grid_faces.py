"""The grid task: two faces of one world, its distances, and an agent that learns it."""

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from loopless.envs import EnvError
from loopless.envs.compiled.autoreset import autoreset
from loopless.envs.compiled.tables import Grid, TableState
from loopless.envs.grids import ENV_FIELDS
from loopless.envs.grids.gym import GridEnv
from loopless.envs.grids.world import GridTask

KEY = jax.random.key(0)
CHANCE = "DR:0.5,.,.\n.,X,.\n.,PU:1_2@3,E1\nE2,.,.\n"


@pytest.mark.parametrize("obs", ["xy", "one-hot", "pixels"])
def test_both_faces_agree(obs):
    fields = {"layout": "GridMaze-7-seed0", "obs": obs, "max_steps": 30, "goal": [1, 1]}
    env, face = GridEnv(**fields), Grid(**fields)
    step = jax.jit(face.step)
    position = int(face.start_states[-1])
    state = TableState(np.int32(position), np.int32(0))
    first, _ = env.reset(seed=0, options={"position": position})
    np.testing.assert_array_equal(first, face.observations[position])
    for action in np.random.default_rng(0).integers(0, 4, 40):
        state, *ours = step(state, action, KEY)
        theirs = env.step(action)[:4]
        for mine, yours in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(np.asarray(mine), yours)
        assert np.asarray(ours[0]).dtype == theirs[0].dtype


@pytest.mark.parametrize("face", ["compiled", "gymnasium"])
def test_chances_are_those_of_the_table(face):
    """χ² of where each move leads, over doors that may let one back and weighted portals."""
    task = Grid(layout=CHANCE, max_steps=10**6)
    pairs = [(s, a) for s in range(task.world.states) for a in range(4)]
    counts = np.zeros((len(pairs), task.world.states))
    if face == "compiled":
        states = TableState(np.repeat([s for s, _ in pairs], 400), np.zeros(len(pairs) * 400, int))
        actions = np.repeat([a for _, a in pairs], 400)
        keys = jax.random.split(KEY, len(actions))
        after, *_ = jax.jit(jax.vmap(task.step))(states, actions, keys)
        np.add.at(counts, (np.repeat(np.arange(len(pairs)), 400), np.asarray(after.position)), 1)
    else:
        env = GridEnv(layout=CHANCE, max_steps=10**6)
        env.reset(seed=1)
        for i, (state, action) in enumerate(pairs):
            for _ in range(400):
                env._position = state
                env.step(action)
                counts[i, env._position] += 1
    expected = np.zeros_like(counts)
    for i, (state, action) in enumerate(pairs):
        np.add.at(expected[i], task.world.targets[state, action], task.world.chances[state, action])
    expected *= 400
    assert not counts[expected == 0].any()
    used = (expected > 0) & (expected < 400)
    assert used.sum() == 4
    assert (((counts - expected) ** 2)[used] / expected[used]).sum() < 2 + 5 * 2


@pytest.mark.parametrize("env_id", ENV_FIELDS)
def test_gymnasium_finds_nothing_to_complain_of(env_id):
    env = gymnasium.make(f"loopless.envs.grids.gym:{env_id}", render_mode="rgb_array")
    check_env(env.unwrapped, skip_render_check=True)
    env.reset(seed=0)
    frame = env.render()
    assert frame.dtype == np.uint8
    assert frame.shape[0] >= 256


def test_a_shortest_path_is_as_long_as_the_distance_says_and_pays_one():
    env = GridEnv(layout="GridRoom-4")
    env.reset(seed=0, options={"position": 0})
    task, steps, terminated = env.task, 0, False
    assert task.distances[0] == 20
    while not terminated:
        ahead = task.world.targets[env._position, :, 0]
        _, reward, terminated, truncated, _ = env.step(int(np.argmin(task.distances[ahead])))
        steps += 1
        assert not truncated
        assert reward == terminated
    assert steps == 20


def test_the_goal_is_the_one_asked_for_the_layouts_or_the_last_cell():
    assert GridTask(layout="..\n..").world.goals.tolist() == [False, False, False, True]
    assert GridTask(layout="G.\n..").world.goals.tolist() == [True, False, False, False]
    assert (
        GridTask(layout="G.\n..", goal=(0, 1)).world.goals.tolist() == [False, True] + [False] * 2
    )


def test_starts_are_anywhere_but_at_the_goal():
    state, obs = jax.jit(jax.vmap(Grid(layout="..\n.G\n").reset))(jax.random.split(KEY, 3000))
    counts = np.bincount(state.position, minlength=4)
    assert counts[3] == 0
    assert (((counts[:3] - 1000) ** 2) / 1000).sum() < 2 + 5 * 2
    assert obs.shape == (3000, 2)


@pytest.mark.slow
def test_it_runs_inside_a_scan_with_autoreset():
    world = autoreset(Grid(layout=CHANCE, obs="one-hot", max_steps=5), envs=3)
    running, _ = world.reset(KEY)
    draws = world.draws(KEY, np.arange(50))

    def step(running, draw):
        return world.step(running, np.zeros(3, np.int32), draw)

    _, steps = jax.jit(lambda r: jax.lax.scan(step, r, draws))(running)
    assert steps.next_obs.shape == (50, 3, 11)
    assert (steps.episode_length <= 5).all()
    assert steps.truncated.any()


def test_tasks_are_hashable_by_their_fields():
    assert hash(Grid(goal=[1, 1], doors=2)) == hash(Grid(goal=(1, 1), doors=2))
    assert Grid(doors=2) != Grid(doors=3)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"obs": "smell", "max_steps": 0}, "obs='smell' is unknown; .*max_steps .* received 0"),
        ({"goal": (0, 0)}, "row 0, column 0 is not a free cell"),
        ({"goal": "here"}, r"goal is \(row, column\); received 'here'"),
        ({"layout": "GridRoom-5"}, "no grid 'GridRoom-5'"),
        ({"doors": -1}, "doors must be an integer of at least 0"),
    ],
)
def test_wrong_fields_are_named_before_the_first_step(fields, problem):
    with pytest.raises(EnvError, match=problem):
        GridTask(**fields)
