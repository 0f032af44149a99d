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

from loopless.reference.scan import columns, numbers


def gae(
    rewards, values, next_values, terminated, truncated, *, gamma, lambda_, valid=None, time_axis=0
):
    """Generalised advantage estimates, and the returns they imply.

        δ_t = r_t + γ_t V(s'_t) − V(s_t)        V(s'_t) counts as 0 where terminated
        A_t = δ_t + γ_t λ_t A_{t+1}             A_t = δ_t at an end
        G_t = A_t + V(s_t)

    Schulman et al. 2016, eq. 16.
    """
    shape = np.shape(rewards)
    rewards, values = _data(rewards, shape), _data(values, shape)
    next_values, terminated = _data(next_values, shape), _flags(terminated, shape)
    gamma, lambda_ = _coefficient(gamma, shape), _coefficient(lambda_, shape)
    advantages, returns = np.zeros(shape), np.zeros(shape)
    advantage = 0.0
    for i, following in _backwards(shape, terminated, truncated, valid, time_axis):
        delta = _one_step(i, rewards, next_values, terminated, gamma) - values[i]
        trace = 0.0
        if following is not None:
            trace = gamma[i] * lambda_[i] * advantage
        advantage = delta + trace
        advantages[i] = advantage
        returns[i] = advantage + values[i]
    return advantages, returns


def gae_forward(
    rewards, values, next_values, terminated, truncated, *, gamma, lambda_, valid=None, time_axis=0
):
    """`gae` by its forward definition, in O(T²) and with nothing shared: a second truth.

        A_t = Σ_{s=t}^{end} (Π_{k=t}^{s−1} γ_k λ_k) δ_s

    The sum stops at the first end at or after t. Schulman et al. 2016, eq. 16.
    """
    shape = np.shape(rewards)
    rewards, values = _data(rewards, shape), _data(values, shape)
    next_values = _data(next_values, shape)
    terminated, truncated = _flags(terminated, shape), _flags(truncated, shape)
    valid = np.ones(shape, dtype=bool) if valid is None else _flags(valid, shape)
    gamma, lambda_ = _coefficient(gamma, shape), _coefficient(lambda_, shape)
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
    """TD(λ) returns.

        G_t = r_t + γ_t ((1 − λ_t) V(s'_t) + λ_t G_{t+1})
        G_t = r_t + γ_t V(s'_t) at an end, r_t where terminated

    Sutton & Barto 2018, chapter 12.
    """
    shape = np.shape(rewards)
    rewards, next_values = _data(rewards, shape), _data(next_values, shape)
    terminated = _flags(terminated, shape)
    gamma, lambda_ = _coefficient(gamma, shape), _coefficient(lambda_, shape)
    returns = np.zeros(shape)
    g = 0.0
    for i, following in _backwards(shape, terminated, truncated, valid, time_axis):
        if following is None:
            g = _one_step(i, rewards, next_values, terminated, gamma)
        else:
            g = rewards[i] + gamma[i] * ((1.0 - lambda_[i]) * next_values[i] + lambda_[i] * g)
        returns[i] = g
    return returns


def discounted_returns(
    rewards, next_values, terminated, truncated, *, gamma, valid=None, time_axis=0
):
    """Discounted rewards to go.

        G_t = r_t + γ_t G_{t+1}
        G_t = r_t + γ_t V(s'_t) at an end, r_t where terminated

    `next_values` is read only at ends that are not terminated. Sutton & Barto 2018, eq. 3.9.
    """
    shape = np.shape(rewards)
    rewards, next_values = _data(rewards, shape), _data(next_values, shape)
    terminated, gamma = _flags(terminated, shape), _coefficient(gamma, shape)
    returns = np.zeros(shape)
    g = 0.0
    for i, following in _backwards(shape, terminated, truncated, valid, time_axis):
        if following is None:
            g = _one_step(i, rewards, next_values, terminated, gamma)
        else:
            g = rewards[i] + gamma[i] * g
        returns[i] = g
    return returns


def n_step_returns(
    rewards, next_values, terminated, truncated, *, gamma, n, valid=None, time_axis=0
):
    """Returns over windows of n steps.

        G_t = Σ_{k=t}^{l} (Π_{j=t}^{k−1} γ_j) r_k + (Π_{j=t}^{l} γ_j) V(s'_l)

    The last step l of the window is t + n − 1, or the first end before it. There is no bootstrap
    where l is terminated. `next_values` is read at l alone. Sutton & Barto 2018, eq. 7.1.
    """
    if n < 1:
        raise ValueError(f"n_step_returns: n is {n}; a window has at least 1 step.")
    shape = np.shape(rewards)
    rewards, next_values = _data(rewards, shape), _data(next_values, shape)
    terminated, gamma = _flags(terminated, shape), _coefficient(gamma, shape)
    following = dict(_backwards(shape, terminated, truncated, valid, time_axis))
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


