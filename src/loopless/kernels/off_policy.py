"""Off-policy return estimators, by the scan of `arrays.scan`. Loop twins: `reference.off_policy`.

Arguments are those of `kernels.returns`; ratios π(a_t|s_t)/μ(a_t|s_t) come as logarithms.
"""

from collections import namedtuple

from loopless.arrays import checks, scan
from loopless.arrays.dispatch import as_numpy_on_cpu
from loopless.arrays.scan.recipe import Recipe
from loopless.kernels.returns import check

# Where logarithms are cut off, by the dtype's bytes: exp stays finite, so that 0·∞ cannot arise
# where a clip follows
_LARGEST_LOG = {4: 88.0, 8: 709.0}


@as_numpy_on_cpu
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
    """Return V-trace targets and policy-gradient advantages.

        δ_t = r_t + γ V(s'_t) − V(s_t)
        v_t − V(s_t) = ρ̄_t δ_t + γ c̄_t (v_{t+1} − V(s_{t+1}))      cut at an end
        A_t = ρ̄ᵖᵍ_t (r_t + γ v_{t+1} − V(s_t))                     V(s'_t) for v_{t+1} at an end

    ρ̄ = min(clip_rho, ρ), c̄ = λ min(clip_c, ρ). With mix < 1 each clipped ratio leaks: it becomes
    mix·min(clip, ρ) + (1 − mix)·ρ. A clip may be math.inf. Returns (advantages, returns), the
    returns being v_t. With all ratios 1 this is GAE.

    Espeholt et al. 2018, §4.1; Zahavy et al. 2020 for the leak. Loop twin:
    `reference.off_policy.vtrace`.
    """
    function = "vtrace"
    arrays = {"log_ratios": log_ratios, "rewards": rewards, "values": values}
    library, dtype, axis, floats, flags, numbers, valid = check(
        function,
        arrays | {"next_values": next_values},
        (terminated, truncated),
        {"gamma": gamma, "lambda_": lambda_, "mix": mix},
        valid,
        time_axis,
    )
    gamma, lambda_, mix = numbers
    arguments = checks.Arguments(function, "rewards", rewards)
    clips = tuple(
        arguments.number(name, x, 0.0, float("inf"))
        for name, x in (("clip_rho", clip_rho), ("clip_c", clip_c), ("clip_pg_rho", clip_pg_rho))
    )
    floats = (_ratios(library, dtype, floats[0], valid), *floats[1:])
    numbers = (gamma, lambda_, 1 - mix, *clips)
    return scan.estimate(_VTRACE, library, dtype, axis, floats, flags, numbers, valid)


_VtraceRow = namedtuple(
    "_VtraceRow",
    "ratios rewards values next_values terminated truncated gamma "
    "lambda_ leak clip_rho clip_c clip_pg_rho values_ahead",
)


def _vtrace_coefficients(where, row, last):
    # min(clip, ρ), plus the leaked share of what the clip cut off: nothing if it is infinite
    rho = where(row.ratios > row.clip_rho, row.clip_rho, row.ratios)
    rho = rho + row.leak * where(row.ratios > row.clip_rho, row.ratios - row.clip_rho, 0)
    c = where(row.ratios > row.clip_c, row.clip_c, row.ratios)
    c = c + row.leak * where(row.ratios > row.clip_c, row.ratios - row.clip_c, 0)
    delta = row.rewards + row.gamma * where(row.terminated, 0, row.next_values) - row.values
    return where(row.terminated | row.truncated, 0, row.gamma * row.lambda_ * c), rho * delta


def _vtrace_readout(where, row, last, x, x_next):
    rho = where(row.ratios > row.clip_pg_rho, row.clip_pg_rho, row.ratios)
    rho = rho + row.leak * where(row.ratios > row.clip_pg_rho, row.ratios - row.clip_pg_rho, 0)
    successor = where(row.truncated | last, row.next_values, x_next + row.values_ahead)
    target = row.rewards + row.gamma * where(row.terminated, 0, successor)
    return rho * (target - row.values), x + row.values


_VTRACE = Recipe(
    _VtraceRow, _vtrace_coefficients, _vtrace_readout, outputs=2, ahead=(2,), reads_next=True
)

TRACES = ("retrace", "q_lambda", "tree_backup", "importance_sampling")


@as_numpy_on_cpu
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
    """Return off-policy returns of action values, by one of four traces.

        G_t = r_t + γ E_π Q(s'_t, ·) + γ c_{t+1} (G_{t+1} − Q(s_{t+1}, a_{t+1}))    cut at ends

        trace                   c_t                       needs
        "retrace"               λ min(1, ρ_t)             log_ratios, log π/μ of the action taken
        "importance_sampling"   λ ρ_t                     log_ratios
        "tree_backup"           λ π(a_t|s_t)              log_policy, log π of the action taken
        "q_lambda"              λ                         nothing

    `q_values` is Q(s_t, a_t); `next_values` is E_π Q(s'_t, ·) of the true successor.

    Munos et al. 2016, eq. 3. Loop twin: `reference.off_policy.retrace`.
    """
    function = "retrace"
    checks.choice(function, "trace", trace, TRACES)
    logs = {"log_ratios": log_ratios, "log_policy": log_policy}
    needed = {"q_lambda": None, "tree_backup": "log_policy"}.get(trace, "log_ratios")
    if needed is not None and logs[needed] is None:
        raise ValueError(f"{function}: trace={trace!r} needs {needed}, and it was not given.")
    arrays = {"rewards": rewards, "q_values": q_values, "next_values": next_values}
    if needed is not None:
        arrays[needed] = logs[needed]
    library, dtype, axis, floats, flags, numbers, valid = check(
        function,
        arrays,
        (terminated, truncated),
        {"gamma": gamma, "lambda_": lambda_},
        valid,
        time_axis,
    )
    gamma, lambda_ = numbers
    xp = library.xp
    if needed is None:
        traces = library.cast(xp.ones_like(rewards), library.wide(dtype))
    else:
        traces = _ratios(library, dtype, floats[3], valid)
    if trace == "retrace":
        traces = library.at_most(traces, 1.0)
    floats = (*floats[:3], traces * lambda_)
    return scan.estimate(_RETRACE, library, dtype, axis, floats, flags, (gamma,), valid)[0]


_RetraceRow = namedtuple(
    "_RetraceRow",
    "rewards q_values next_values traces terminated truncated gamma q_ahead traces_ahead",
)


def _retrace_coefficients(where, row, last):
    end = row.terminated | row.truncated | last
    a = where(end, 0, row.gamma * row.traces_ahead)
    target = row.rewards + row.gamma * where(row.terminated, 0, row.next_values)
    return a, target - a * where(end, 0, row.q_ahead)


def _retrace_readout(where, row, last, x, x_next):
    return (x,)


_RETRACE = Recipe(_RetraceRow, _retrace_coefficients, _retrace_readout, outputs=1, ahead=(1, 3))


def _ratios(library, dtype, logs, valid):
    """Return exp(logs), finite, and 1 where not valid."""
    xp = library.xp
    logs = library.cast(logs, library.wide(dtype))
    if valid is not None:
        logs = xp.where(valid, logs, 0)
    return xp.exp(library.at_most(logs, _LARGEST_LOG[logs.dtype.itemsize]))
