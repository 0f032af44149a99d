"""The other estimators as they go wrong in real code. Each docstring is the diagnosis.

All take the arguments of the kernel that they break, as float64 NumPy arrays with time first.
"""

import numpy as np

from loopless import reference


def composes_in_the_wrong_order(a, b, init=None, *, reverse=True, time_axis=0):
    """Composes affine maps in the wrong order: the combine of an associative scan is not
    commutative, and a reverse scan must keep its operands' order."""
    a = np.broadcast_to(a, b.shape).copy()
    b = b.copy()
    if not reverse:
        a, b = a[::-1].copy(), b[::-1].copy()
    distance = 1
    while distance < len(b):
        later_a, later_b = np.ones_like(a), np.zeros_like(b)
        later_a[:-distance], later_b[:-distance] = a[distance:], b[distance:]
        b = later_b + later_a * b  # should be b + a · later_b
        a = a * later_a
        distance *= 2
    x = b if init is None else b + a * init
    return x if reverse else x[::-1]


def scans_by_prefix_products(a, b, init=None, *, reverse=True, time_axis=0):
    """Divides by prefix products: over- and underflows for long T, and is undefined at a = 0."""
    a = np.broadcast_to(a, b.shape)
    if not reverse:
        return scans_by_prefix_products(a[::-1], b[::-1], init)[::-1]
    prefix = np.cumprod(np.concatenate([np.ones_like(a[:1]), a[:-1]]), axis=0)
    with np.errstate(all="ignore"):
        x = np.cumsum((prefix * b)[::-1], axis=0)[::-1] / prefix
    if init is not None:
        x = x + np.cumprod(a[::-1], axis=0)[::-1] * init
    return x


def ignores_the_time_axis(a, b, init=None, *, reverse=True, time_axis=0):
    """Scans along the first axis whatever the time axis is."""
    return reference.affine_scan(a, b, init, reverse=reverse)


def ignores_the_initial_value(a, b, init=None, *, reverse=True, time_axis=0):
    """Starts from 0 whatever the initial value is."""
    return reference.affine_scan(a, b, None, reverse=reverse, time_axis=time_axis)


def lambda_returns_carry_across_truncations(
    rewards, next_values, terminated, truncated, *, gamma, lambda_, valid=None, time_axis=0
):
    """Carries the λ-return across truncations, into the next episode."""
    return reference.lambda_returns(
        rewards, next_values, terminated, np.zeros_like(truncated),
        gamma=gamma, lambda_=lambda_, valid=valid,
    )  # fmt: skip


def lambda_returns_start_from_zero(
    rewards, next_values, terminated, truncated, *, gamma, lambda_, valid=None, time_axis=0
):
    """Starts the λ-return from 0 at the end of the window instead of from the successor's value."""
    returns = np.zeros_like(rewards)
    carry = np.zeros_like(rewards[0])
    for t in range(len(rewards) - 1, -1, -1):
        bootstrap = np.where(terminated[t], 0.0, next_values[t])
        kept = np.where(truncated[t], 0.0, lambda_)
        follow = np.where(terminated[t] | truncated[t], 0.0, carry)
        carry = rewards[t] + gamma * ((1 - kept) * bootstrap + kept * follow)
        if valid is not None:
            carry = np.where(valid[t], carry, 0.0)
        returns[t] = carry
    return returns


def discounted_returns_forget_the_bootstrap(
    rewards, next_values, terminated, truncated, *, gamma, valid=None, time_axis=0
):
    """Sums rewards only: a truncated episode's future counts as 0."""
    return reference.discounted_returns(
        rewards, np.zeros_like(next_values), terminated, truncated, gamma=gamma, valid=valid
    )


def windows_cross_episode_ends(
    rewards, next_values, terminated, truncated, *, gamma, n, valid=None, time_axis=0
):
    """n-step windows cross truncations: rewards of the next episode are summed in."""
    return reference.n_step_returns(
        rewards, next_values, terminated, np.zeros_like(truncated), gamma=gamma, n=n, valid=valid
    )


def windows_are_one_step_long(
    rewards, next_values, terminated, truncated, *, gamma, n, valid=None, time_axis=0
):
    """n-step windows are one step too long: n+1 rewards before the bootstrap."""
    return reference.n_step_returns(
        rewards, next_values, terminated, truncated, gamma=gamma, n=n + 1, valid=valid
    )


def advantage_follows_the_next_episode(
    log_ratios, rewards, values, next_values, terminated, truncated, *, gamma, lambda_=1.0,
    clip_rho=1.0, clip_c=1.0, clip_pg_rho=1.0, mix=1.0, valid=None, time_axis=0,
):  # fmt: skip
    """The policy-gradient advantage reads v_{t+1} at a truncation: the next episode's target."""
    _, returns = reference.vtrace(
        log_ratios, rewards, values, next_values, terminated, truncated, gamma=gamma,
        lambda_=lambda_, clip_rho=clip_rho, clip_c=clip_c, clip_pg_rho=clip_pg_rho, mix=mix,
        valid=valid,
    )  # fmt: skip
    following = np.concatenate([returns[1:], next_values[-1:]])
    ratios = np.minimum(clip_pg_rho, np.exp(log_ratios))
    advantages = ratios * (rewards + gamma * np.where(terminated, 0.0, following) - values)
    return (advantages if valid is None else np.where(valid, advantages, 0.0)), returns


