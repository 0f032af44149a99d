"""Collected trajectories: every move is legal, every end is marked, the law is the exact one."""

from itertools import pairwise

import numpy as np
import pytest

from loopless.envs import EnvError
from loopless.envs.grids.collect import collect, visits
from loopless.envs.grids.laplacian import episode_pairs
from loopless.envs.grids.world import make_grid
from loopless.replay.host.episodic.buffer import EpisodicReplayBuffer

ROOMS = make_grid("GridRoom-4")
GOAL = make_grid("....\n.X..\n...G\n")
DOORS = make_grid("DR:0.3,.,.\n.,X,.\n.,PU:1_2@2,E1 DL\nE2,.,.")
WORLDS = {"rooms": ROOMS, "goal": GOAL, "doors and portals": DOORS}
every_world = pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)


def episodes(world, paths, limit, steps):
    """The episodes of each row, cut by plain rules: at goals and at the limit."""
    for env in range(len(paths.obs)):
        obs, taken = paths.obs[env, : paths.lengths[env]].tolist(), 0
        while obs:
            end = 1
            while end < len(obs):
                taken, end = taken + 1, end + 1
                if world.goals[obs[end - 1]] or end - 1 == limit or taken == steps:
                    break
            yield env, obs[:end]
            obs = obs[end:]
        assert taken == steps


@every_world
@pytest.mark.parametrize("limit", [1, 5, 30])
@pytest.mark.parametrize("terminals", ["double", "single"])
def test_every_move_is_legal_and_every_end_is_marked(world, limit, terminals):
    paths = collect(world, envs=4, steps=23, max_episode_length=limit, terminals=terminals)
    rows = [([], []) for _ in range(4)]
    for env, states in episodes(world, paths, limit, 23):
        actions, marks = rows[env]
        at = len(marks)
        assert world.starts[states[0]] > 0
        for here, there in pairwise(states):
            action = paths.actions[env, at + len(actions[at:])]
            actions.append(action)
            chance = world.chances[here, action][world.targets[here, action] == there].sum()
            assert chance > 0
        actions.append(-1)
        ended = world.goals[states[-1]] or len(states) - 1 == limit
        marks += [False] * (len(states) - 2) + [ended and terminals == "double", ended]
    for env, (actions, marks) in enumerate(rows):
        length = paths.lengths[env]
        assert paths.actions[env, :length].tolist() == actions
        assert paths.terminals[env, :length].tolist() == marks
        assert not paths.terminals[env, length:].any()
        assert (paths.actions[env, length:] == -1).all()


@every_world
def test_moves_follow_the_transition_matrix(world):
    """χ² of all transitions out of each state, under a policy of its own."""
    policy = np.random.default_rng(1).dirichlet(np.ones(4), world.states)
    policy[0] = [0, 0.5, 0.5, 0]
    paths = collect(world, envs=100, steps=2000, max_episode_length=50, policy=policy)
    acted = paths.actions >= 0
    here, there = paths.obs[acted], paths.obs[:, 1:][acted[:, :-1]]
    counts = np.zeros((world.states, world.states))
    np.add.at(counts, (here, there), 1)
    expected = world.transition_matrix(policy) * counts.sum(1, keepdims=True)
    assert not counts[expected == 0].any()
    used = expected >= 5
    chi2 = ((counts - expected)[used] ** 2 / expected[used]).sum()
    freedom = used.sum() - (expected.sum(1) > 0).sum()
    assert chi2 < freedom + 5 * np.sqrt(2 * freedom)
    assert set(paths.actions[paths.obs == 0].tolist()) <= {-1, 1, 2}


def test_starts_are_uniform_over_what_is_allowed():
    paths = collect(GOAL, envs=20_000, steps=1)
    counts = np.bincount(paths.obs[:, 0], minlength=GOAL.states)
    assert counts[GOAL.goals].sum() == 0
    expected = 20_000 * GOAL.starts[~GOAL.goals]
    chi2 = ((counts[~GOAL.goals] - expected) ** 2 / expected).sum()
    assert chi2 < 9 + 5 * np.sqrt(2 * 9)


def test_rows_depend_on_the_seed_and_on_nothing_else():
    few, many = (collect(ROOMS, envs=n, steps=50, seed=3) for n in (2, 5))
    np.testing.assert_array_equal(few.obs, many.obs[:2])
    assert len({row.tobytes() for row in many.obs}) == 5
    other = collect(ROOMS, envs=2, steps=50, seed=4)
    assert (other.obs != few.obs).any()


@pytest.mark.slow
@every_world
@pytest.mark.parametrize("terminals", ["double", "single"])
def test_the_buffer_reads_them_and_pairs_stay_within_episodes(world, terminals):
    paths = collect(world, envs=8, steps=40, max_episode_length=7, terminals=terminals)
    rows = paths.obs, paths.terminals, paths.lengths
    buffer = EpisodicReplayBuffer.from_padded(*rows, convention=terminals)
    batch = buffer.sample(4096, discount=0.9)
    last = np.concatenate(list(ends_of(world, paths, 7, 40)))
    first = batch["indices"]
    assert (first + batch["gap"] <= last[first]).all()


def ends_of(world, paths, limit, steps):
    """For each observation, laid end to end, where its episode ends."""
    at = 0
    for _, states in episodes(world, paths, limit, steps):
        yield np.full(len(states), at + len(states) - 1)
        at += len(states)


@pytest.mark.slow
def test_pairs_from_the_buffer_have_the_exact_law():
    """Total variation of each row of the kernel, against the exact one of episodes this long."""
    world = make_grid("DR,.,.\n.,X,.\n.,.,.")
    paths = collect(world, envs=4000, steps=20, max_episode_length=20)
    buffer = EpisodicReplayBuffer.from_padded(paths.obs, paths.terminals, paths.lengths)
    batch = buffer.sample(400_000, discount=0.8)
    counts = np.zeros((world.states, world.states))
    np.add.at(counts, (batch["obs"], batch["next_obs"]), 1)
    kernel, weights = episode_pairs(world.transition_matrix(), world.starts, 0.8, 20)
    rows = counts.sum(1)
    np.testing.assert_allclose(rows / rows.sum(), weights, atol=4 / np.sqrt(80_000))
    distance = 0.5 * np.abs(counts / rows[:, None] - kernel).sum(1)
    assert (distance < 4 * np.sqrt(world.states / (rows / 20))).all()


def test_visits_are_shares_of_observations():
    paths = collect(GOAL, envs=50, steps=30, max_episode_length=10)
    expected = np.zeros(GOAL.states)
    for row, length in zip(paths.obs, paths.lengths, strict=True):
        for state in row[:length]:
            expected[state] += 1
    np.testing.assert_allclose(visits(paths, GOAL.states), expected / expected.sum())


def test_all_wrong_numbers_are_named_at_once():
    with pytest.raises(EnvError, match=r"envs .* received 0; steps .* received 0; seed .*-1"):
        collect(ROOMS, envs=0, steps=0, seed=-1)
    with pytest.raises(EnvError, match="terminals='triple' is unknown"):
        collect(ROOMS, terminals="triple")
    with pytest.raises(EnvError, match=r"policy is \[104, 4\]"):
        collect(ROOMS, policy=np.ones(3))
