"""GAE as it goes wrong in real code. Each docstring is the diagnosis that its author should hear.

All take the arguments of `kernels.returns.gae`, as float64 NumPy arrays with time first.
"""

import numpy as np


def treats_truncation_as_termination(
    rewards, values, next_values, terminated, truncated, *, gamma, lambda_, valid=None, time_axis=0
):
    """Treats truncation as termination: one `done` flag gates both the bootstrap and the trace."""
    done = terminated | truncated
    return _walk(rewards, values, next_values, done, done, gamma, lambda_, valid)


def reads_the_flag_one_step_late(
    rewards, values, next_values, terminated, truncated, *, gamma, lambda_, valid=None, time_axis=0
):
    """Reads the flag one step late: step t is gated by the flag that step t−1 stored."""
    late = [np.concatenate([np.zeros_like(x[:1]), x[:-1]]) for x in (terminated, truncated)]
    return _walk(rewards, values, next_values, late[0], late[0] | late[1], gamma, lambda_, valid)


def bootstraps_from_the_next_row(
    rewards, values, next_values, terminated, truncated, *, gamma, lambda_, valid=None, time_axis=0
):
    """Bootstraps from the next row's value: after a truncation that is the next episode's."""
    following = np.concatenate([values[1:], next_values[-1:]])
    end = terminated | truncated
    return _walk(rewards, values, following, terminated, end, gamma, lambda_, valid)


def bootstraps_from_its_own_value(
    rewards, values, next_values, terminated, truncated, *, gamma, lambda_, valid=None, time_axis=0
):
    """Bootstraps a truncated step from the value of its own state instead of its successor's."""
    following = np.where(truncated, values, next_values)
    end = terminated | truncated
    return _walk(rewards, values, following, terminated, end, gamma, lambda_, valid)


def masks_by_multiplying(
    rewards, values, next_values, terminated, truncated, *, gamma, lambda_, valid=None, time_axis=0
):
    """Masks by multiplying: 0·NaN is NaN, so that a value nobody should read poisons the rest."""
    advantages = np.zeros_like(rewards)
    carry = np.zeros_like(rewards[0])
    keep = np.ones_like(rewards) if valid is None else valid.astype(float)
    with np.errstate(invalid="ignore"):
        for t in range(len(rewards) - 1, -1, -1):
            delta = rewards[t] + gamma * (1.0 - terminated[t]) * next_values[t] - values[t]
            end = 1.0 * (terminated[t] | truncated[t])
            carry = keep[t] * (delta + gamma * lambda_ * (1.0 - end) * carry)
            advantages[t] = carry
        return advantages, keep * (advantages + values)


def bootstraps_the_window_with_zero(
    rewards, values, next_values, terminated, truncated, *, gamma, lambda_, valid=None, time_axis=0
):
    """Bootstraps the end of the window with 0, as if every unfinished episode ended there."""
    following = next_values.copy()
    following[-1] = np.where(truncated[-1], following[-1], 0.0)
    end = terminated | truncated
    return _walk(rewards, values, following, terminated, end, gamma, lambda_, valid)


def divides_by_prefix_products(
    rewards, values, next_values, terminated, truncated, *, gamma, lambda_, valid=None, time_axis=0
):
    """Divides by prefix products (a cumulative sum of γλ powers): overflows for long T."""
    end = terminated | truncated
    a = np.where(end, 0.0, gamma * lambda_)
    delta = _delta(rewards, values, next_values, terminated, gamma)
    if valid is not None:
        a, delta = np.where(valid, a, 0.0), np.where(valid, delta, 0.0)
    # log 0 replaced by a large negative number, the usual patch for resets
    logs = np.log(np.where(a > 0, a, 1e-38))
    prefix = np.cumsum(np.concatenate([np.zeros_like(logs[:1]), logs[:-1]]), axis=0)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        weighted = np.exp(prefix) * delta
        advantages = np.cumsum(weighted[::-1], axis=0)[::-1] / np.exp(prefix)
        returns = advantages + values
    if valid is not None:
        advantages, returns = np.where(valid, advantages, 0.0), np.where(valid, returns, 0.0)
    return advantages, returns


