"""The historical behavior of esper-lite's rollout buffer, kept for tests and diagnosis only.

Use `gae` and `normalize` for anything new. Arrays are [envs, steps], batch-major.
"""

import math

import numpy as np

from loopless.reference.scan import numbers


def compute_advantages_and_returns(
    rewards,
    values,
    dones,
    truncated,
    bootstrap_values,
    step_counts,
    *,
    gamma,
    lambda_,
    value_scale=1.0,
):
    """Return advantages, returns and TD errors as esper-lite computes them, mistakes included.

        n_t = 0 where done and not truncated, else 1
        S_t = V_{t+1}                             t < N − 1
        S_t = B_t where truncated, else 0         t = N − 1
        δ_t = r_t + γ n_t S_t − V_t
        A_t = δ_t + γ λ n_t A_{t+1}
        G_t = A_t + V_t

    V and the bootstrap values B are multiplied by `value_scale` first. N is the env's step count;
    rows beyond it come back 0. What differs from `gae`:

    1. A window that ends without a flag bootstraps from 0.
    2. A truncated row before the last neither cuts the trace nor uses its bootstrap value.
    3. Gates multiply, so that a NaN passes through a terminal.

    Truncated wins where done is set too.
    """
    shape = np.shape(rewards)
    rewards, values = numbers(rewards, shape), numbers(values, shape)
    bootstrap_values = numbers(bootstrap_values, shape)
    dones, truncated = np.asarray(dones).astype(bool), np.asarray(truncated).astype(bool)
    step_counts = np.asarray(step_counts)
    advantages, returns, td_errors = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for env in range(shape[0]):
        count = int(step_counts[env])
        advantage = 0.0
        for t in reversed(range(count)):
            value = values[env, t] * value_scale
            if t < count - 1:
                successor = values[env, t + 1] * value_scale
            elif truncated[env, t]:
                successor = bootstrap_values[env, t] * value_scale
            else:
                successor = 0.0
            gate = 0.0 if dones[env, t] and not truncated[env, t] else 1.0
            delta = rewards[env, t] + gamma * gate * successor - value
            advantage = delta + gamma * lambda_ * gate * advantage
            td_errors[env, t] = delta
            advantages[env, t] = advantage
            returns[env, t] = advantage + value
    return advantages, returns, td_errors


def normalize_advantages(advantages, step_counts):
    """Return (normalized advantages, mean, std, floored) as esper-lite computes them.

        y = (A − mean) / (max(std, 0.1) + 1e-8)      std of the population

    Mean and std are over the first `step_counts` rows of all envs; rows beyond are passed through
    untouched. `floored` tells whether std < 0.1. Without any row: (unchanged, NaN, NaN, False).
    """
    result = np.array(advantages, dtype=np.float64)
    where = []
    for env in range(result.shape[0]):
        for t in range(int(np.asarray(step_counts)[env])):
            where.append((env, t))
    if not where:
        return result, math.nan, math.nan, False
    entries = [float(result[i]) for i in where]
    mean = math.fsum(entries) / len(entries)
    std = math.sqrt(math.fsum((entry - mean) * (entry - mean) for entry in entries) / len(entries))
    for i, entry in zip(where, entries, strict=True):
        result[i] = (entry - mean) / (max(std, 0.1) + 1e-8)
    return result, mean, std, std < 0.1
