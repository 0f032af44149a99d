"""The walk through a grid's tables, compiled: one environment after the other, step by step.

Every environment has a generator of its own, made of the seed and its number, so that a row does
not depend on how many others there are. Imports Numba. Its caller is `grid_collect`; the law of
its walks is compared with the exact one in `tests/envs/test_grid_collect.py`.
"""

import numpy as np

from loopless.compiled.jit import jit
from loopless.compiled.random import below, bits, unit

_ONE = np.uint64(1)


@jit()
def walk(
    targets, reached, policy, starts, goals, limit, steps, is_double, key, obs, terminals, actions,
    lengths,
):  # fmt: skip
    """Fill rows [envs, width] with `steps` transitions each; how much of each counts in `lengths`.

    `targets` [states, actions, K] and `reached`, running sums of their chances; `policy`, running
    sums over actions [states, actions], or [0, 0] if uniform; `starts`, the states to begin at.
    """
    kinds, outcomes = targets.shape[1], targets.shape[2]
    is_uniform = policy.shape[0] == 0
    for env in range(obs.shape[0]):
        stream, count = bits(key, np.uint64(env)), np.uint64(0)
        state = starts[below(bits(stream, count), np.uint64(starts.size))]
        count += _ONE
        place, age = 0, 0
        obs[env, place] = state
        for step in range(steps):
            x = bits(stream, count)
            count += _ONE
            action = 0
            if is_uniform:
                action = np.int64(below(x, np.uint64(kinds)))
            else:
                u = unit(x)
                while action < kinds - 1 and u > policy[state, action]:
                    action += 1
            k = 0
            if outcomes > 1:
                u = unit(bits(stream, count))
                count += _ONE
                while k < outcomes - 1 and u > reached[state, action, k]:
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
                    state = starts[below(bits(stream, count), np.uint64(starts.size))]
                    count += _ONE
                    place, age = place + 1, 0
                    obs[env, place] = state
        lengths[env] = place + 1
