"""Other return estimators, and standardisation, that go wrong, in NumPy."""

import numpy as np


def lambda_from_zero(rewards, next_values, terminated, truncated, gamma, lambda_):
    """The sum begins with 0 at the end of the window."""
    returns, last = np.zeros_like(rewards), np.zeros_like(rewards[0])
    for t in reversed(range(len(rewards))):
        after = np.where(terminated[t], 0, next_values[t])
        share = np.where(truncated[t], 0.0, lambda_)
        last = np.where(terminated[t] | truncated[t], 0, last)
        returns[t] = last = rewards[t] + gamma * ((1 - share) * after + share * last)
    return returns


def rewards_to_go(rewards, dones, gamma):
    """Rewards and nothing else, as in REINFORCE on episodes that a time limit cut off."""
    returns, total = [], 0.0
    for reward, done in zip(reversed(rewards), reversed(dones), strict=True):
        total = reward + gamma * total * (not done)
        returns.insert(0, total)
    return returns


def windows_through_resets(rewards, next_values, terminated, truncated, gamma, n):
    """Windows that stop at terminations alone."""
    returns = np.zeros_like(rewards)
    steps, envs = rewards.shape
    for b in range(envs):
        for t in range(steps):
            total, discount, s = 0.0, 1.0, t
            for s in range(t, min(t + n, steps)):
                total += discount * rewards[s, b]
                discount *= gamma
                if terminated[s, b]:
                    break
            returns[t, b] = total + (0 if terminated[s, b] else discount * next_values[s, b])
    return returns


def one_reward_too_many(rewards, next_values, terminated, truncated, gamma, n_steps):
    """n + 1 rewards before the bootstrap."""
    returns = np.zeros_like(rewards)
    steps, envs = rewards.shape
    for b in range(envs):
        for t in range(steps):
            total, discount, s = 0.0, 1.0, t
            for s in range(t, min(t + n_steps + 1, steps)):
                total += discount * rewards[s, b]
                discount *= gamma
                if terminated[s, b] or truncated[s, b]:
                    break
            returns[t, b] = total + (0 if terminated[s, b] else discount * next_values[s, b])
    return returns


def _vtrace(ratios, rewards, values, next_values, terminated, truncated, gamma, rho_bar, c_bar):
    end = terminated | truncated
    after = np.where(terminated, 0, next_values)
    delta = np.minimum(rho_bar, ratios) * (rewards + gamma * after - values)
    targets, last = np.zeros_like(rewards), np.zeros_like(rewards[0])
    for t in reversed(range(len(rewards))):
        last = delta[t] + gamma * np.minimum(c_bar, ratios[t]) * np.where(end[t], 0, last)
        targets[t] = values[t] + last
    return targets


def unclipped_vtrace(log_rhos, rewards, values, next_values, terminated, truncated, gamma):
    """V-trace without its clips."""
    ratios, end = np.exp(log_rhos), terminated | truncated
    fields = rewards, values, next_values, terminated, truncated
    targets = _vtrace(ratios, *fields, gamma, np.inf, np.inf)
    following = np.concatenate([targets[1:], next_values[-1:]])
    following = np.where(end, next_values, following)
    after = np.where(terminated, 0, following)
    return ratios * (rewards + gamma * after - values), targets


def vtrace_into_the_next_episode(
    log_rhos, rewards, values, next_values, terminated, truncated, gamma
):
    """Right targets; but the advantage at a truncation reads the target of the next row."""
    ratios = np.exp(log_rhos)
    fields = rewards, values, next_values, terminated, truncated
    targets = _vtrace(ratios, *fields, gamma, 1.0, 1.0)
    following = np.concatenate([targets[1:], next_values[-1:]])
    after = np.where(terminated, 0, following)
    return np.minimum(1.0, ratios) * (rewards + gamma * after - values), targets


def values_of_padding(token_level_rewards, values, response_mask, gamma, lam):
    """[B, T] tokens: the last one bootstraps from whatever stands in the padding."""
    advantages, last = np.zeros_like(values), np.zeros_like(values[:, 0])
    length = values.shape[1]
    for t in reversed(range(length)):
        after = values[:, t + 1] if t + 1 < length else 0.0
        delta = token_level_rewards[:, t] + gamma * after - values[:, t]
        last = np.where(response_mask[:, t], delta + gamma * lam * last, last)
        advantages[:, t] = last
    advantages = np.where(response_mask, advantages, 0)
    return advantages, np.where(response_mask, advantages + values, 0)


def turns_apart(token_level_rewards, values, response_mask, gamma, lam):
    """A turn knows nothing of the turns after it."""
    advantages = np.zeros_like(values)
    last, after = np.zeros_like(values[:, 0]), np.zeros_like(values[:, 0])
    for t in reversed(range(values.shape[1])):
        here = response_mask[:, t]
        delta = token_level_rewards[:, t] + gamma * after - values[:, t]
        last = np.where(here, delta + gamma * lam * last, 0)
        after = np.where(here, values[:, t], 0)
        advantages[:, t] = last
    return advantages


def sample_deviation(advantages):
    """n − 1 in the divisor, as `torch.std` has it: a single entry gives NaN."""
    return (advantages - advantages.mean()) / (advantages.std(ddof=1) + 1e-8)


def counted_padding(advantages, mask):
    """Mean and spread over padding too."""
    kept = np.where(mask, advantages, 0)
    return np.where(mask, (kept - kept.mean()) / (kept.std() + 1e-8), 0)
