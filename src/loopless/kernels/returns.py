"""Return and advantage estimators, each a recipe for the one scan. Loop twins: `reference.returns`.

Every function takes arrays [T, ...] of NumPy, PyTorch or JAX (time on `time_axis`) and gives back
the same kind, in the widest floating dtype of its inputs; float16 and bfloat16 accumulate in
float32. `terminated` and `truncated` are booleans (or integers 0 and 1), and `next_values` is the
value of the true successor of each row, before any reset: a terminated row never reads it, a
truncated one bootstraps from it. If both are set, terminated wins. The last row is an end like a
truncation. `gamma` and `lambda_` are numbers or arrays with one entry or the full length along
each axis. Rows with `valid` false may hold anything, NaN included; they cut, and come back 0.

Gradients flow to whatever input asks for them; detach the inputs, or use torch.no_grad or
jax.lax.stop_gradient, for targets. A recipe's `where` picks: nothing here masks by multiplying.
"""

from loopless.arrays import checks, scan
from loopless.arrays.dispatch import as_numpy_on_cpu
from loopless.arrays.scan import numpy as numpy_fused
from loopless.arrays.scan.recipe import Recipe
from loopless.kernels import windows


@as_numpy_on_cpu
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
):
    """Generalised advantage estimates, and the returns they imply.

        δ_t = r_t + γ V(s'_t) − V(s_t)          V(s'_t) counts as 0 where terminated
        A_t = δ_t + γ λ A_{t+1}                 cut where terminated or truncated
        G_t = A_t + V(s_t)

    A truncated step still bootstraps from `next_values`. Returns (advantages, returns).

    Schulman et al. 2016, eq. 16. Loop twin: `reference.returns.gae`.
    """
    return _estimate(
        "gae",
        _GAE,
        ("rewards", "values", "next_values"),
        (rewards, values, next_values),
        (terminated, truncated),
        {"gamma": gamma, "lambda_": lambda_},
        valid,
        time_axis,
    )


def _gae_coefficients(
    where, last, rewards, values, next_values, terminated, truncated, gamma, lambda_
):
    delta = rewards + gamma * where(terminated, 0, next_values) - values
    return where(terminated | truncated, 0, gamma * lambda_), delta


def _gae_readout(
    where, last, x, x_next, rewards, values, next_values, terminated, truncated, gamma, lambda_
):
    return x, x + values


def _gae_adjoint(where, last, advantages, returns, terminated, truncated, gamma, lambda_):
    return where(terminated | truncated, 0, gamma * lambda_), advantages + returns


def _gae_gradients(
    where, last, y, y_next, advantages, returns, terminated, truncated, gamma, lambda_
):
    return y, returns - y, where(terminated, 0, gamma * y)


_GAE = Recipe(
    _gae_coefficients,
    _gae_readout,
    outputs=2,
    adjoint=Recipe(_gae_adjoint, _gae_gradients, outputs=3, lagged=True),
)


@as_numpy_on_cpu
def lambda_returns(
    rewards,
    next_values,
    terminated,
    truncated,
    *,
    gamma,
    lambda_,
    valid=None,
    time_axis=0,
):
    """λ-returns, the TD(λ) targets.

        G_t = r_t + γ [(1 − λ) V(s'_t) + λ G_{t+1}]

    At an end G_t = r_t + γ V(s'_t), without the second term where terminated. With a per-step
    λ of 0 or 1 this is Watkins' Q(λ), and with max_a Q(s', a) for `next_values` Peng's.

    Sutton and Barto 2018, eq. 12.20. Loop twin: `reference.returns.lambda_returns`.
    """
    (returns,) = _estimate(
        "lambda_returns",
        _LAMBDA_RETURNS,
        ("rewards", "next_values"),
        (rewards, next_values),
        (terminated, truncated),
        {"gamma": gamma, "lambda_": lambda_},
        valid,
        time_axis,
    )
    return returns


def _lambda_coefficients(where, last, rewards, next_values, terminated, truncated, gamma, lambda_):
    a = where(terminated | truncated | last, 0, gamma * lambda_)
    # γ(1 − λ)V′ with λ = 0 at an end, written as (γ − a)V′
    return a, rewards + (gamma - a) * where(terminated, 0, next_values)


def _lambda_readout(
    where, last, x, x_next, rewards, next_values, terminated, truncated, gamma, lambda_
):
    return (x,)


def _lambda_adjoint(where, last, returns, terminated, truncated, gamma, lambda_):
    return where(terminated | truncated | last, 0, gamma * lambda_), returns


