"""GAE as it goes wrong, in NumPy and JAX. `WRONG` says what each function must be told."""

import numpy as np


def _add_up(deltas, decay, cut):
    """Return the sums A_t = δ_t + decay · A_{t+1}, or just δ_t where `cut`: the right loop."""
    advantages, last = np.zeros_like(deltas), np.zeros_like(deltas[0])
    for t in reversed(range(len(deltas))):
        advantages[t] = last = deltas[t] + decay * np.where(cut[t], 0, last)
    return advantages


def termination_only(rewards, values, dones, next_value, next_done, gamma=0.99, gae_lambda=0.95):
    """One flag for both ends, stored with the row after, as in single-file PPO scripts."""
    steps = len(rewards)
    advantages = np.zeros_like(rewards)
    last = 0
    for t in reversed(range(steps)):
        if t == steps - 1:
            nonterminal, following = 1.0 - next_done, next_value
        else:
            nonterminal, following = 1.0 - dones[t + 1], values[t + 1]
        delta = rewards[t] + gamma * following * nonterminal - values[t]
        advantages[t] = last = delta + gamma * gae_lambda * nonterminal * last
    return advantages, advantages + values


def lagged_flags(rewards, values, next_values, terminated, truncated, gamma, lam):
    """Flags that were stored one row late, read as if they had not been."""
    terminated, truncated = (
        np.concatenate([np.zeros_like(flags[:1]), flags[:-1]]) for flags in (terminated, truncated)
    )
    deltas = rewards + gamma * np.where(terminated, 0, next_values) - values
    return _add_up(deltas, gamma * lam, terminated | truncated)


def zero_at_the_windows_end(rewards, values, dones, gamma, lmbda):
    """Nothing beyond the window: as in code that appends a 0 to the values."""
    following = np.concatenate([values[1:], np.zeros_like(values[:1])])
    deltas = rewards + gamma * np.where(dones, 0, following) - values
    return _add_up(deltas, gamma * lmbda, dones > 0)


def next_row_at_truncations(rewards, values, terminated, truncated, gamma, lambda_):
    """Both flags, but values of T + 1 rows: after a reset the next row is another episode's."""
    deltas = rewards + gamma * np.where(terminated, 0, values[1:]) - values[:-1]
    return _add_up(deltas, gamma * lambda_, terminated | truncated)


def flows_through_truncations(rewards, values, next_values, terminated, truncated, gamma, lam):
    """A truncation bootstraps as it should, but the sum goes on behind it."""
    deltas = rewards + gamma * np.where(terminated, 0, next_values) - values
    return _add_up(deltas, gamma * lam, terminated)


def own_value_at_time_limits(rewards, values, next_values, terminated, time_limits, gamma, lam):
    """A time limit is made good with the value of the state itself, not of its successor."""
    rewards = rewards + gamma * np.where(time_limits & ~terminated, values, 0)
    ended = terminated | time_limits
    deltas = rewards + gamma * np.where(ended, 0, next_values) - values
    advantages = _add_up(deltas, gamma * lam, ended)
    return advantages, advantages + values


def time_limit_wins(rewards, values, next_values, terminated, truncated, gamma, lambda_):
    """Where both flags are set it bootstraps."""
    deltas = rewards + gamma * np.where(terminated & ~truncated, 0, next_values) - values
    return _add_up(deltas, gamma * lambda_, terminated | truncated)


def no_value_added(rewards, values, next_values, terminated, truncated, gamma, lambda_):
    """Targets for the critic that are advantages."""
    deltas = rewards + gamma * np.where(terminated, 0, next_values) - values
    advantages = _add_up(deltas, gamma * lambda_, terminated | truncated)
    return {"advantages": advantages, "returns": advantages}


def powers_by_cumulative_sums(rewards, values, next_values, terminated, truncated, gamma, lam):
    """No loop: sums of terms weighted with powers of γλ, divided by those powers again."""
    delta = rewards + gamma * np.where(terminated, 0, next_values) - values
    decay = np.where(terminated | truncated, 1e-38, gamma * lam)
    logs = np.log(np.where(decay > 0, decay, 1e-38))
    before = np.cumsum(np.concatenate([np.zeros_like(logs[:1]), logs[:-1]]), axis=0)
    weights = np.exp(before)
    return np.cumsum((weights * delta)[::-1], axis=0)[::-1] / weights


def masked_afterwards(rewards, values, next_values, terminated, truncated, valid_mask, gamma, lam):
    """Padding is taken out of the result, when it has reached the rest already."""
    deltas = rewards + gamma * np.where(terminated, 0, next_values) - values
    advantages = _add_up(deltas, gamma * lam, terminated | truncated)
    return np.where(valid_mask, advantages, 0)


def multiplied_gates(rewards, values, next_values, terminated, truncated, gamma, lambda_):
    """Right as long as every number is finite."""
    advantages, last = np.zeros_like(rewards), np.zeros_like(rewards[0])
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + gamma * (1.0 - terminated[t]) * next_values[t] - values[t]
        going = 1.0 - (terminated[t] | truncated[t])
        advantages[t] = last = delta + gamma * lambda_ * going * last
    return advantages


def scan_over_done(reward, value, done, last_val, gamma, gae_lambda):
    """A compiled scan over time with one flag, as in PPO that is compiled from end to end."""
    import jax

    def step(carry, row):
        advantage, following = carry
        r, v, d = row
        delta = r + gamma * following * (1 - d) - v
        advantage = delta + gamma * gae_lambda * (1 - d) * advantage
        return (advantage, v), advantage

    @jax.jit
    def scan(start, rows):
        return jax.lax.scan(step, start, rows, reverse=True)

    _, advantages = scan((0.0 * last_val, last_val), (reward, value, done))
    return advantages, advantages + value
