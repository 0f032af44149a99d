"""Blocks of transitions: successors, experience without fillers, and episodes counted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopless.envs.hosted.blocks import Block, Tally
from loopless.envs.spaces import Box, Discrete


def filled(seed, steps=5, envs=3, fillers=True):
    """A block of random rewards and ends, some of its rows no experience."""
    rng, block = np.random.default_rng(seed), Block(steps, envs, Box((2,)), Discrete(4))
    block.begin(np.zeros((envs, 2)))
    block.all_obs[...] = rng.normal(size=block.all_obs.shape)
    block.exact_reward[...] = rng.normal(size=(steps, envs))
    block.action[...] = rng.integers(0, 4, (steps, envs))
    block.valid[...] = rng.random((steps, envs)) < (0.8 if fillers else 2)
    block.terminated[...] = (rng.random((steps, envs)) < 0.3) & block.valid
    block.truncated[...] = (rng.random((steps, envs)) < 0.3) & block.valid
    return block


def plain_episodes(blocks, envs):
    """Every episode, by adding one row after the other."""
    totals, lengths, episodes = [0.0] * envs, [0] * envs, []
    for block in blocks:
        ended = []
        for t in range(block.steps):
            for i in range(envs):
                if block.valid[t, i]:
                    totals[i] += block.exact_reward[t, i]
                    lengths[i] += 1
                    if block.terminated[t, i] or block.truncated[t, i]:
                        ended.append((t, i, totals[i], lengths[i]))
                        totals[i], lengths[i] = 0.0, 0
        episodes.append(ended)
    return episodes, totals, lengths


@given(seed=st.integers(0, 10_000))
def test_episodes_equal_a_plain_loops_over_several_blocks(seed):
    blocks = [filled(seed + k) for k in range(3)]
    tally = Tally(3)
    counted = [tally.count(block) for block in blocks]
    plain, totals, lengths = plain_episodes(blocks, 3)
    for episodes, rows in zip(counted, plain, strict=True):
        assert list(zip(*(x.tolist() for x in episodes), strict=True)) == rows
    assert tally.returns.tolist() == totals
    assert tally.lengths.tolist() == lengths


def test_successors_are_the_next_observations_but_at_ends():
    block = filled(0, fillers=False)
    final = np.random.default_rng(1).normal(size=block.next_obs.shape).astype(np.float32)
    block.next_obs[...] = final
    block.finish(final_obs=True)
    ended = block.terminated | block.truncated
    assert ended.any()
    np.testing.assert_array_equal(block.next_obs[ended], final[ended])
    np.testing.assert_array_equal(block.next_obs[~ended], block.all_obs[1:][~ended])


def test_successors_are_the_next_observations_where_the_reset_comes_later():
    block = filled(0)
    block.finish(final_obs=False)
    np.testing.assert_array_equal(block.next_obs, block.all_obs[1:])


@pytest.mark.parametrize("fillers", [False, True])
def test_transitions_are_the_rows_that_are_experience(fillers):
    block = filled(3, fillers=fillers)
    block.finish(final_obs=False)
    rows = block.transitions()
    where = [(t, i) for t in range(block.steps) for i in range(block.envs) if block.valid[t, i]]
    assert (len(where) < 15) == fillers
    for name in ("obs", "action", "reward", "next_obs", "terminated", "truncated"):
        expected = np.array([getattr(block, name)[t, i] for t, i in where])
        np.testing.assert_array_equal(rows[name], expected, err_msg=name)
    assert np.shares_memory(rows["obs"], block.all_obs) != fillers


def test_a_block_starts_without_the_ends_of_the_last():
    block = filled(4)
    block.begin(np.ones((3, 2)))
    assert not block.terminated.any()
    assert not block.truncated.any()
    assert block.valid.all()
    assert (block.obs[0] == 1).all()