def _lambda_gradients(where, last, y, y_next, returns, terminated, truncated, gamma, lambda_):
    a = where(terminated | truncated | last, 0, gamma * lambda_)
    return y, where(terminated, 0, (gamma - a) * y)


_LAMBDA_RETURNS = Recipe(
    _lambda_coefficients,
    _lambda_readout,
    outputs=1,
    adjoint=Recipe(_lambda_adjoint, _lambda_gradients, outputs=2, lagged=True),
)


@as_numpy_on_cpu
def discounted_returns(
    rewards,
    next_values,
    terminated,
    truncated,
    *,
    gamma,
    valid=None,
    time_axis=0,
):
    """Discounted rewards to go, bootstrapped where an episode was cut off.

        G_t = r_t + γ G_{t+1},      G_t = r_t + γ V(s'_t) at an end, r_t where terminated

    `next_values` is read at truncated and last rows only; elsewhere it may hold anything.

    Sutton and Barto 2018, eq. 3.9. Loop twin: `reference.returns.discounted_returns`.
    """
    (returns,) = _estimate(
        "discounted_returns",
        _DISCOUNTED,
        ("rewards", "next_values"),
        (rewards, next_values),
        (terminated, truncated),
        {"gamma": gamma},
        valid,
        time_axis,
    )
    return returns


def _discounted_coefficients(where, last, rewards, next_values, terminated, truncated, gamma):
    end = terminated | truncated | last
    bootstrap = where(terminated, 0, where(end, next_values, 0))
    return where(end, 0, gamma), rewards + gamma * bootstrap


def _discounted_readout(where, last, x, x_next, rewards, next_values, terminated, truncated, gamma):
    return (x,)


_DISCOUNTED = Recipe(_discounted_coefficients, _discounted_readout, outputs=1)


@as_numpy_on_cpu
def upgo(
    rewards,
    values,
    next_values,
    terminated,
    truncated,
    *,
    gamma,
    valid=None,
    time_axis=0,
):
    """Upgoing policy-update returns: follow the trajectory while it does better than expected.

        G_t = r_t + γ G_{t+1}       if r_{t+1} + γ V(s'_{t+1}) ≥ V(s_{t+1}), else
        G_t = r_t + γ V(s'_t)       as at an end, without the second term where terminated

    Returns (advantages, returns), the advantages being G − V. The comparison is a constant to
    gradients.

    Vinyals et al. 2019, methods. Loop twin: `reference.returns.upgo`.
    """
    inputs = check(
        "upgo",
        ("rewards", "values", "next_values"),
        (rewards, values, next_values),
        (terminated, truncated),
        {"gamma": gamma},
        valid,
        time_axis,
    )
    library, dtype, axis, floats, flags, (gamma,), valid = inputs
    r, v, v_next = floats if valid is None else (_emptied(library, x, valid) for x in floats)
    wins = r + gamma * library.xp.where(flags[0], 0, v_next) >= v
    return scan.estimate(_UPGO, library, dtype, axis, floats, (*flags, wins), (gamma,), valid)


def _upgo_coefficients(
    where, last, rewards, values, next_values, terminated, truncated, wins, gamma, wins_ahead
):
    end = terminated | truncated | last
    a = where(end, 0, where(wins_ahead, gamma, 0))
    unread = where(end, terminated, wins_ahead)
    return a, rewards + gamma * where(unread, 0, next_values)


def _upgo_readout(
    where, last, x, x_next, rewards, values, next_values, terminated, truncated, wins, gamma,
    wins_ahead,
):  # fmt: skip
    return x - values, x


_UPGO = Recipe(_upgo_coefficients, _upgo_readout, outputs=2, ahead=(5,))


@as_numpy_on_cpu
def n_step_returns(
    rewards,
    next_values,
    terminated,
    truncated,
    *,
    gamma,
    n,
    valid=None,
    time_axis=0,
):
    """n-step returns: up to n rewards, then the value of where they led.

        G_t = r_t + γ r_{t+1} + … + γ^{m−1} r_{t+m−1} + γ^m V(s'_{t+m−1})

    m is n, or less where an episode ends first: a window never crosses an end. The last term is
    absent where the window's last step terminated. Cost and memory are O(T), whatever n is.

    Sutton and Barto 2018, eq. 7.1. Loop twin: `reference.returns.n_step_returns`.
    """
    function = "n_step_returns"
    n = checks.integer(function, "n", n, low=1)
    library, dtype, axis, floats, flags, (gamma,), valid = check(
        function,
        ("rewards", "next_values"),
        (rewards, next_values),
        (terminated, truncated),
        {"gamma": gamma},
        valid,
        time_axis,
    )
    n_step = scan.once(library, windows.n_step, (0, 1, 2, 8))
    return n_step(library, dtype, axis, *floats, *flags, gamma, n, valid)


