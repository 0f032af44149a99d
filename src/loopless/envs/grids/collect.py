"""Trajectories of grid worlds, a million steps in a fraction of a second, ready for the buffer.

    found = collect(make_grid("GridRoom-4"), envs=1000, steps=1000, seed=0)
    buffer = EpisodicReplayBuffer.from_padded(found.obs, found.terminals, found.lengths)

Imports NumPy, and Numba when it first collects. Tests: `tests/envs/test_grid_collect.py`.
"""

from typing import Literal, NamedTuple

import numpy as np

from loopless.envs.grids.world import GridWorld
from loopless.envs.refusals import refuse
from loopless.refusals import check_choice, check_count


class Trajectories(NamedTuple):
    """Rows of observations, one of each environment, padded at their ends; arrays [envs, width].

    obs: the states, int32. terminals: where episodes end. lengths [envs]: how much of a row counts.
    actions: what was done at each, int8; −1 at the last of an episode, and in the padding.
    """

    obs: np.ndarray
    terminals: np.ndarray
    lengths: np.ndarray
    actions: np.ndarray


def collect(
    world: GridWorld,
    *,
    envs: int = 1000,
    steps: int = 1000,
    seed: int = 0,
    max_episode_length: int = 1000,
    policy=None,
    terminals: Literal["double", "single"] = "double",
) -> Trajectories:
    """`steps` transitions in each of `envs` copies of `world`, as rows of several episodes.

    An episode ends at a goal, or after `max_episode_length` transitions, and the next begins with a
    fresh start in the same row. Ends are marked as `EpisodicReplayBuffer` reads them: "double" at
    the state that acted last and at the final one, "single" at the final one. An episode that the
    end of its row cuts is not marked. `policy` [states, actions] are probabilities, uniform if left
    out.
    """
    refuse(
        "grid: collect",
        check_count("envs", envs),
        check_count("steps", steps),
        check_count("seed", seed, 0),
        check_count("max_episode_length", max_episode_length),
        check_choice("terminals", terminals, ("double", "single")),
    )
    from loopless.compiled.grid_walk import walk

    shortest = 1 if world.goals.any() else min(max_episode_length, steps)
    width = steps + -(-steps // shortest)  # one more observation than transitions an episode
    found = Trajectories(
        np.zeros((envs, width), np.int32),
        np.zeros((envs, width), bool),
        np.zeros(envs, np.int64),
        np.full((envs, width), -1, np.int8),
    )
    table = np.zeros((0, 0)) if policy is None else _running(world.policy(policy))
    walk(
        world.targets,
        _running(world.chances),
        table,
        np.flatnonzero(world.starts).astype(np.int32),
        world.goals,
        max_episode_length,
        steps,
        terminals == "double",
        np.uint64(seed),
        found.obs,
        found.terminals,
        found.actions,
        found.lengths,
    )
    used = int(found.lengths.max())
    return Trajectories(*[x[:, :used] if x.ndim == 2 else x for x in found])


def _running(chances: np.ndarray) -> np.ndarray:
    """Running sums over the last axis that end at exactly 1: what has no chance is never drawn."""
    sums = chances.cumsum(-1)
    return sums / sums[..., -1:]


def visits(found: Trajectories, states: int) -> np.ndarray:
    """[states] float64: the share of all observations that each state is."""
    counted = np.arange(found.obs.shape[1]) < found.lengths[:, None]
    counts = np.bincount(found.obs[counted], minlength=states)
    return counts / counts.sum()
