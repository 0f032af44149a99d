"""Q-learning that goes wrong, in NumPy."""

import numpy as np


def done_is_the_end(rewards, dones, next_q_values, gamma):
    """A time limit ends the world."""
    return rewards + gamma * np.where(dones, 0.0, next_q_values.max(axis=1))


def never_ends(rewards, terminated, next_q, gamma):
    """The flag is there and not used."""
    return rewards + gamma * next_q.max(axis=1)


def networks_swapped(rewards, terminated, next_q_target, next_q_online, gamma):
    """The target network chooses and the online network judges."""
    best = next_q_target.argmax(axis=1)
    value = next_q_online[np.arange(len(best)), best]
    return np.where(terminated, rewards, rewards + gamma * value)


def multiplied(reward, terminated, next_q, gamma):
    """One sample at a time; right as long as every number is finite."""
    return reward + gamma * (1 - terminated) * max(next_q)


def unweighted(q, actions, targets, is_weights):
    """Prioritized replay whose weights are not used."""
    errors = q[np.arange(len(actions)), actions] - targets
    return (errors**2).mean(), errors
