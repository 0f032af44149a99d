"""Off-policy estimators, one step at a time. Conventions are those of `reference.returns`."""

import math

import numpy as np

from loopless.reference.scan import backwards, bootstrapped, coefficient, data, flags


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
    """Return V-trace policy-gradient advantages, and the value targets v_t, in this order.

        ρ_t = exp(log_ratios_t)
        w(clip) = mix min(clip, ρ_t) + (1 − mix) ρ_t
        v_t − V_t = w(clip_rho) δ_t + γ_t λ_t w(clip_c) (v_{t+1} − V_{t+1})      δ_t as in `gae`
        A_t = w(clip_pg_rho) (r_t + γ_t v_{t+1} − V_t)

    At an end the second term of v_t − V_t is 0 and A_t has V(s'_t), or 0 where terminated, in
    place of v_{t+1}. `mix` below 1 is leaky V-trace.

    Espeholt et al. 2018, eq. 1 and remark 1; Zahavy et al. 2020 for the leak.
    """
    shape = np.shape(rewards)
    log_ratios, rewards = data(log_ratios, shape), data(rewards, shape)
    values, next_values = data(values, shape), data(next_values, shape)
    terminated = flags(terminated, shape)
    gamma, lambda_ = coefficient(gamma, shape), coefficient(lambda_, shape)
    advantages, returns = np.zeros(shape), np.zeros(shape)
    correction = 0.0  # v_t − V_t
    for i, following in backwards(shape, terminated, truncated, valid, time_axis):
        ratio = _exp(log_ratios[i])
        rho = _leaky_clip(ratio, clip_rho, mix)
        c = lambda_[i] * _leaky_clip(ratio, clip_c, mix)
        pg_rho = _leaky_clip(ratio, clip_pg_rho, mix)
        one_step = bootstrapped(i, rewards, next_values, terminated, gamma)
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
    """Return off-policy returns of action values: Retrace and its family.

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
    rewards, q_values = data(rewards, shape), data(q_values, shape)
    next_values, terminated = data(next_values, shape), flags(terminated, shape)
    gamma, lambda_ = coefficient(gamma, shape), coefficient(lambda_, shape)
    # What is missing here is not read by this trace.
    log_ratios = data(np.zeros(shape) if log_ratios is None else log_ratios, shape)
    log_policy = data(np.zeros(shape) if log_policy is None else log_policy, shape)

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
    for i, following in backwards(shape, terminated, truncated, valid, time_axis):
        one_step = bootstrapped(i, rewards, next_values, terminated, gamma)
        if following is None:
            g = one_step
        else:
            g = one_step + gamma[i] * c(following) * (g - q_values[following])
        returns[i] = g
    return returns


def _exp(x):
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _clip(x, most):
    """Return min(most, x), except that a NaN x stays NaN."""
    if x > most:
        return most
    return x


def _leaky_clip(ratio, most, mix):
    if mix == 1.0:  # 0 · inf is NaN
        return _clip(ratio, most)
    return mix * _clip(ratio, most) + (1.0 - mix) * ratio
