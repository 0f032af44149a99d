"""Hosted environments beside Gymnasium's SyncVectorEnv: the same experience, counted right."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from support import scripted_envs  # noqa: F401

from loopless.envs import HostedEnvs
from loopless.envs.spaces import Box, Discrete, MultiDiscrete

NAMES = ("obs", "action", "reward", "next_obs", "terminated", "truncated")


def seeds_of(seed, envs):
    return (np.random.SeedSequence(seed).generate_state(envs) >> 1).tolist()


def gymnasium_rows(env_id, envs, steps, choose, seed=0, observe=lambda obs: obs, **kwargs):
    """The transitions of SyncVectorEnv in SAME_STEP mode, and the episodes added up by hand."""
    vector = SyncVectorEnv(
        [lambda: gymnasium.make(env_id, **kwargs)] * envs, autoreset_mode=AutoresetMode.SAME_STEP
    )
    obs, _ = vector.reset(seed=seeds_of(seed, envs))
    rows, episodes, totals = [], [], [[] for _ in range(envs)]
    for t in range(steps):
        actions = choose(t)
        after, rewards, terminated, truncated, infos = vector.step(actions)
        successors = after.copy()
        for i in range(envs):
            totals[i].append(rewards[i])
            if terminated[i] or truncated[i]:
                successors[i] = infos["final_obs"][i]
                episodes.append((t, i, sum(totals[i]), len(totals[i])))
                totals[i] = []
        rows.append((observe(obs), actions, rewards, observe(successors), terminated, truncated))
        obs = after
    vector.close()
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return dict(zip(NAMES, columns, strict=True)), episodes, observe(obs)


def assert_equal_rows(block, rows):
    for name in NAMES:
        expected = rows[name].astype(getattr(block, name).dtype)
        np.testing.assert_array_equal(getattr(block, name), expected, err_msg=name)
    assert block.valid.all()


def episodes_of(block, first_step=0):
    step, *others = (column.tolist() for column in block.episodes)
    return list(zip([first_step + t for t in step], *others, strict=True))


def choices(n, envs, steps, seed=0):
    table = np.random.default_rng(seed).integers(0, n, (steps, envs))
    return table.__getitem__


class Follow:
    """A policy that plays a table of actions."""

    def __init__(self, choose):
        self.choose, self.t = choose, -1

    def __call__(self, obs):
        self.t += 1
        return self.choose(self.t)


def one_hot(n):
    return lambda obs: np.eye(n, dtype=np.float32)[obs]


CASES = {
    "CartPole-v1": (2, {}, None),
    "CartPole-v1 limited": (2, {"max_episode_steps": 13}, None),
    "Acrobot-v1 limited": (3, {"max_episode_steps": 20}, None),
    "FrozenLake-v1": (4, {}, 16),
    "tests/Scripted-v0": (5, {}, None),
    "tests/Limited-v0": (5, {}, None),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("envs", [1, 3])
def test_every_row_equals_sync_vector_env(case, envs):
    (n, kwargs, states), env_id, steps = CASES[case], case.split()[0], 60
    choose = choices(n, envs, steps)
    observe = one_hot(states) if states else (lambda obs: obs)
    rows, episodes, last = gymnasium_rows(env_id, envs, steps, choose, 7, observe, **kwargs)
    with HostedEnvs(env_id, envs, seed=7, env_kwargs=kwargs) as world:
        block = world.collect(Follow(choose), steps)
    assert_equal_rows(block, rows)
    assert len(episodes) >= envs
    ours = episodes_of(block)
    assert [row[:2] + row[3:] for row in ours] == [row[:2] + row[3:] for row in episodes]
    np.testing.assert_allclose([r[2] for r in ours], [r[2] for r in episodes], rtol=1e-12)
    np.testing.assert_array_equal(block.last_obs, last.astype(block.obs.dtype))


def test_single_steps_equal_blocks():
    choose = choices(5, 2, 20)
    with HostedEnvs("tests/Scripted-v0", 2) as whole, HostedEnvs("tests/Scripted-v0", 2) as single:
        block = whole.collect(Follow(choose), 20)
        assert not np.array_equal(block.obs[0], block.obs[1])
        ended = []
        for t in range(20):
            np.testing.assert_array_equal(single.obs, block.obs[t])
            step = single.step(choose(t))
            for name in ("reward", "next_obs", "terminated", "truncated", "valid"):
                np.testing.assert_array_equal(getattr(step, name), getattr(block, name)[t])
            np.testing.assert_array_equal(step.obs, block.all_obs[t + 1])
            for i in np.flatnonzero(step.ended).tolist():
                ended.append((t, i, step.episode_return[i], step.episode_length[i]))
        assert ended == episodes_of(block)


def test_a_running_episode_tells_its_return_so_far():
    with HostedEnvs("tests/Scripted-v0", 1) as world:
        one, two = world.step([0]), world.step([0])
        assert one.episode_return == [10.0]
        assert two.episode_return == [30.0]
        assert two.episode_length == [2]
        assert not two.ended.any()


def test_blocks_of_any_length_give_the_same_experience():
    choose = choices(2, 2, 60)
    with HostedEnvs("CartPole-v1", 2) as one, HostedEnvs("CartPole-v1", 2) as other:
        whole = one.collect(Follow(choose), 60)
        policy, parts, episodes = Follow(choose), [], []
        for steps in (7, 7, 46):
            parts.append(other.collect(policy, steps, out=other.block(steps)))
            episodes += episodes_of(parts[-1], other.steps - steps)
        for name in NAMES:
            joined = np.concatenate([getattr(part, name) for part in parts])
            np.testing.assert_array_equal(joined, getattr(whole, name), err_msg=name)
        assert episodes == episodes_of(whole)


def test_ends_are_kept_apart():
    ends = [(2, "terminated"), (1, "truncated"), (3, "both")]
    with HostedEnvs("tests/Scripted-v0", 1, env_kwargs={"ends": ends}) as world:
        block = world.collect(lambda obs: np.zeros(1, int), 6)
    assert np.flatnonzero(block.terminated).tolist() == [1, 5]
    assert np.flatnonzero(block.truncated).tolist() == [2, 5]


def test_a_block_is_reused_and_one_given_is_written():
    with HostedEnvs("tests/Scripted-v0", 1) as world:
        policy = Follow(lambda t: np.zeros(1, int))
        first, mine = world.collect(policy, 4), world.block(4)
        seen = mine.all_obs
        assert world.collect(policy, 4, out=mine) is mine
        assert mine.all_obs is seen
        assert world.collect(policy, 4) is first
        assert world.collect(policy, 5) is not first


@pytest.mark.parametrize("vectorization", ["sync", "native"])
def test_the_same_seed_gives_the_same_rollout_and_another_one_does_not(vectorization):
    rows = []
    for seed in (3, 3, 4):
        with HostedEnvs("CartPole-v1", 2, vectorization=vectorization, seed=seed) as world:
            block = world.collect(Follow(choices(2, 2, 40)), 40)
            rows.append(block.all_obs.copy())
    np.testing.assert_array_equal(rows[0], rows[1])
    assert not np.array_equal(rows[0], rows[2])


def test_neighbouring_seeds_share_no_environment():
    starts = [HostedEnvs("CartPole-v1", 4, seed=seed).obs[:, 0].tolist() for seed in (0, 1, 2)]
    assert len({number for start in starts for number in start}) == 12


def test_a_restart_drops_the_running_episodes():
    with HostedEnvs("tests/Scripted-v0", 2, seed=1) as world:
        first = world.obs.copy()
        world.collect(lambda obs: np.zeros(2, int), 4)
        world.restart(1)
        np.testing.assert_array_equal(world.obs, first)
        step = world.step([0, 0])
        assert step.episode_length.tolist() == [1, 1]
        assert step.episode_return.tolist() == [10.0, 10.0]
        world.restart(2)
        assert not np.array_equal(world.obs, first)


def test_a_restart_begins_the_time_limit_anew():
    with HostedEnvs("tests/Limited-v0", 1) as world:
        world.step([0])
        world.restart(0)
        assert not world.step([0]).truncated.any()
        assert world.step([0]).truncated.all()


def test_the_time_of_acting_and_of_stepping_is_added_up(monkeypatch):
    ticks = iter(np.cumsum([0.0, *[1.0, 10.0] * 6, 0.5]).tolist())
    monkeypatch.setattr("loopless.envs.hosted.envs.perf_counter", lambda: next(ticks))
    with HostedEnvs("tests/Scripted-v0", 1) as world:
        world.collect(lambda obs: np.zeros(1, int), 6)
        assert world.act_seconds == 6.0
        assert world.env_seconds == 60.5


def spaces_env(observation_space, action_space, obs):
    kwargs = {"observation_space": observation_space, "action_space": action_space, "obs": obs}
    return HostedEnvs("tests/Spaces-v0", 2, env_kwargs=kwargs)


BOX, SOME = gymnasium.spaces.Box(0, 1, (1,), np.float32), np.zeros(1, np.float32)


@pytest.mark.parametrize(
    ("space", "described", "given", "taken"),
    [
        (gymnasium.spaces.Discrete(3, start=5), Discrete(3, 5), [0, 2], [5, 7]),
        (gymnasium.spaces.MultiDiscrete([2, 9]), MultiDiscrete((2, 9)), [[0, 8], [1, 3]], None),
        (
            gymnasium.spaces.Box(-1, 1, (2,), np.float64),
            Box((2,), "float32", -1.0, 1.0),
            [[0.5, -0.5], [1.0, 0.0]],
            None,
        ),
    ],
    ids=["Discrete", "MultiDiscrete", "Box"],
)
def test_actions_reach_the_environments(space, described, given, taken):
    with spaces_env(BOX, space, SOME) as world:
        assert world.action_space == described
        world.step(np.array(given))
        received = [env.unwrapped.taken[0] for env in world._loop._envs]
        assert np.array_equal(received, taken if taken is not None else given)


def test_a_discrete_observation_is_one_hot():
    space = gymnasium.spaces.Discrete(4, start=10)
    with spaces_env(space, gymnasium.spaces.Discrete(2), 12) as world:
        assert world.obs.tolist() == [[0, 0, 1, 0]] * 2
        assert world.step([0, 1]).next_obs.dtype == np.float32


def test_bytes_stay_bytes():
    space, picture = gymnasium.spaces.Box(0, 255, (2, 2, 1), np.uint8), np.uint8([[[0], [255]]] * 2)
    with spaces_env(space, gymnasium.spaces.Discrete(2), picture) as world:
        step = world.step([0, 1])
        assert step.next_obs.dtype == np.uint8
        np.testing.assert_array_equal(step.next_obs[0], picture)


def test_frames_are_rendered():
    kwargs = {"render_mode": "rgb_array"}
    with HostedEnvs("loopless/Pixels-v0", 2, env_kwargs=kwargs) as world:
        assert [frame.shape for frame in world.render()] == [(256, 256, 3)] * 2