def carries_across_truncations(
    rewards, values, next_values, terminated, truncated, *, gamma, lambda_, valid=None, time_axis=0
):
    """Carries the trace across truncations: the next episode's advantages leak into this one."""
    return _walk(rewards, values, next_values, terminated, terminated, gamma, lambda_, valid)


def lets_truncation_win(
    rewards, values, next_values, terminated, truncated, *, gamma, lambda_, valid=None, time_axis=0
):
    """Bootstraps a step that is both terminated and truncated: a terminal state has no future."""
    end = terminated | truncated
    return _walk(rewards, values, next_values, terminated & ~truncated, end, gamma, lambda_, valid)


def drops_small_terms(
    rewards, values, next_values, terminated, truncated, *, gamma, lambda_, valid=None, time_axis=0
):
    """Drops terms below 1e-7: a convolution whose geometric filter is cut off."""
    end = terminated | truncated
    delta = _delta(rewards, values, next_values, terminated, gamma)
    slowest = min(float(np.max(gamma * np.asarray(lambda_))), 1 - 1e-9)
    taps = int(np.ceil(np.log(1e-7) / np.log(max(slowest, 1e-300))))
    advantages = np.zeros_like(rewards)
    window = np.ones_like(rewards)
    for k in range(min(taps, len(rewards))):
        reached = np.zeros_like(rewards)
        reached[: len(rewards) - k] = delta[k:]
        advantages += np.where(window > 0, window * reached, 0.0)
        ends = np.ones_like(rewards, bool)
        ends[: len(rewards) - k] = end[k:]
        if valid is not None:
            later = np.zeros_like(rewards, bool)
            later[: len(rewards) - k - 1] = valid[k + 1 :]
            ends |= ~later
        window = np.where(ends, 0.0, window * gamma * lambda_)
    returns = advantages + values
    if valid is not None:
        advantages, returns = np.where(valid, advantages, 0.0), np.where(valid, returns, 0.0)
    return advantages, returns


def lets_padding_leak(
    rewards, values, next_values, terminated, truncated, *, gamma, lambda_, valid=None, time_axis=0
):
    """Lets padding leak into valid rows: the mask is applied to the outputs, not to the inputs."""
    end = terminated | truncated
    advantages, returns = _walk(rewards, values, next_values, terminated, end, gamma, lambda_, None)
    if valid is not None:
        advantages, returns = np.where(valid, advantages, 0.0), np.where(valid, returns, 0.0)
    return advantages, returns


def forgets_to_add_the_value(
    rewards, values, next_values, terminated, truncated, *, gamma, lambda_, valid=None, time_axis=0
):
    """Returns the advantages as returns: the value of the state is not added back."""
    end = terminated | truncated
    advantages, _ = _walk(rewards, values, next_values, terminated, end, gamma, lambda_, valid)
    return advantages, advantages.copy()


GAE = (
    treats_truncation_as_termination,
    reads_the_flag_one_step_late,
    bootstraps_from_the_next_row,
    bootstraps_from_its_own_value,
    masks_by_multiplying,
    bootstraps_the_window_with_zero,
    divides_by_prefix_products,
    carries_across_truncations,
    lets_truncation_win,
    drops_small_terms,
    lets_padding_leak,
    forgets_to_add_the_value,
)


def _delta(rewards, values, next_values, terminated, gamma):
    return rewards + gamma * np.where(terminated, 0.0, next_values) - values


def _walk(rewards, values, next_values, no_bootstrap, cut, gamma, lambda_, valid):
    """Right in itself: the mutants feed it wrong gates and wrong values."""
    delta = _delta(rewards, values, next_values, no_bootstrap, gamma)
    advantages = np.zeros_like(rewards)
    carry = np.zeros_like(rewards[0])
    for t in range(len(rewards) - 1, -1, -1):
        carry = delta[t] + np.where(cut[t], 0.0, gamma * lambda_ * np.where(cut[t], 0.0, carry))
        if valid is not None:
            carry = np.where(valid[t], carry, 0.0)
        advantages[t] = carry
    returns = advantages + values
    return advantages, returns if valid is None else np.where(valid, returns, 0.0)
