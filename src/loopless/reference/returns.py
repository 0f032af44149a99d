"""Return and advantage estimators, one step at a time.

Conventions of this file, wherever `terminated`, `truncated` and `valid` are taken:

- `next_values` is the value of the true successor of each step, before any reset. It is not read
  where terminated, nor where the formula does not name it.
- A step is an *end* if it is terminated, truncated, the last row, or followed by an invalid row.
  No trace crosses an end. An end that is not terminated bootstraps from its own `next_values`.
- Terminated wins where both flags are set.
- Rows with `valid` false are padding, anywhere in the column: never read, and 0 in the result.
- `gamma` and `lambda_` are numbers, or arrays that broadcast to the rewards.
- Results are new float64 arrays of the shape of `rewards`.
"""

import math

import numpy as np

from loopless.reference.scan import backwards, bootstrapped, coefficient, columns, data, flags


def gae(
    rewards,
    values,
    next_values,
    terminated,
    truncated,
    *,
    gamma,
    lambda_,
    valid=None,
    time_axis=0,
    td_errors=False,
    out=None,
):
    """Return generalized advantage estimates, and the returns that they imply.

        δ_t = r_t + γ_t V(s'_t) − V(s_t)        V(s'_t) counts as 0 where terminated
        A_t = δ_t + γ_t λ_t A_{t+1}             A_t = δ_t at an end
        G_t = A_t + V(s_t)

    With `td_errors` the third result is δ. Results are also written to the arrays of `out`.

    Schulman et al. 2016, eq. 16.
    """
    shape = np.shape(rewards)
    rewards, values = data(rewards, shape), data(values, shape)
    next_values, terminated = data(next_values, shape), flags(terminated, shape)
    gamma, lambda_ = coefficient(gamma, shape), coefficient(lambda_, shape)
    advantages, returns, errors = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    advantage = 0.0
    for i, following in backwards(shape, terminated, truncated, valid, time_axis):
        delta = bootstrapped(i, rewards, next_values, terminated, gamma) - values[i]
        trace = 0.0
        if following is not None:
            trace = gamma[i] * lambda_[i] * advantage
        advantage = delta + trace
        advantages[i] = advantage
        returns[i] = advantage + values[i]
        errors[i] = delta
    results = (advantages, returns, errors) if td_errors else (advantages, returns)
    if out is None:
        return results
    for array, result in zip(out, results, strict=True):
        array[...] = result
    return out


def gae_forward(
    rewards, values, next_values, terminated, truncated, *, gamma, lambda_, valid=None, time_axis=0
):
    """Return `gae` by its forward definition, in O(T²) and with no code shared: a second truth.

        A_t = Σ_{s=t}^{end} (Π_{k=t}^{s−1} γ_k λ_k) δ_s

    The sum stops at the first end at or after t. Schulman et al. 2016, eq. 16.
    """
    shape = np.shape(rewards)
    rewards, values = data(rewards, shape), data(values, shape)
    next_values = data(next_values, shape)
    terminated, truncated = flags(terminated, shape), flags(truncated, shape)
    valid = np.ones(shape, dtype=bool) if valid is None else flags(valid, shape)
    gamma, lambda_ = coefficient(gamma, shape), coefficient(lambda_, shape)
    advantages, returns = np.zeros(shape), np.zeros(shape)
    for _, rows in columns(shape, time_axis):
        for t in range(len(rows)):
            if not valid[rows[t]]:
                continue
            total, weight = 0.0, 1.0
            for s in range(t, len(rows)):
                i = rows[s]
                if terminated[i]:
                    delta = rewards[i] - values[i]
                else:
                    delta = rewards[i] + gamma[i] * next_values[i] - values[i]
                total = total + weight * delta
                if terminated[i] or truncated[i]:
                    break
                if s == len(rows) - 1 or not valid[rows[s + 1]]:
                    break
                weight = weight * gamma[i] * lambda_[i]
            advantages[rows[t]] = total
            returns[rows[t]] = total + values[rows[t]]
    return advantages, returns


def lambda_returns(
    rewards, next_values, terminated, truncated, *, gamma, lambda_, valid=None, time_axis=0
):
    """Return TD(λ) returns.

        G_t = r_t + γ_t ((1 − λ_t) V(s'_t) + λ_t G_{t+1})
        G_t = r_t + γ_t V(s'_t) at an end, r_t where terminated

    Sutton & Barto 2018, chapter 12.
    """
    shape = np.shape(rewards)
    rewards, next_values = data(rewards, shape), data(next_values, shape)
    terminated = flags(terminated, shape)
    gamma, lambda_ = coefficient(gamma, shape), coefficient(lambda_, shape)
    returns = np.zeros(shape)
    g = 0.0
    for i, following in backwards(shape, terminated, truncated, valid, time_axis):
        if following is None:
            g = bootstrapped(i, rewards, next_values, terminated, gamma)
        else:
            g = rewards[i] + gamma[i] * ((1.0 - lambda_[i]) * next_values[i] + lambda_[i] * g)
        returns[i] = g
    return returns


def discounted_returns(
    rewards, next_values, terminated, truncated, *, gamma, valid=None, time_axis=0
):
    """Return discounted rewards to go.

        G_t = r_t + γ_t G_{t+1}
        G_t = r_t + γ_t V(s'_t) at an end, r_t where terminated

    `next_values` is read only at ends that are not terminated. Sutton & Barto 2018, eq. 3.9.
    """
    shape = np.shape(rewards)
    rewards, next_values = data(rewards, shape), data(next_values, shape)
    terminated, gamma = flags(terminated, shape), coefficient(gamma, shape)
    returns = np.zeros(shape)
    g = 0.0
    for i, following in backwards(shape, terminated, truncated, valid, time_axis):
        if following is None:
            g = bootstrapped(i, rewards, next_values, terminated, gamma)
        else:
            g = rewards[i] + gamma[i] * g
        returns[i] = g
    return returns


