"""Return estimators, scans and normalization as they go wrong in real code.

Each docstring is the diagnosis that the author of such code should read. All mutants take the
arguments of the kernel that they break, as float64 NumPy arrays with time first. Those of GAE are
written as functions of a `_Rollout`.
"""

from functools import wraps
from typing import NamedTuple

import numpy as np

from loopless import reference

# --- GAE


class _Rollout(NamedTuple):
    gamma: float
    lambda_: float
    valid: np.ndarray | None
    rewards: np.ndarray
    values: np.ndarray
    next_values: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray

    @property
    def end(self) -> np.ndarray:
        return self.terminated | self.truncated


def _of_rollout(mistake):
    @wraps(mistake)
    def mutant(*arrays, gamma, lambda_, valid=None, time_axis=0):
        return mistake(_Rollout(gamma, lambda_, valid, *arrays))

    return mutant


def _deltas(x, next_values, no_bootstrap):
    return x.rewards + x.gamma * np.where(no_bootstrap, 0.0, next_values) - x.values


def _walk(x, next_values, no_bootstrap, cut):
    """Compute GAE rightly; the mutants pass wrong values and wrong gates."""
    deltas = _deltas(x, next_values, no_bootstrap)
    advantages = np.zeros_like(x.rewards)
    carry = np.zeros_like(x.rewards[0])
    for t in range(len(x.rewards) - 1, -1, -1):
        later = np.where(cut[t], 0.0, carry)
        carry = deltas[t] + np.where(cut[t], 0.0, x.gamma * x.lambda_ * later)
        if x.valid is not None:
            carry = np.where(x.valid[t], carry, 0.0)
        advantages[t] = carry
    return _masked(x.valid, advantages, advantages + x.values)


def _masked(valid, *arrays):
    """Return arrays with 0 where they are not valid."""
    return arrays if valid is None else tuple(np.where(valid, array, 0.0) for array in arrays)


@_of_rollout
def treats_truncation_as_termination(x):
    """Treats truncation as termination: one `done` flag gates both the bootstrap and the trace."""
    return _walk(x, x.next_values, x.end, x.end)


@_of_rollout
def reads_the_flag_one_step_late(x):
    """Reads the flag one step late: step t is gated by the flag that step t−1 stored."""
    terminated, end = (
        np.concatenate([np.zeros_like(flags[:1]), flags[:-1]]) for flags in (x.terminated, x.end)
    )
    return _walk(x, x.next_values, terminated, end)


@_of_rollout
def bootstraps_from_the_next_row(x):
    """Bootstraps from the next row's value: after a truncation that is the next episode's."""
    following = np.concatenate([x.values[1:], x.next_values[-1:]])
    return _walk(x, following, x.terminated, x.end)


@_of_rollout
def bootstraps_from_its_own_value(x):
    """Bootstraps a truncated step from the value of its own state instead of its successor's."""
    following = np.where(x.truncated, x.values, x.next_values)
    return _walk(x, following, x.terminated, x.end)


@_of_rollout
def masks_by_multiplying(x):
    """Masks by multiplying: 0·NaN is NaN, so that a value nobody should read poisons the rest."""
    advantages = np.zeros_like(x.rewards)
    carry = np.zeros_like(x.rewards[0])
    keep = np.ones_like(x.rewards) if x.valid is None else x.valid.astype(float)
    going, running = 1.0 - x.terminated, 1.0 - x.end
    with np.errstate(invalid="ignore"):
        for t in range(len(x.rewards) - 1, -1, -1):
            delta = x.rewards[t] + x.gamma * going[t] * x.next_values[t] - x.values[t]
            carry = keep[t] * (delta + x.gamma * x.lambda_ * running[t] * carry)
            advantages[t] = carry
        return advantages, keep * (advantages + x.values)


@_of_rollout
def bootstraps_the_window_with_zero(x):
    """Bootstraps the end of the window with 0, as if every unfinished episode ended there."""
    following = x.next_values.copy()
    following[-1] = np.where(x.truncated[-1], following[-1], 0.0)
    return _walk(x, following, x.terminated, x.end)


