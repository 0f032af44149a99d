"""Functions other than GAE that go wrong, in NumPy. `WRONG` says what each must be told."""

import numpy as np

# --- returns and normalization


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


def _windows(rewards, next_values, terminated, ended, gamma, n):
    """Sum up to n rewards, up to where `ended`, then bootstrap: right for n and all ends."""
    returns = np.zeros_like(rewards)
    steps, envs = rewards.shape
    for b in range(envs):
        for t in range(steps):
            total, discount, s = 0.0, 1.0, t
            for s in range(t, min(t + n, steps)):
                total += discount * rewards[s, b]
                discount *= gamma
                if ended[s, b]:
                    break
            returns[t, b] = total + (0 if terminated[s, b] else discount * next_values[s, b])
    return returns


def windows_through_resets(rewards, next_values, terminated, truncated, gamma, n):
    """Windows that stop at terminations alone."""
    return _windows(rewards, next_values, terminated, terminated, gamma, n)


def one_reward_too_many(rewards, next_values, terminated, truncated, gamma, n_steps):
    """n + 1 rewards before the bootstrap."""
    ended = terminated | truncated
    return _windows(rewards, next_values, terminated, ended, gamma, n_steps + 1)


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
    filled = np.where(mask, advantages, 0)
    return np.where(mask, (filled - filled.mean()) / (filled.std() + 1e-8), 0)


# --- Q-learning


def done_is_the_end(rewards, dones, next_q_values, gamma):
    """A time limit counts as a terminal state."""
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


# --- samplers


def newest_left_out(size, batch_size, rng):
    """An upper bound that is taken as inclusive, and is not."""
    return rng.integers(0, max(size - 1, 1), batch_size)


def seeded_inside(buffer_size, batch_size):
    """The same numbers in every call."""
    return np.random.default_rng(0).integers(0, buffer_size, batch_size)


def no_exponent(priorities, batch_size, alpha, beta, rng):
    """α is asked for and not used."""
    p = priorities / priorities.sum()
    indices = rng.choice(len(p), batch_size, p=p)
    weights = (len(p) * p[indices]) ** -beta
    return indices, weights / weights.max()


def weights_of_any_size(priorities, batch_size, alpha, beta, rng):
    """Importance weights above 1."""
    p = np.where(priorities > 0, priorities**alpha, 0)
    p = p / p.sum()
    indices = rng.choice(len(p), batch_size, p=p)
    return indices, (len(p) * p[indices]) ** -beta


def empty_slots(priorities, batch_size, alpha, rng):
    """A constant for stability also raises what is empty."""
    p = (priorities + 0.1) ** alpha
    return rng.choice(len(p), batch_size, p=p / p.sum())


def _gaps(rng, gamma, horizons):
    u = rng.random(len(horizons))
    return np.floor(np.log1p(-u * (1 - gamma**horizons)) / np.log(gamma)).astype(int)


def _horizons(dones):
    ends = np.flatnonzero(dones)
    return ends[np.searchsorted(ends, np.arange(len(dones)))] - np.arange(len(dones))


def across_resets(dones, batch_size, gamma, rng):
    """A geometric gap from any state, whatever ends in between."""
    start = rng.integers(0, len(dones) - 1, batch_size)
    gap = rng.geometric(1 - gamma, batch_size)
    return start, np.minimum(start + gap, len(dones) - 1)


def capped_table(terminals, batch_size, gamma, rng):
    """A table of episode ends with room for a hundred of them."""
    ends = np.flatnonzero(terminals)[:100]
    known = np.zeros_like(terminals)
    known[ends] = True
    known[-1] = True
    horizons = _horizons(known)
    start = rng.choice(np.flatnonzero(horizons > 0), batch_size)
    gap = 1 + np.minimum(_gaps(rng, gamma, horizons[start]), horizons[start] - 1)
    return start, start + gap


def cut_off(dones, batch_size, discount, rng):
    """Gaps beyond the end of the episode are brought back to its last state."""
    horizons = _horizons(dones)
    start = rng.choice(np.flatnonzero(horizons > 0), batch_size)
    gap = rng.geometric(1 - discount, batch_size)
    return start, start + np.minimum(gap, horizons[start])


def from_the_start_itself(dones, batch_size, gamma, rng):
    """A gap of 0 is a state paired with itself."""
    horizons = _horizons(dones)
    start = rng.choice(np.flatnonzero(horizons > 0), batch_size)
    return start, start + _gaps(rng, gamma, horizons[start])