def vtrace(
    log_ratios,
    rewards,
    values,
    next_values,
    terminated,
    truncated,
    *,
    gamma,
    lambda_=1.0,
    clip_rho=1.0,
    clip_c=1.0,
    clip_pg_rho=1.0,
    mix=1.0,
    valid=None,
    time_axis=0,
):
    """V-trace: policy-gradient advantages, and the value targets v_t (returned in this order).

        ρ_t = exp(log_ratios_t)
        w(clip) = mix min(clip, ρ_t) + (1 − mix) ρ_t
        v_t − V_t = w(clip_rho) δ_t + γ_t λ_t w(clip_c) (v_{t+1} − V_{t+1})      δ_t as in `gae`
        A_t = w(clip_pg_rho) (r_t + γ_t v_{t+1} − V_t)

    At an end the second term of v_t − V_t is 0 and A_t has V(s'_t), or 0 where terminated, in
    place of v_{t+1}. `mix` below 1 is leaky V-trace.

    Espeholt et al. 2018, eq. 1 and remark 1; Zahavy et al. 2020 for the leak.
    """
    shape = np.shape(rewards)
    log_ratios, rewards = _data(log_ratios, shape), _data(rewards, shape)
    values, next_values = _data(values, shape), _data(next_values, shape)
    terminated = _flags(terminated, shape)
    gamma, lambda_ = _coefficient(gamma, shape), _coefficient(lambda_, shape)
    advantages, returns = np.zeros(shape), np.zeros(shape)
    correction = 0.0  # v_t − V_t
    for i, following in _backwards(shape, terminated, truncated, valid, time_axis):
        ratio = _exp(log_ratios[i])
        rho = _leaky_clip(ratio, clip_rho, mix)
        c = lambda_[i] * _leaky_clip(ratio, clip_c, mix)
        pg_rho = _leaky_clip(ratio, clip_pg_rho, mix)
        one_step = _one_step(i, rewards, next_values, terminated, gamma)
        delta = one_step - values[i]
        if following is None:
            advantages[i] = pg_rho * (one_step - values[i])
            correction = rho * delta
        else:
            next_target = correction + values[following]
            advantages[i] = pg_rho * (rewards[i] + gamma[i] * next_target - values[i])
            correction = rho * delta + gamma[i] * c * correction
        returns[i] = correction + values[i]
    return advantages, returns


def retrace(
    rewards,
    q_values,
    next_values,
    terminated,
    truncated,
    *,
    gamma,
    lambda_=1.0,
    trace="retrace",
    log_ratios=None,
    log_policy=None,
    valid=None,
    time_axis=0,
):
    """Off-policy returns of action values: Retrace and its family.

        G_t = r_t + γ_t E_π Q(s'_t, ·) + γ_t c_{t+1} (G_{t+1} − Q(s_{t+1}, a_{t+1}))

        c_t = λ_t min(1, ρ_t)     "retrace"               ρ_t = exp(log_ratios_t)
        c_t = λ_t                 "q_lambda"
        c_t = λ_t π(a_t | s_t)    "tree_backup"           π = exp(log_policy_t)
        c_t = λ_t ρ_t             "importance_sampling"

    `q_values` holds Q(s_t, a_t) and `next_values` E_π Q(s'_t, ·), which counts as 0 where
    terminated. The last term is 0 at an end.

    Munos et al. 2016; Harutyunyan et al. 2016 for Q(λ); Precup et al. 2000 for tree backup.
    """
    if trace not in ("retrace", "q_lambda", "tree_backup", "importance_sampling"):
        raise ValueError(
            f"retrace: unknown trace {trace!r}; "
            "choose retrace, q_lambda, tree_backup or importance_sampling."
        )
    if trace in ("retrace", "importance_sampling") and log_ratios is None:
        raise ValueError(f"retrace: trace {trace!r} needs log_ratios; received None.")
    if trace == "tree_backup" and log_policy is None:
        raise ValueError("retrace: trace 'tree_backup' needs log_policy; received None.")
    shape = np.shape(rewards)
    rewards, q_values = _data(rewards, shape), _data(q_values, shape)
    next_values, terminated = _data(next_values, shape), _flags(terminated, shape)
    gamma, lambda_ = _coefficient(gamma, shape), _coefficient(lambda_, shape)
    # What is missing here is not read by this trace.
    log_ratios = _data(np.zeros(shape) if log_ratios is None else log_ratios, shape)
    log_policy = _data(np.zeros(shape) if log_policy is None else log_policy, shape)

    def c(i):
        if trace == "retrace":
            return lambda_[i] * _clip(_exp(log_ratios[i]), 1.0)
        if trace == "importance_sampling":
            return lambda_[i] * _exp(log_ratios[i])
        if trace == "tree_backup":
            return lambda_[i] * _exp(log_policy[i])
        return lambda_[i]

    returns = np.zeros(shape)
    g = 0.0
    for i, following in _backwards(shape, terminated, truncated, valid, time_axis):
        one_step = _one_step(i, rewards, next_values, terminated, gamma)
        if following is None:
            g = one_step
        else:
            g = one_step + gamma[i] * c(following) * (g - q_values[following])
        returns[i] = g
    return returns