def n_step_returns(
    rewards, next_values, terminated, truncated, *, gamma, n, valid=None, time_axis=0
):
    """Return returns over windows of n steps.

        G_t = Σ_{k=t}^{l} (Π_{j=t}^{k−1} γ_j) r_k + (Π_{j=t}^{l} γ_j) V(s'_l)

    The last step l of the window is t + n − 1, or the first end before it. There is no bootstrap
    where l is terminated. `next_values` is read at l alone. Sutton & Barto 2018, eq. 7.1.
    """
    if n < 1:
        raise ValueError(f"n_step_returns: n is {n}; a window has at least 1 step.")
    shape = np.shape(rewards)
    rewards, next_values = data(rewards, shape), data(next_values, shape)
    terminated, gamma = flags(terminated, shape), coefficient(gamma, shape)
    following = dict(backwards(shape, terminated, truncated, valid, time_axis))
    returns = np.zeros(shape)
    for start in following:
        window, after = [start], following[start]
        while len(window) < n and after is not None:
            window.append(after)
            after = following[after]
        g, discount = 0.0, 1.0
        for i in window:
            g = g + discount * rewards[i]
            discount = discount * gamma[i]
        last = window[-1]
        if not terminated[last]:
            g = g + discount * next_values[last]
        returns[start] = g
    return returns


def upgo(rewards, values, next_values, terminated, truncated, *, gamma, valid=None, time_axis=0):
    """Return UPGO advantages and returns, which follow the trajectory while it does well.

        G_t = r_t + γ_t G_{t+1}     where r_{t+1} + γ_{t+1} V(s'_{t+1}) ≥ V(s_{t+1})
        G_t = r_t + γ_t V(s'_t)     elsewhere, and at an end
        A_t = G_t − V(s_t)

    V(s') counts as 0 where terminated. Vinyals et al. 2019 (AlphaStar).
    """
    shape = np.shape(rewards)
    rewards, values = data(rewards, shape), data(values, shape)
    next_values, terminated = data(next_values, shape), flags(terminated, shape)
    gamma = coefficient(gamma, shape)
    advantages, returns = np.zeros(shape), np.zeros(shape)
    g = 0.0
    for i, following in backwards(shape, terminated, truncated, valid, time_axis):
        one_step = bootstrapped(i, rewards, next_values, terminated, gamma)
        if following is None:
            g = one_step
        elif bootstrapped(following, rewards, next_values, terminated, gamma) >= values[following]:
            g = rewards[i] + gamma[i] * g
        else:
            g = one_step
        advantages[i] = g - values[i]
        returns[i] = g
    return advantages, returns


def token_gae(rewards, values, mask, *, gamma, lambda_, gaps="skip", time_axis=0):
    """Return GAE over the masked-in tokens of sequences, and the returns that it implies.

        δ_t = r_t + γ_t V_next − V_t            V_next = 0 beyond the end
        A_t = δ_t + γ_t λ_t A_next              A_next = 0 beyond the end

    With gaps="skip", next is the next masked-in token however far away: GAE on the compressed
    sequence. With gaps="reset", each run of masked-in tokens is a sequence of its own, ended by
    the gap. Masked-out tokens are never read and come back 0. Schulman et al. 2016, eq. 16.
    """
    if gaps not in ("skip", "reset"):
        raise ValueError(f"token_gae: unknown gaps {gaps!r}; choose skip or reset.")
    shape = np.shape(rewards)
    rewards, values, mask = data(rewards, shape), data(values, shape), flags(mask, shape)
    gamma, lambda_ = coefficient(gamma, shape), coefficient(lambda_, shape)
    advantages, returns = np.zeros(shape), np.zeros(shape)
    for _, rows in columns(shape, time_axis):
        next_value = next_advantage = 0.0
        for i in reversed(rows):
            if mask[i]:
                delta = rewards[i] + gamma[i] * next_value - values[i]
                advantage = delta + gamma[i] * lambda_[i] * next_advantage
                advantages[i] = advantage
                returns[i] = advantage + values[i]
                next_value, next_advantage = values[i], advantage
            elif gaps == "reset":
                next_value = next_advantage = 0.0
    return advantages, returns


def normalize(x, valid=None, *, min_std=1e-8):
    """Shift and scale the valid entries of the whole array to mean 0 and standard deviation 1.

        y = (x − mean) / max(std, min_std)      std of the population

    Entries with `valid` false are never read and come back 0. A constant gives exact zeros. A
    NaN or infinite valid entry makes every valid entry NaN.
    """
    shape = np.shape(x)
    x = data(x, shape)
    valid = np.ones(shape, dtype=bool) if valid is None else flags(valid, shape)
    result = np.zeros(shape)
    where = [i for i in np.ndindex(shape) if valid[i]]
    entries = [x[i] for i in where]
    if not all(math.isfinite(entry) for entry in entries):
        for i in where:
            result[i] = math.nan
        return result
    # The mean of n equal numbers, rounded, need not be that number.
    if all(entry == entries[0] for entry in entries):
        return result
    mean = entries[0] + math.fsum(entry - entries[0] for entry in entries) / len(entries)
    std = math.sqrt(math.fsum((entry - mean) * (entry - mean) for entry in entries) / len(entries))
    for i in where:
        result[i] = (x[i] - mean) / max(std, min_std)
    return result