@_of_rollout
def divides_by_prefix_products(x):
    """Divides by prefix products (a cumulative sum of γλ powers): overflows for long T."""
    a, deltas = _masked(
        x.valid,
        np.where(x.end, 0.0, x.gamma * x.lambda_),
        _deltas(x, x.next_values, x.terminated),
    )
    # log 0 replaced by a large negative number, the usual patch for resets
    logs = np.log(np.where(a > 0, a, 1e-38))
    prefix = np.cumsum(np.concatenate([np.zeros_like(logs[:1]), logs[:-1]]), axis=0)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        weighted = np.exp(prefix) * deltas
        advantages = np.cumsum(weighted[::-1], axis=0)[::-1] / np.exp(prefix)
        return _masked(x.valid, advantages, advantages + x.values)


@_of_rollout
def carries_across_truncations(x):
    """Carries the trace across truncations: the next episode's advantages leak into this one."""
    return _walk(x, x.next_values, x.terminated, x.terminated)


@_of_rollout
def lets_truncation_win(x):
    """Bootstraps a step that is both terminated and truncated: a terminal state has no future."""
    return _walk(x, x.next_values, x.terminated & ~x.truncated, x.end)


@_of_rollout
def drops_small_terms(x):
    """Drops terms below 1e-7: a convolution whose geometric filter is cut off."""
    deltas, steps = _deltas(x, x.next_values, x.terminated), len(x.rewards)
    slowest = min(float(np.max(x.gamma * np.asarray(x.lambda_))), 1 - 1e-9)
    taps = int(np.ceil(np.log(1e-7) / np.log(max(slowest, 1e-300))))
    advantages = np.zeros_like(x.rewards)
    window = np.ones_like(x.rewards)
    for k in range(min(taps, steps)):
        reached = np.zeros_like(x.rewards)
        reached[: steps - k] = deltas[k:]
        advantages += np.where(window > 0, window * reached, 0.0)
        ends = np.ones_like(x.rewards, bool)
        ends[: steps - k] = x.end[k:]
        if x.valid is not None:
            later = np.zeros_like(x.rewards, bool)
            later[: steps - k - 1] = x.valid[k + 1 :]
            ends |= ~later
        window = np.where(ends, 0.0, window * x.gamma * x.lambda_)
    return _masked(x.valid, advantages, advantages + x.values)


@_of_rollout
def lets_padding_leak(x):
    """Lets padding leak into valid rows: the mask is applied to the outputs, not to the inputs."""
    unmasked = _walk(x._replace(valid=None), x.next_values, x.terminated, x.end)
    return _masked(x.valid, *unmasked)


@_of_rollout
def forgets_to_add_the_value(x):
    """Returns the advantages as returns: the value of the state is not added back."""
    advantages, _ = _walk(x, x.next_values, x.terminated, x.end)
    return advantages, advantages.copy()


# --- scans


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


def ignores_the_initial_value(a, b, init=None, **options):
    """Starts from 0 whatever the initial value is."""
    return reference.affine_scan(a, b, None, **options)


# --- other returns


def lambda_returns_carry_across_truncations(rewards, next_values, terminated, truncated, **options):
    """Carries the λ-return across truncations, into the next episode."""
    never = np.zeros_like(truncated)
    return reference.lambda_returns(rewards, next_values, terminated, never, **options)


def lambda_returns_start_from_zero(
    rewards, next_values, terminated, truncated, *, gamma, lambda_, valid=None, time_axis=0
):
    """Starts the λ-return from 0 at the end of the window instead of from the successor's value."""
    returns = np.zeros_like(rewards)
    carry = np.zeros_like(rewards[0])
    for t in range(len(rewards) - 1, -1, -1):
        bootstrap = np.where(terminated[t], 0.0, next_values[t])
        weight = np.where(truncated[t], 0.0, lambda_)
        follow = np.where(terminated[t] | truncated[t], 0.0, carry)
        carry = rewards[t] + gamma * ((1 - weight) * bootstrap + weight * follow)
        if valid is not None:
            carry = np.where(valid[t], carry, 0.0)
        returns[t] = carry
    return returns


def discounted_returns_forget_the_bootstrap(rewards, next_values, *flags, **options):
    """Sums rewards only: a truncated episode's future counts as 0."""
    return reference.discounted_returns(rewards, np.zeros_like(next_values), *flags, **options)


def windows_cross_episode_ends(rewards, next_values, terminated, truncated, **options):
    """n-step windows cross truncations: rewards of the next episode are summed in."""
    never = np.zeros_like(truncated)
    return reference.n_step_returns(rewards, next_values, terminated, never, **options)