def upgo(rewards, values, next_values, terminated, truncated, *, gamma, valid=None, time_axis=0):
    """UPGO advantages, and the returns behind them: follow the trajectory while it does well.

        G_t = r_t + γ_t G_{t+1}     where r_{t+1} + γ_{t+1} V(s'_{t+1}) ≥ V(s_{t+1})
        G_t = r_t + γ_t V(s'_t)     elsewhere, and at an end
        A_t = G_t − V(s_t)

    V(s') counts as 0 where terminated. Vinyals et al. 2019 (AlphaStar).
    """
    shape = np.shape(rewards)
    rewards, values = _data(rewards, shape), _data(values, shape)
    next_values, terminated = _data(next_values, shape), _flags(terminated, shape)
    gamma = _coefficient(gamma, shape)
    advantages, returns = np.zeros(shape), np.zeros(shape)
    g = 0.0
    for i, following in _backwards(shape, terminated, truncated, valid, time_axis):
        one_step = _one_step(i, rewards, next_values, terminated, gamma)
        if following is None:
            g = one_step
        elif _one_step(following, rewards, next_values, terminated, gamma) >= values[following]:
            g = rewards[i] + gamma[i] * g
        else:
            g = one_step
        advantages[i] = g - values[i]
        returns[i] = g
    return advantages, returns


def token_gae(rewards, values, mask, *, gamma, lambda_, gaps="skip", time_axis=0):
    """GAE over the masked-in tokens of sequences, and the returns it implies.

        δ_t = r_t + γ_t V_next − V_t            V_next = 0 beyond the end
        A_t = δ_t + γ_t λ_t A_next              A_next = 0 beyond the end

    With gaps="skip", next is the next masked-in token however far away: GAE on the compressed
    sequence. With gaps="reset", each run of masked-in tokens is a sequence of its own, ended by
    the gap. Masked-out tokens are never read and come back 0. Schulman et al. 2016, eq. 16.
    """
    if gaps not in ("skip", "reset"):
        raise ValueError(f"token_gae: unknown gaps {gaps!r}; choose skip or reset.")
    shape = np.shape(rewards)
    rewards, values, mask = _data(rewards, shape), _data(values, shape), _flags(mask, shape)
    gamma, lambda_ = _coefficient(gamma, shape), _coefficient(lambda_, shape)
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
    x = _data(x, shape)
    valid = np.ones(shape, dtype=bool) if valid is None else _flags(valid, shape)
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


def _backwards(shape, terminated, truncated, valid, time_axis):
    """Walk the valid rows of each column, last to first: the row, and the row that follows it.

    At an end the row that follows is None.
    """
    terminated, truncated = _flags(terminated, shape), _flags(truncated, shape)
    valid = np.ones(shape, dtype=bool) if valid is None else _flags(valid, shape)
    for _, rows in columns(shape, time_axis):
        for t in reversed(range(len(rows))):
            i = rows[t]
            if not valid[i]:
                continue
            if terminated[i] or truncated[i] or t == len(rows) - 1 or not valid[rows[t + 1]]:
                yield i, None
            else:
                yield i, rows[t + 1]


def _one_step(i, rewards, next_values, terminated, gamma):
    """r_t + γ_t V(s'_t), or r_t where terminated."""
    if terminated[i]:
        return rewards[i]
    return rewards[i] + gamma[i] * next_values[i]


def _exp(x):
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _clip(x, most):
    """min(most, x), except that a NaN x stays NaN."""
    if x > most:
        return most
    return x


def _leaky_clip(ratio, most, mix):
    if mix == 1.0:  # 0 · inf is NaN
        return _clip(ratio, most)
    return mix * _clip(ratio, most) + (1.0 - mix) * ratio


def _data(x, shape):
    if np.shape(x) != shape:
        raise ValueError(f"expected an array of shape {shape} like the rewards, got {np.shape(x)}.")
    return numbers(x, shape)


def _coefficient(x, shape):
    if np.ndim(x) not in (0, len(shape)):
        raise ValueError(
            f"gamma and lambda_ are numbers or have as many axes as rewards ({len(shape)}); "
            f"got shape {np.shape(x)}."
        )
    return numbers(x, shape)


def _flags(x, shape):
    if np.shape(x) != shape:
        raise ValueError(f"expected flags of shape {shape} like the rewards, got {np.shape(x)}.")
    return np.asarray(x).astype(bool)
