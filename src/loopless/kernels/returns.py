"""Return and advantage estimators, each a recipe for the one scan. Loop twins: `reference.returns`.

Every function takes arrays [T, ...] of NumPy, PyTorch or JAX (time on `time_axis`) and returns the
same kind, in the widest floating dtype of its inputs; float16 and bfloat16 accumulate in float32.
`terminated` and `truncated` are booleans (or numbers 0 and 1), and `next_values` is the value of
the true successor of each step, before any reset: a terminated step never reads it, a truncated
one bootstraps from it. If both are set, terminated wins. The last step is an end like a truncation.
`gamma` and `lambda_` are numbers or arrays with one entry or the full length along each axis. Steps
with `valid` false may hold anything, NaN included; they cut the recurrence, and come back 0.

Gradients flow to every input that requires one; detach the inputs, or use torch.no_grad or
jax.lax.stop_gradient, for targets.

To add an estimator: write its recipe here (`arrays.scan.recipe` says what that is), its loop in
`reference.returns`, and its entry in the table of `verify.contracts.returns`.
"""

import functools
from collections import namedtuple
from typing import Any

import numpy as np

from loopless.arrays import checks, outputs, scan
from loopless.arrays.dispatch import as_numpy_on_cpu, call_on_numpy, eager_torch, is_compiling
from loopless.arrays.library import compiled_once
from loopless.arrays.scan import numpy as numpy_scan
from loopless.arrays.scan.recipe import ESTIMATORS, Recipe
from loopless.kernels import windows


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

        δ_t = r_t + γ V(s'_t) − V(s_t)          V(s'_t) counts as 0 where terminated
        A_t = δ_t + γ λ A_{t+1}                 cut where terminated or truncated
        G_t = A_t + V(s_t)

    A truncated step still bootstraps from `next_values`. Returns (advantages, returns), and with
    `td_errors` also δ: (advantages, returns, td_errors). `out` is a tuple of that many arrays,
    which are written to and returned: NumPy arrays, or tensors where no gradient is recorded, of
    the shape and dtype of the results, which overlap with nothing else.

    Schulman et al. 2016, eq. 16. Loop twin: `reference.returns.gae`.
    """
    floats, flags = (rewards, values, next_values), (terminated, truncated)
    name, recipe = "gae", _GAE
    if td_errors is not False and checks.flag("gae", "td_errors", td_errors):
        name, recipe = "gae_td_errors", _GAE_TD_ERRORS
    return _estimate(name, recipe, floats, flags, (gamma, lambda_), valid, time_axis, out)


_GaeRow = namedtuple("_GaeRow", "rewards values next_values terminated truncated gamma lambda_")


def _gae_coefficients(where, row, last):
    delta = row.rewards + row.gamma * where(row.terminated, 0, row.next_values) - row.values
    return where(row.terminated | row.truncated, 0, row.gamma * row.lambda_), delta


def _gae_readout(where, row, last, x, x_next):
    return x, x + row.values


_GaeAdjointRow = namedtuple(
    "_GaeAdjointRow",
    "advantages returns terminated truncated gamma lambda_",
)


def _gae_adjoint(where, row, last):
    a = where(row.terminated | row.truncated, 0, row.gamma * row.lambda_)
    return a, row.advantages + row.returns


def _gae_gradients(where, row, last, y, y_next):
    return y, row.returns - y, where(row.terminated, 0, row.gamma * y)


_GAE = Recipe(
    _GaeRow,
    _gae_coefficients,
    _gae_readout,
    outputs=2,
    adjoint=Recipe(
        _GaeAdjointRow, _gae_adjoint, _gae_gradients, outputs=3, lagged=True, name="gae_adjoint"
    ),
    name="gae",
)


def _gae_readout_with_errors(where, row, last, x, x_next):
    bootstrap = where(row.terminated, 0, row.next_values)
    return x, x + row.values, row.rewards + row.gamma * bootstrap - row.values


_ErrorsAdjointRow = namedtuple(
    "_ErrorsAdjointRow",
    "advantages returns td_errors terminated truncated gamma lambda_",
)


def _errors_gradients(where, row, last, y, y_next):
    by_delta = y + row.td_errors
    return by_delta, row.returns - by_delta, where(row.terminated, 0, row.gamma * by_delta)


_GAE_TD_ERRORS = Recipe(
    _GaeRow,
    _gae_coefficients,
    _gae_readout_with_errors,
    outputs=3,
    adjoint=Recipe(
        _ErrorsAdjointRow,
        _gae_adjoint,
        _errors_gradients,
        outputs=3,
        lagged=True,
        name="gae_td_errors_adjoint",
    ),
    name="gae_td_errors",
)


def lambda_returns(
    rewards, next_values, terminated, truncated, *, gamma, lambda_, valid=None, time_axis=0
):
    """Return λ-returns, the TD(λ) targets.

        G_t = r_t + γ [(1 − λ) V(s'_t) + λ G_{t+1}]

    At an end G_t = r_t + γ V(s'_t), without the second term where terminated. With a per-step
    λ of 0 or 1 this is Watkins' Q(λ), and with max_a Q(s', a) for `next_values` Peng's.

    Sutton and Barto 2018, eq. 12.20. Loop twin: `reference.returns.lambda_returns`.
    """
    floats, flags, numbers = (rewards, next_values), (terminated, truncated), (gamma, lambda_)
    recipe = _LAMBDA_RETURNS
    return _estimate("lambda_returns", recipe, floats, flags, numbers, valid, time_axis)[0]


_LambdaRow = namedtuple("_LambdaRow", "rewards next_values terminated truncated gamma lambda_")


def _lambda_coefficients(where, row, last):
    a = where(row.terminated | row.truncated | last, 0, row.gamma * row.lambda_)
    # γ(1 − λ)V′ with λ = 0 at an end, written as (γ − a)V′
    return a, row.rewards + (row.gamma - a) * where(row.terminated, 0, row.next_values)


def _lambda_readout(where, row, last, x, x_next):
    return (x,)


_LambdaAdjointRow = namedtuple("_LambdaAdjointRow", "returns terminated truncated gamma lambda_")


def _lambda_adjoint(where, row, last):
    return where(row.terminated | row.truncated | last, 0, row.gamma * row.lambda_), row.returns


def _lambda_gradients(where, row, last, y, y_next):
    a = where(row.terminated | row.truncated | last, 0, row.gamma * row.lambda_)
    return y, where(row.terminated, 0, (row.gamma - a) * y)


_LAMBDA_RETURNS = Recipe(
    _LambdaRow,
    _lambda_coefficients,
    _lambda_readout,
    outputs=1,
    adjoint=Recipe(
        _LambdaAdjointRow,
        _lambda_adjoint,
        _lambda_gradients,
        outputs=2,
        lagged=True,
        name="lambda_returns_adjoint",
    ),
    name="lambda_returns",
)


def discounted_returns(
    rewards, next_values, terminated, truncated, *, gamma, valid=None, time_axis=0
):
    """Return discounted rewards to go, bootstrapped where an episode was cut off.

        G_t = r_t + γ G_{t+1},      G_t = r_t + γ V(s'_t) at an end, r_t where terminated

    `next_values` is read at truncated and last steps only; elsewhere it may hold anything.

    Sutton and Barto 2018, eq. 3.9. Loop twin: `reference.returns.discounted_returns`.
    """
    floats, flags = (rewards, next_values), (terminated, truncated)
    return _estimate("discounted_returns", _DISCOUNTED, floats, flags, (gamma,), valid, time_axis)[
        0
    ]


_DiscountedRow = namedtuple("_DiscountedRow", "rewards next_values terminated truncated gamma")


def _discounted_coefficients(where, row, last):
    end = row.terminated | row.truncated | last
    bootstrap = where(row.terminated, 0, where(end, row.next_values, 0))
    return where(end, 0, row.gamma), row.rewards + row.gamma * bootstrap


def _discounted_readout(where, row, last, x, x_next):
    return (x,)


_DISCOUNTED = Recipe(_DiscountedRow, _discounted_coefficients, _discounted_readout, outputs=1)


@as_numpy_on_cpu
def upgo(rewards, values, next_values, terminated, truncated, *, gamma, valid=None, time_axis=0):
    """Return upgoing returns: they follow the trajectory while it does better than expected.

        G_t = r_t + γ G_{t+1}       if r_{t+1} + γ V(s'_{t+1}) ≥ V(s_{t+1}), else
        G_t = r_t + γ V(s'_t)       as at an end, without the second term where terminated

    Returns (advantages, returns), the advantages being G − V. The comparison is a constant to
    gradients.

    Vinyals et al. 2019, methods. Loop twin: `reference.returns.upgo`.
    """
    inputs = check(
        "upgo",
        {"rewards": rewards, "values": values, "next_values": next_values},
        (terminated, truncated),
        {"gamma": gamma},
        valid,
        time_axis,
    )
    library, dtype, axis, floats, flags, (gamma,), valid = inputs
    where = library.xp.where
    r, v, v_next = floats if valid is None else (where(valid, x, 0) for x in floats)
    wins = r + gamma * where(flags[0], 0, v_next) >= v
    return scan.estimate(_UPGO, library, dtype, axis, floats, (*flags, wins), (gamma,), valid)


_UpgoRow = namedtuple(
    "_UpgoRow",
    "rewards values next_values terminated truncated wins gamma wins_ahead",
)


def _upgo_coefficients(where, row, last):
    end = row.terminated | row.truncated | last
    a = where(end, 0, where(row.wins_ahead, row.gamma, 0))
    unread = where(end, row.terminated, row.wins_ahead)
    return a, row.rewards + row.gamma * where(unread, 0, row.next_values)


def _upgo_readout(where, row, last, x, x_next):
    return x - row.values, x


_UPGO = Recipe(_UpgoRow, _upgo_coefficients, _upgo_readout, outputs=2, ahead=(5,))


@as_numpy_on_cpu
def n_step_returns(
    rewards, next_values, terminated, truncated, *, gamma, n, valid=None, time_axis=0
):
    """Return n-step returns: up to n rewards, then the value of the state that they led to.

        G_t = r_t + γ r_{t+1} + … + γ^{m−1} r_{t+m−1} + γ^m V(s'_{t+m−1})

    m is n, or less where an episode ends first: a window never crosses an end. The last term is
    absent where the window's last step terminated. Cost and memory are O(T), whatever n is.

    Sutton and Barto 2018, eq. 7.1. Loop twin: `reference.returns.n_step_returns`.
    """
    function = "n_step_returns"
    n = checks.integer(function, "n", n, low=1)
    library, dtype, axis, floats, flags, (gamma,), valid = check(
        function,
        {"rewards": rewards, "next_values": next_values},
        (terminated, truncated),
        {"gamma": gamma},
        valid,
        time_axis,
    )
    n_step = compiled_once(library, windows.n_step, (0, 1, 2, 8))
    return n_step(library, dtype, axis, *floats, *flags, gamma, n, valid)


def _estimate(function, recipe, floats, flags, numbers, valid, time_axis, out=None):
    arguments = floats, flags, numbers, valid, time_axis, out
    fields = *floats, *flags, *numbers, valid
    outs = None
    if floats[0].__class__ is np.ndarray:
        outs = numpy_scan.estimate_plain(recipe, *arguments)
    elif is_compiling() and out is None:
        from loopless.arrays.scan import torch_programs

        return torch_programs.in_graph(function, time_axis, *fields)
    elif eager_torch(floats[0]) is not None:
        outs = _torch_scan().estimate_plain(recipe, scan.compose, *arguments)
    if outs is not None:
        return outs
    if out is not None:
        return outputs.write("gae", functools.partial(ESTIMATORS[function], time_axis), fields, out)
    return call_on_numpy(functools.partial(ESTIMATORS[function], time_axis), fields)


@functools.cache
def _torch_scan() -> Any:
    from loopless.arrays.scan import torch as torch_scan

    return torch_scan


def _checked(function, recipe, time_axis, *fields):
    """Return the recipe's outputs; `fields` are what its row names, and `valid`."""
    names = recipe.row._fields
    count = names.index("terminated")
    floats, flags, numbers = fields[:count], fields[count : count + 2], fields[count + 2 : -1]
    floats = dict(zip(names, floats, strict=False))
    numbers = dict(zip(names[count + 2 :], numbers, strict=False))
    return scan.estimate(recipe, *check(function, floats, flags, numbers, fields[-1], time_axis))


ESTIMATORS["gae"] = functools.partial(_checked, "gae", _GAE)
ESTIMATORS["gae_td_errors"] = functools.partial(_checked, "gae", _GAE_TD_ERRORS)
ESTIMATORS["lambda_returns"] = functools.partial(_checked, "lambda_returns", _LAMBDA_RETURNS)
ESTIMATORS["discounted_returns"] = functools.partial(_checked, "discounted_returns", _DISCOUNTED)


def check(function, floats: dict[str, Any], flags, numbers: dict[str, Any], valid, time_axis):
    """Return the arguments of `scan.estimate`: library, dtype, axis, floats, flags, numbers, valid.

    `floats` and `numbers` come by name, `flags` are `terminated` and `truncated`.
    """
    name, first = next(iter(floats.items()))
    arguments = checks.Arguments(function, name, first)
    dtype = arguments.floats(floats)
    axis = arguments.time_axis(time_axis)
    flags = arguments.flag("terminated", flags[0]), arguments.flag("truncated", flags[1])
    if valid is not None:
        valid = arguments.flag("valid", valid)
    checked = tuple([arguments.number(name, x) for name, x in numbers.items()])
    return arguments.library, dtype, axis, tuple(floats.values()), flags, checked, valid
