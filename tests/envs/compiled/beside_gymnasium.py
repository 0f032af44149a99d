"""A compiled environment beside Gymnasium's of the same id: what both do under the same actions."""

from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

KEY = jax.random.key(0)


class Rows(NamedTuple):
    """What a run gave, [steps, ...]."""

    obs: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


def gymnasium_run(env_id, actions, begin=None):
    """Gymnasium's environment: its state before every step, and what a step gave.

    actions: a table, or (obs, step number) → action. begin: (env), called after every reset.
    """
    env, table = gymnasium.make(env_id), [] if callable(actions) else actions
    states, rows, taken, ended, t = [], [], [], True, 0
    while t < (len(table) or 10_000):
        if ended:
            obs, _ = env.reset(seed=None if t else 0)
            if begin is not None:
                begin(env.unwrapped)
        taken.append(actions(obs, t) if callable(actions) else table[t])
        states.append(np.array(env.unwrapped.state, np.float64))
        obs, *others, _ = env.step(taken[-1])
        rows.append((obs, *others))
        ended, t = others[1] or others[2], t + 1
    env.close()
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return np.array(taken), np.array(states), Rows(*columns)


def compiled_run(env, actions, states, begins):
    """The compiled one, set to Gymnasium's state where `begins`; else on its own."""

    def step(state, now):
        action, motion, begin = now
        fresh, _ = env.at(motion)
        state = jax.tree.map(lambda a, b: jnp.where(begin, a, b), fresh, state)
        state, *row = env.step(state, action, KEY)
        return state, row

    first = env.at(states[0])[0]
    _, rows = jax.jit(lambda *xs: jax.lax.scan(step, first, xs))(actions, states, begins)
    return Rows(*map(np.asarray, rows))


def begins(rows):
    """Where an episode begins."""
    return np.concatenate([[True], (rows.terminated | rows.truncated)[:-1]])