@as_numpy_on_cpu
def token_gae(rewards, values, mask, *, gamma, lambda_, gaps="skip", time_axis=0):
    """GAE over the tokens that the policy wrote, in rows that hold other tokens too.

    With gaps="skip" the tokens where `mask` is false (a prompt, a tool's answer, padding) are
    passed over: the result is that of plain GAE on the remaining tokens put side by side. With
    gaps="reset" each run of masked-in tokens is an episode of its own, as in packed rows. Beyond
    the last token the value is 0. Masked-out tokens may hold anything and come back 0. Language
    models' [B, T] arrays want time_axis=1. Returns (advantages, returns).

    Schulman et al. 2016, eq. 16. Loop twin: `reference.returns.token_gae`.
    """
    function = "token_gae"
    checks.choice(function, "gaps", gaps, ("skip", "reset"))
    library, dtype = checks.floats(function, ("rewards", "values"), (rewards, values))
    axis = checks.time_axis_of(function, time_axis, rewards.shape)
    mask = checks.flag(function, "mask", mask, library, rewards)
    gamma = checks.number(function, "gamma", gamma, library, rewards)
    lambda_ = checks.number(function, "lambda_", lambda_, library, rewards)
    numbers = (gamma, lambda_)
    if gaps == "reset":
        return scan.estimate(
            _TOKEN_RESET, library, dtype, axis, (rewards, values), (), numbers, mask
        )
    wide = library.wide(dtype)
    (following,) = scan.estimate(_FOLLOWING, library, wide, axis, (values,), (mask,), (1.0,))
    return scan.estimate(
        _TOKEN_SKIP, library, dtype, axis, (rewards, values, following), (mask,), numbers
    )


def _token_reset_coefficients(where, last, rewards, values, gamma, lambda_, values_ahead):
    delta = rewards + gamma * where(last, 0, values_ahead) - values
    return where(last, 0, gamma * lambda_), delta


def _token_reset_readout(where, last, x, x_next, rewards, values, gamma, lambda_, values_ahead):
    return x, x + values


_TOKEN_RESET = Recipe(_token_reset_coefficients, _token_reset_readout, outputs=2, ahead=(1,))


def _following_coefficients(where, last, values, mask, one):
    return where(mask, 0, one), where(mask, values, 0)


def _following_readout(where, last, x, x_next, values, mask, one):
    return (where(last, 0, x_next),)


_FOLLOWING = Recipe(_following_coefficients, _following_readout, outputs=1, reads_next=True)


def _token_skip_coefficients(where, last, rewards, values, following, mask, gamma, lambda_):
    delta = where(mask, rewards, 0) + gamma * following - where(mask, values, 0)
    return where(mask, gamma * lambda_, 1), where(mask, delta, 0)


def _token_skip_readout(where, last, x, x_next, rewards, values, following, mask, gamma, lambda_):
    return where(mask, x, 0), where(mask, x + values, 0)


_TOKEN_SKIP = Recipe(_token_skip_coefficients, _token_skip_readout, outputs=2)


def _estimate(function, recipe, names, floats, flags, numbers, valid, time_axis):
    if valid is None and time_axis == 0:
        outs = numpy_fused.plain(recipe, floats, flags, numbers.values())
        if outs is not None:
            return outs
    return scan.estimate(recipe, *check(function, names, floats, flags, numbers, valid, time_axis))


def check(function, names, floats, flags, numbers, valid, time_axis):
    """What `scan.estimate` wants, from what a caller gave."""
    library, dtype = checks.floats(function, names, floats)
    like = floats[0]
    axis = checks.time_axis_of(function, time_axis, like.shape, names[0])
    terminated, truncated = flags
    terminated = checks.flag(function, "terminated", terminated, library, like, names[0])
    truncated = checks.flag(function, "truncated", truncated, library, like, names[0])
    if valid is not None:
        valid = checks.flag(function, "valid", valid, library, like, names[0])
    numbers = tuple(
        [checks.number(function, name, x, library, like) for name, x in numbers.items()]
    )
    return library, dtype, axis, floats, (terminated, truncated), numbers, valid


def _emptied(library, x, valid):
    return library.xp.where(valid, x, 0)
