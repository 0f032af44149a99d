"""Loops over steps of environments: totals of the episodes in a block, and walks in grid worlds.

`count` and `finish` are called by `envs.hosted.blocks`, `walk` by `envs.grids.collect`.
"""

import numpy as np

from loopless.compiled.jit import jit
from loopless.compiled.random import below, bits, unit

_ONE = np.uint64(1)


@jit()
def count(
    rewards, terminated, truncated, valid, returns, lengths, places, out_returns, out_lengths
):
    """Add a block to the running `returns` and `lengths` [envs]; return how many episodes ended.

    The step and environment of the k-th end are written to `places` [2, k], its totals to
    `out_returns` and `out_lengths`.
    """
    ended = 0
    for t in range(rewards.shape[0]):
        for env in range(rewards.shape[1]):
            if not valid[t, env]:
                continue
            returns[env] += rewards[t, env]
            lengths[env] += 1
            if terminated[t, env] or truncated[t, env]:
                places[0, ended] = t
                places[1, ended] = env
                out_returns[ended] = returns[env]
                out_lengths[ended] = lengths[env]
                returns[env] = 0.0
                lengths[env] = 0
                ended += 1
    return ended


@jit()
def finish(all_obs, next_obs, exact_reward, reward, terminated, truncated, final_obs, bounds):
    """Fill `next_obs` [T, N, D] from `all_obs` [T + 1, N, D], and `reward`.

    Returns whether all numbers are finite, and how many numbers of `next_obs` are outside `bounds`
    [2, D], lowest and highest; [2, 0] if there are none. If `final_obs`, steps that ended an
    episode keep the successors that `next_obs` holds already.
    """
    finite, outside = True, 0
    steps, envs, width = next_obs.shape
    for t in range(steps):
        for env in range(envs):
            reward[t, env] = exact_reward[t, env]
            finite &= reward[t, env] - reward[t, env] == 0  # neither NaN nor infinite
            ended = terminated[t, env] or truncated[t, env]
            following, successor = all_obs[t + 1, env], next_obs[t, env]
            if not (final_obs and ended):
                for i in range(width):
                    successor[i] = following[i]
            for i in range(width):
                finite &= following[i] - following[i] == 0
                finite &= successor[i] - successor[i] == 0
            for i in range(bounds.shape[1]):
                outside += successor[i] < bounds[0, i] or successor[i] > bounds[1, i]
    return finite, outside


@jit()
def walk(
    targets, cumulative_chances, policy, starts, goals, limit, steps, is_double, key, obs,
    terminals, actions, lengths,
):  # fmt: skip
    """Fill rows [envs, width] with `steps` transitions each, and `lengths` with how long they got.

    `targets` [states, actions, K] and `cumulative_chances`, running sums of their chances;
    `policy`, running sums over actions [states, actions], or [0, 0] if uniform; `starts`, the
    states to begin at. `terminals` marks each episode's last state, and if `is_double` the one
    before it. Every environment has a generator of its own, made from the key and its number, so
    that its row does not depend on how many others there are.
    """
    kinds, outcomes = targets.shape[1], targets.shape[2]
    is_uniform = policy.shape[0] == 0
    for env in range(obs.shape[0]):
        stream, draws = bits(key, np.uint64(env)), np.uint64(0)
        state = starts[below(bits(stream, draws), np.uint64(starts.size))]
        draws += _ONE
        place, age = 0, 0
        obs[env, place] = state
        for step in range(steps):
            x = bits(stream, draws)
            draws += _ONE
            action = 0
            if is_uniform:
                action = np.int64(below(x, np.uint64(kinds)))
            else:
                u = unit(x)
                while action < kinds - 1 and u > policy[state, action]:
                    action += 1
            k = 0
            if outcomes > 1:
                u = unit(bits(stream, draws))
                draws += _ONE
                while k < outcomes - 1 and u > cumulative_chances[state, action, k]:
                    k += 1
            state = targets[state, action, k]
            age += 1
            actions[env, place] = action
            place += 1
            obs[env, place] = state
            if goals[state] or age == limit:
                terminals[env, place] = True
                terminals[env, place - 1] |= is_double
                if step < steps - 1:
                    state = starts[below(bits(stream, draws), np.uint64(starts.size))]
                    draws += _ONE
                    place, age = place + 1, 0
                    obs[env, place] = state
        lengths[env] = place + 1
