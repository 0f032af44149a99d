"""Vector environments of others: three ways to reset, one set of real transitions."""

import sys
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st
from support import scripted_envs  # noqa: F401

from loopless.envs import EnvError, HostedEnvs

NAMES = ("obs", "action", "reward", "next_obs", "terminated", "truncated")
ENVS = 2


def scripted(mode, ends):
    makers = [lambda: gymnasium.make("tests/Scripted-v0", ends=ends)] * ENVS
    return SyncVectorEnv(makers, autoreset_mode=mode)


def by_what_was_seen(obs):
    """An action for each observation, so that all modes act alike on the same states."""
    return (obs[:, 1] + 2 * obs[:, 2]).astype(int) % 5


def per_env(world, rows):
    """The first `rows` real transitions of every environment, in order."""
    block = world.collect(by_what_was_seen, 3 * rows)
    return [
        {name: getattr(block, name)[:, i][block.valid[:, i]][:rows] for name in NAMES}
        for i in range(ENVS)
    ], block


ends = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(["terminated", "truncated", "both"])),
    min_size=1,
    max_size=4,
)


@given(ends=ends)
def test_all_autoreset_modes_give_the_same_real_transitions(ends):
    with HostedEnvs("tests/Scripted-v0", ENVS, env_kwargs={"ends": ends}) as world:
        expected, _ = per_env(world, 8)
    for mode in AutoresetMode:
        with HostedEnvs.around(scripted(mode, ends)) as world:
            ours, _ = per_env(world, 8)
        for i in range(ENVS):
            for name in NAMES:
                assert len(ours[i][name]) == 8
                np.testing.assert_array_equal(ours[i][name], expected[i][name], err_msg=name)


@given(ends=ends)
def test_fillers_are_never_experience_and_never_counted(ends):
    with HostedEnvs.around(scripted(AutoresetMode.NEXT_STEP, ends)) as world:
        _, block = per_env(world, 8)
    ended = block.terminated | block.truncated
    np.testing.assert_array_equal(~block.valid[1:], ended[:-1])
    assert block.valid[0].all()
    # a filler leads from a final observation to a first one; real successors have counted a step
    assert (block.next_obs[~block.valid][:, 2] == 0).all()
    assert (block.next_obs[block.valid][:, 2] > 0).all()
    lengths = {tuple(e): e[0] for e in ends}
    assert set(block.episodes.episode_length.tolist()) <= set(lengths.values())
    assert len(block.transitions()["reward"]) == block.valid.sum()


def test_a_filler_at_the_edge_of_a_block_is_still_one():
    with HostedEnvs.around(scripted(AutoresetMode.NEXT_STEP, [(2, "truncated")])) as world:
        valid = np.concatenate([world.collect(by_what_was_seen, 2).valid.copy() for _ in range(3)])
    assert valid[:, 0].tolist() == [True, True, False, True, True, False]


def test_a_restart_after_an_end_leaves_no_filler():
    with HostedEnvs.around(scripted(AutoresetMode.NEXT_STEP, [(2, "truncated")])) as world:
        assert world.collect(by_what_was_seen, 2).truncated[1].all()
        world.restart(1)
        assert world.collect(by_what_was_seen, 1).valid.all()


def test_the_native_cartpole_marks_its_resets():
    with HostedEnvs("CartPole-v1", 3, vectorization="native", seed=5) as world:
        assert world.max_steps == 500
        block = world.collect(lambda obs: np.ones(3, int), 60)
    fillers = ~block.valid
    assert fillers.any()
    assert (np.abs(block.next_obs[fillers]) <= 0.05).all()
    fallen = block.next_obs[block.terminated]
    assert (np.abs(fallen[:, 2]) > 0.2).all()
    assert block.episodes.episode_return.tolist() == block.episodes.episode_length.tolist()


class Silent(SyncVectorEnv):
    """Resets in the same step, and keeps the final observations to itself."""

    def step(self, actions):
        *results, _ = super().step(actions)
        return *results, {}


def test_an_end_without_its_final_observation_is_refused():
    vector = Silent(
        [lambda: gymnasium.make("tests/Scripted-v0")], autoreset_mode=AutoresetMode.SAME_STEP
    )
    with (
        HostedEnvs.around(vector) as world,
        pytest.raises(EnvError, match=r'Silent .* gives no info\["final_obs"\]'),
    ):
        world.collect(by_what_was_seen, 5)


def test_an_unknown_way_to_reset_is_refused():
    vector = scripted(AutoresetMode.SAME_STEP, [(2, "truncated")])
    vector.metadata["autoreset_mode"] = "whenever"
    with pytest.raises(EnvError, match=r"autoreset_mode\"\] is 'whenever'.*'sync'"):
        HostedEnvs.around(vector)


class Pool:
    """What of envpool's interface is used: NEXT_STEP, and seeded when it is made."""

    def __init__(self):
        self.made = []

    def list_all_envs(self):
        return ["CartPole-v1", "Pong-v5"]

    def make_gymnasium(self, env_id, *, num_envs, seed, **kwargs):
        self.made.append((env_id, num_envs, seed, kwargs))
        inner = scripted(AutoresetMode.NEXT_STEP, kwargs["ends"])
        inner.reset(seed=seed)
        return SimpleNamespace(
            num_envs=num_envs,
            spec=object(),
            config={"max_episode_steps": 77},
            metadata=inner.metadata,
            single_observation_space=inner.single_observation_space,
            single_action_space=inner.single_action_space,
            reset=lambda: inner.reset(seed=seed),
            step=inner.step,
            close=inner.close,
        )


@pytest.fixture
def pool(monkeypatch):
    fake = Pool()
    monkeypatch.setitem(sys.modules, "envpool", fake)
    return fake


def pooled(seed=0):
    kwargs = {"ends": [(2, "truncated"), (1, "terminated")]}
    return HostedEnvs("CartPole-v1", ENVS, vectorization="envpool", seed=seed, env_kwargs=kwargs)


def test_envpool_steps_are_marked_like_any_other(pool):
    with pooled() as world:
        assert world.max_steps == 77
        block = world.collect(by_what_was_seen, 10)
    assert block.valid[:, 0].tolist() == [True, True, False, True, False] * 2
    assert block.episodes.episode_length.tolist() == [2, 2, 1, 1] * 2


def test_envpool_is_made_anew_to_be_seeded(pool):
    with pooled(seed=1) as world:
        first = world.obs.copy()
        world.restart(2)
        assert not np.array_equal(world.obs, first)
        world.restart(1)
        np.testing.assert_array_equal(world.obs, first)
    seeds = [seed for *_, seed, _ in pool.made]
    assert seeds[1] == seeds[3] != seeds[2]


def test_envpool_ids_get_the_nearest_names(pool):
    with pytest.raises(EnvError, match=r"envpool has no .*'Pong-v4'.*Did you mean Pong-v5"):
        HostedEnvs("Pong-v4", vectorization="envpool")


def test_envpool_that_is_missing_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(EnvError, match="pip install envpool"):
        HostedEnvs("CartPole-v1", vectorization="envpool")