def forgets_to_clip_the_ratios(
    log_ratios, rewards, values, next_values, terminated, truncated, *, gamma, lambda_=1.0,
    clip_rho=1.0, clip_c=1.0, clip_pg_rho=1.0, mix=1.0, valid=None, time_axis=0,
):  # fmt: skip
    """Does not clip the importance ratios."""
    return reference.vtrace(
        log_ratios, rewards, values, next_values, terminated, truncated, gamma=gamma,
        lambda_=lambda_, valid=valid, clip_rho=np.inf, clip_c=np.inf, clip_pg_rho=np.inf,
    )  # fmt: skip


def traces_are_one_step_early(
    rewards, q_values, next_values, terminated, truncated, *, gamma, lambda_=1.0, trace="retrace",
    log_ratios=None, log_policy=None, valid=None, time_axis=0,
):  # fmt: skip
    """Weighs the correction of step t+1 by the trace of step t."""
    early = np.roll(np.asarray(log_ratios), 1, axis=0)
    return reference.retrace(
        rewards, q_values, next_values, terminated, truncated, gamma=gamma, lambda_=lambda_,
        trace=trace, log_ratios=early, valid=valid,
    )  # fmt: skip


def compares_the_current_step(
    rewards, values, next_values, terminated, truncated, *, gamma, valid=None, time_axis=0
):
    """UPGO decides by the current step's advantage instead of the next one's."""
    wins = rewards + gamma * np.where(terminated, 0.0, next_values) >= values
    returns = np.zeros_like(rewards)
    carry = np.zeros_like(rewards[0])
    for t in range(len(rewards) - 1, -1, -1):
        bootstrap = np.where(terminated[t], 0.0, next_values[t])
        last = np.full_like(terminated[t], t == len(rewards) - 1)
        if valid is not None and t + 1 < len(rewards):
            last = ~valid[t + 1]
        follow = wins[t] & ~(terminated[t] | truncated[t] | last)
        carry = rewards[t] + gamma * np.where(follow, carry, bootstrap)
        if valid is not None:
            carry = np.where(valid[t], carry, 0.0)
        returns[t] = carry
    advantages = returns - values
    return (advantages if valid is None else np.where(valid, advantages, 0.0)), returns


def masked_values_bootstrap_tokens(
    rewards, values, mask, *, gamma, lambda_, gaps="skip", time_axis=0
):
    """Bootstraps a token from the value of the masked-out token that follows it."""
    following = np.concatenate([values[1:], np.zeros_like(values[:1])])
    delta = rewards + gamma * following - values
    advantages = np.zeros_like(rewards)
    carry = np.zeros_like(rewards[0])
    for t in range(len(rewards) - 1, -1, -1):
        carry = np.where(mask[t], delta[t] + gamma * lambda_ * carry, carry)
        advantages[t] = carry
    return np.where(mask, advantages, 0.0), np.where(mask, advantages + values, 0.0)


def gaps_reset_the_trace(rewards, values, mask, *, gamma, lambda_, gaps="skip", time_axis=0):
    """Resets the trace at a gap: what later turns earn never reaches the earlier ones."""
    return reference.token_gae(rewards, values, mask, gamma=gamma, lambda_=lambda_, gaps="reset")


def packed_rows_run_together(rewards, values, mask, *, gamma, lambda_, gaps="reset", time_axis=0):
    """Runs packed sequences together: one sequence's rewards reach the one before it."""
    return reference.token_gae(rewards, values, mask, gamma=gamma, lambda_=lambda_, gaps="skip")


def normalizes_over_padding(x, valid=None, *, min_std=1e-8):
    """Normalises over padding: mean and spread count entries that are not there."""
    filled = x if valid is None else np.where(valid, x, 0.0)
    out = reference.normalize(filled, None, min_std=min_std)
    return out if valid is None else np.where(valid, out, 0.0)


def normalizes_with_the_sample_deviation(x, valid=None, *, min_std=1e-8):
    """Divides by the sample deviation (n − 1): a single entry gives 0/0."""
    kept = x.reshape(-1) if valid is None else x[valid]
    with np.errstate(all="ignore"):
        deviation = np.sqrt(((kept - kept.mean()) ** 2).sum() / (kept.size - 1))
        out = (x - kept.mean()) / max(deviation, min_std)
    return out if valid is None else np.where(valid, out, 0.0)


def normalizes_without_a_floor(x, valid=None, *, min_std=1e-8):
    """Divides by the deviation without a floor: a constant input gives 0/0."""
    kept = x.reshape(-1) if valid is None else x[valid]
    with np.errstate(all="ignore"):
        out = (x - kept.mean()) / kept.std()
    return out if valid is None else np.where(valid, out, 0.0)


ALL = (
    ("affine_scan", composes_in_the_wrong_order),
    ("affine_scan", scans_by_prefix_products),
    ("affine_scan", ignores_the_time_axis),
    ("affine_scan", ignores_the_initial_value),
    ("lambda_returns", lambda_returns_carry_across_truncations),
    ("lambda_returns", lambda_returns_start_from_zero),
    ("discounted_returns", discounted_returns_forget_the_bootstrap),
    ("n_step_returns", windows_cross_episode_ends),
    ("n_step_returns", windows_are_one_step_long),
    ("vtrace", advantage_follows_the_next_episode),
    ("vtrace", forgets_to_clip_the_ratios),
    ("retrace", traces_are_one_step_early),
    ("upgo", compares_the_current_step),
    ("token_gae, skip", masked_values_bootstrap_tokens),
    ("token_gae, skip", gaps_reset_the_trace),
    ("token_gae, reset", packed_rows_run_together),
    ("normalize", normalizes_over_padding),
    ("normalize", normalizes_with_the_sample_deviation),
    ("normalize", normalizes_without_a_floor),
)
