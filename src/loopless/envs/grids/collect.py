"""Trajectories of grid worlds, a million steps in a fraction of a second, ready for the buffer.

    paths = collect(make_grid("GridRoom-4"), envs=1000, steps=1000, seed=0)
    buffer = EpisodicReplayBuffer.from_padded(paths.obs, paths.terminals, paths.lengths)

The walk itself is compiled: `loopless.compiled.environments.walk`.
"""

from typing import Literal, NamedTuple

import numpy as np

from loopless.envs import refuse
from loopless.envs.grids.world import GridWorld, running_sums
from loopless.refusals import check_choice, check_count


class Trajectories(NamedTuple):
    """One row of observations for each environment, padded at its end; arrays [envs, width].

    obs: the states, int32. terminals: where episodes end. lengths [envs]: how much of a row counts.
    actions: the action in each state, int8; −1 in the last of an episode, and in the padding.
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
    """Return `steps` transitions of each of `envs` copies of `world`, as rows of several episodes.

    An episode ends at a goal, or after `max_episode_length` transitions; the next one follows in
    the same row. Ends are marked as `EpisodicReplayBuffer` reads them: "double" marks the state
    that acted last and the final one, "single" the final one. An episode that is cut off by the end
    of its row is not marked. `policy` [states, actions] holds probabilities, by default uniform.
    """
    refuse(
        "grid: collect",
        check_count("envs", envs),
        check_count("steps", steps),
        check_count("seed", seed, 0),
        check_count("max_episode_length", max_episode_length),
        check_choice("terminals", terminals, ("double", "single")),
    )
    from loopless.compiled.environments import walk

    shortest = 1 if world.goals.any() else min(max_episode_length, steps)
    width = steps + -(-steps // shortest)  # an episode has one observation more than transitions
    paths = Trajectories(
        np.zeros((envs, width), np.int32),
        np.zeros((envs, width), bool),
        np.zeros(envs, np.int64),
        np.full((envs, width), -1, np.int8),
    )
    table = np.zeros((0, 0)) if policy is None else running_sums(world.policy(policy))
    walk(
        world.targets,
        running_sums(world.chances),
        table,
        np.flatnonzero(world.starts).astype(np.int32),
        world.goals,
        max_episode_length,
        steps,
        terminals == "double",
        np.uint64(seed),
        paths.obs,
        paths.terminals,
        paths.actions,
        paths.lengths,
    )
    used = int(paths.lengths.max())
    return Trajectories(*[x[:, :used] if x.ndim == 2 else x for x in paths])


def visits(paths: Trajectories, states: int) -> np.ndarray:
    """Return [states] float64: the share of each state among all observations."""
    counted = np.arange(paths.obs.shape[1]) < paths.lengths[:, None]
    counts = np.bincount(paths.obs[counted], minlength=states)
    return counts / counts.sum()