def windows_are_one_step_long(*arrays, n, **options):
    """n-step windows are one step too long: n+1 rewards before the bootstrap."""
    return reference.n_step_returns(*arrays, n=n + 1, **options)


def advantage_follows_the_next_episode(
    log_ratios, rewards, values, next_values, terminated, truncated, **options
):
    """The policy-gradient advantage reads v_{t+1} at a truncation: the next episode's target."""
    arrays = log_ratios, rewards, values, next_values, terminated, truncated
    _, returns = reference.vtrace(*arrays, **options)
    following = np.concatenate([returns[1:], next_values[-1:]])
    following = np.where(terminated, 0.0, following)
    ratios = np.minimum(options.get("clip_pg_rho", 1.0), np.exp(log_ratios))
    advantages = ratios * (rewards + options["gamma"] * following - values)
    return *_masked(options.get("valid"), advantages), returns


def forgets_to_clip_the_ratios(*arrays, gamma, lambda_=1.0, valid=None, **options):
    """Does not clip the importance ratios."""
    clips = dict.fromkeys(("clip_rho", "clip_c", "clip_pg_rho"), np.inf)
    return reference.vtrace(*arrays, gamma=gamma, lambda_=lambda_, valid=valid, **clips)


def traces_are_one_step_early(*arrays, log_ratios, **options):
    """Weighs the correction of step t+1 by the trace of step t."""
    early = np.roll(np.asarray(log_ratios), 1, axis=0)
    return reference.retrace(*arrays, log_ratios=early, **options)


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
    return *_masked(valid, returns - values), returns


# --- normalization


def normalizes_over_padding(x, valid=None, *, min_std=1e-8):
    """Normalizes over padding: mean and spread count entries that are not there."""
    filled = x if valid is None else np.where(valid, x, 0.0)
    return _masked(valid, reference.normalize(filled, None, min_std=min_std))[0]


def normalizes_with_the_sample_deviation(x, valid=None, *, min_std=1e-8):
    """Divides by the sample deviation (n − 1): a single entry gives 0/0."""
    entries = x.reshape(-1) if valid is None else x[valid]
    with np.errstate(all="ignore"):
        deviation = np.sqrt(((entries - entries.mean()) ** 2).sum() / (entries.size - 1))
        return _masked(valid, (x - entries.mean()) / max(deviation, min_std))[0]


def normalizes_without_a_floor(x, valid=None, *, min_std=1e-8):
    """Divides by the deviation without a floor: a constant input gives 0/0."""
    entries = x.reshape(-1) if valid is None else x[valid]
    with np.errstate(all="ignore"):
        return _masked(valid, (x - entries.mean()) / entries.std())[0]


def takes_advantages_for_td_errors(*arrays, **options):
    """Takes advantages for TD errors: they are the same only where the trace is cut."""
    advantages, returns, *_ = reference.gae(*arrays, **options | {"td_errors": False})
    return advantages, returns, advantages


def td_errors_bootstrap_after_the_end(*arrays, **options):
    """Lets the TD errors of terminated steps bootstrap: δ counts a value where there is none."""
    advantages, returns, *_ = reference.gae(*arrays, **options | {"td_errors": False})
    rewards, values, next_values = arrays[:3]
    errors = rewards + options["gamma"] * next_values - values
    return _masked(options.get("valid"), advantages, returns, errors)


ALL = (
    ("gae, td_errors", takes_advantages_for_td_errors),
    ("gae, td_errors", td_errors_bootstrap_after_the_end),
    ("gae", treats_truncation_as_termination),
    ("gae", reads_the_flag_one_step_late),
    ("gae", bootstraps_from_the_next_row),
    ("gae", bootstraps_from_its_own_value),
    ("gae", masks_by_multiplying),
    ("gae", bootstraps_the_window_with_zero),
    ("gae", divides_by_prefix_products),
    ("gae", carries_across_truncations),
    ("gae", lets_truncation_win),
    ("gae", drops_small_terms),
    ("gae", lets_padding_leak),
    ("gae", forgets_to_add_the_value),
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
    ("normalize", normalizes_over_padding),
    ("normalize", normalizes_with_the_sample_deviation),
    ("normalize", normalizes_without_a_floor),
)
