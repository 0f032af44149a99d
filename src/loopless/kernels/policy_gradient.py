"""Policy-gradient losses: PPO's clipped surrogate, and the plain one of A2C.

Both functions take arrays of NumPy, PyTorch or JAX, all of one shape, a row for each action that
was taken, and give back scalars of the same kind; half precision is computed in float32.

A gradient reaches `log_probs`, `values` and `entropies`. Everything else is a constant: the old
log-probabilities and values, the advantages, the returns, and the numbers, which may be 0-d arrays
(traced ones too, so that a schedule compiles nothing anew).

A formula here takes numbers as well as whole arrays: the compiled kernel of `numba_surrogate` is
made of the same functions. Loop twins: `reference.policy_gradient`. Tests:
`tests/kernels/test_policy_gradient_*.py`.
"""

import functools
import math
from collections.abc import Callable
from itertools import repeat
from operator import truediv
from typing import Any, NamedTuple

import numpy as np

from loopless.arrays import dispatch as tensors
from loopless.arrays import scan
from loopless.arrays.actions import constant
from loopless.arrays.library import NUMBER, NUMPY, Library
from loopless.arrays.scan.numpy import flat
from loopless.kernels import policy_gradient_arguments as arguments
from loopless.kernels.policy_gradient_arguments import Numbers, Rows

_BOOL = np.dtype(np.bool_)
# What stands for arrays that are not given.
_NO_FLAGS = np.empty(0, _BOOL)
_NO_ROWS = {np.dtype(np.float32): np.empty(0, np.float32), np.dtype(np.float64): np.empty(0)}


class PPOParts(NamedTuple):
    """What `ppo_loss` is made of, and how far the policy has moved: scalars without gradients."""

    policy_loss: Any
    value_loss: Any
    entropy: Any
    approximate_kl: Any
    clip_fraction: Any


class PolicyGradientParts(NamedTuple):
    """What `policy_gradient_loss` is made of: scalars without gradients."""

    policy_loss: Any
    value_loss: Any
    entropy: Any


def ppo_loss(
    log_probs,
    old_log_probs,
    advantages,
    values,
    returns,
    entropies,
    *,
    clip=0.2,
    value_coefficient=0.5,
    entropy_coefficient=0.0,
    value_clip=None,
    old_values=None,
    valid=None,
) -> tuple[Any, PPOParts]:
    """PPO's loss: clipped surrogate, value loss and entropy, as means over all valid rows.

        ρ = exp(log π(a|s) − log π_old(a|s))
        policy_loss = −mean min(ρ A, clip(ρ, 1−ε, 1+ε) A)
        value_loss  = ½ mean (V − G)², or with value_clip
                      ½ mean max((V − G)², (V_old + clip(V − V_old, −c, c) − G)²)
        loss = policy_loss + value_coefficient · value_loss − entropy_coefficient · mean H

    All arrays have one shape [...], and the loss is a scalar. ε is `clip` and c is `value_clip`,
    which asks for `old_values`; either may be infinite. Normalise the advantages beforehand if
    they are to be (`normalize`).

    approximate_kl is mean(ρ − 1 − log ρ), to full precision where ρ is near 1 too; clip_fraction
    is the share of rows with |ρ − 1| > ε. None of the parts has a gradient.

    Where the two sides of the minimum or the maximum are equal, as for ρ = 1 ± ε, the gradient is
    the unclipped one's. A ratio too large for its dtype is clipped or counts as infinite, and
    times an advantage of 0 it is 0. Rows with `valid` false hold anything, NaN included, and have
    a gradient of exactly 0; without a valid row all is 0, the gradients too. In eager PyTorch a
    second derivative is an error; transforms of either library take it.

    Returns (loss, PPOParts), in the widest dtype of the arrays.

    Schulman et al. 2017, eq. 7 and 9. Loop twin: `reference.policy_gradient.ppo_loss`.
    """
    old_values = None if value_clip is None else old_values
    loss, *parts = _losses(
        "ppo_loss",
        Rows(log_probs, old_log_probs, advantages, values, returns, entropies, old_values, valid),
        Numbers(clip, value_coefficient, entropy_coefficient, value_clip),
    )
    return loss, PPOParts(*parts)


def policy_gradient_loss(
    log_probs,
    advantages,
    values,
    returns,
    entropies,
    *,
    value_coefficient=0.5,
    entropy_coefficient=0.0,
    valid=None,
) -> tuple[Any, PolicyGradientParts]:
    """The loss of A2C and its kin: one step by the plain policy gradient.

        policy_loss = −mean A log π(a|s)
        value_loss  = ½ mean (V − G)²
        loss = policy_loss + value_coefficient · value_loss − entropy_coefficient · mean H

    Shapes, gradients, `valid` and dtypes as in `ppo_loss`, whose gradient at ρ = 1 is this one's.

    Returns (loss, PolicyGradientParts).

    Mnih et al. 2016. Loop twin: `reference.policy_gradient.policy_gradient_loss`.
    """
    loss, *parts = _losses(
        "policy_gradient_loss",
        Rows(log_probs, None, advantages, values, returns, entropies, None, valid),
        Numbers(None, value_coefficient, entropy_coefficient, None),
    )
    return loss, PolicyGradientParts(*parts)


def _cut(where, change, pushes, clip):
    """Whether the clipped surrogate counts: ρ − 1 is past ε, the way that it is pushed by A."""
    return where(pushes > 0, change < -clip, change > clip)


def _bounded(limit, away, old_errors, value_clip):
    """The error of a value that stays within `value_clip` of the old one."""
    return old_errors + limit(away, -value_clip, value_clip)


def _is_plain(errors, bounded, away, value_clip):
    """Whether the value's own error counts; not if a comparison meets NaN, which then shows."""
    return (abs(away) <= value_clip) | (abs(bounded) <= abs(errors))


def _losses(function: str, rows: Rows, numbers: Numbers) -> tuple[Any, ...]:
    """The loss with its gradients, then the parts."""
    torch = tensors.eager(rows.log_probs)
    if torch is None:
        return _scalars(function, False, rows, numbers)[0]
    inputs = rows.log_probs, rows.values, rows.entropies
    records = torch.is_grad_enabled() and any(map(_requires_grad, inputs))
    arrays = tensors.arrays(torch, rows + numbers)
    if arrays is None:
        with torch.no_grad():
            scalars, gradients = _scalars(function, records, rows, numbers)
    else:
        rows, numbers = Rows(*arrays[: len(rows)]), Numbers(*arrays[len(rows) :])
        scalars, gradients = _scalars(function, records, rows, numbers)
        scalars = tuple(map(torch.from_numpy, scalars))
        gradients = tuple(map(torch.from_numpy, gradients))
    if not records:
        return scalars
    return _attached()(scalars[0], gradients, inputs), *scalars[1:]


def _requires_grad(x) -> bool:
    return getattr(x, "requires_grad", False)  # what is no tensor is refused later


@functools.cache
def _attached() -> Callable:
    from loopless.arrays import torch_losses

    return torch_losses.attached


def _scalars(function, derivatives: bool, rows: Rows, numbers: Numbers):
    """Loss and parts; and if asked for the derivatives of the loss, else ()."""
    if arguments.plain(function, rows, numbers):
        return _numpy_scalars(rows.log_probs.dtype, derivatives, rows, numbers)
    library, dtype, rows, numbers = arguments.of_loss(function, rows, numbers)
    if library is NUMPY:
        return _numpy_scalars(dtype, derivatives, rows, numbers)
    composed = scan.once(library, _composed_scalars, (0, 1, 2))
    return composed(library, dtype, derivatives, rows, numbers)


def _numpy_scalars(dtype, derivatives: bool, rows: Rows, numbers: Numbers):
    wide = NUMPY.wide(dtype)
    most, none = arguments.MOST[wide], _NO_ROWS[wide]
    old_log_probs, old_values, valid = rows.old_log_probs, rows.old_values, rows.valid
    clip, value_coefficient, entropy_coefficient, value_clip = numbers
    scalars = np.empty(6, wide)
    gradients = np.empty((3, *rows.values.shape), wide) if derivatives else none
    _kernel()(
        flat(rows.log_probs, wide),
        none if old_log_probs is None else flat(old_log_probs, wide),
        flat(rows.advantages, wide),
        flat(rows.values, wide),
        flat(rows.returns, wide),
        flat(rows.entropies, wide),
        none if old_values is None else flat(old_values, wide),
        _NO_FLAGS if valid is None else flat(valid, _BOOL),
        0.0 if clip is None else min(float(clip), most),
        float(value_coefficient),
        float(entropy_coefficient),
        0.0 if value_clip is None else min(float(value_clip), most),
        scalars,
        gradients.reshape(3, -1),
    )
    if wide != dtype:
        scalars = scalars.astype(dtype)
    found = scalars[0, ...], scalars[1, ...], scalars[2, ...], scalars[3, ...]  # 0-d arrays
    if old_log_probs is not None:
        found = *found, scalars[4, ...], scalars[5, ...]
    if not derivatives:
        return found, ()
    return found, (gradients[0, ...], gradients[1, ...], gradients[2, ...])


@functools.cache
def _kernel() -> Callable:
    from loopless.compiled import policy_gradient as numba_surrogate

    return numba_surrogate.losses(_cut, _bounded, _is_plain)


def _composed_scalars(library: Library, dtype, derivatives: bool, rows: Rows, numbers: Numbers):
    wide, valid = library.wide(dtype), rows.valid

    def fixed(x):
        return library.cast(constant(library, x), wide)

    def number(x):  # as it is if a bare one: PyTorch then makes no tensor of it
        return x if isinstance(x, NUMBER) else fixed(x)

    def kept(x):  # padding is emptied before any product: 0·NaN is NaN, forwards and backwards
        return x if valid is None else library.xp.where(valid, x, 0)

    if valid is None:
        count = math.prod(rows.values.shape) or 1
    else:
        count = library.cast(valid.sum(), wide)
        count = library.xp.where(count > 1, count, 1)

    def mean(x):
        return x.sum() / count

    policy, policy_slopes, *moved = _policy_rows(library, derivatives, rows, numbers, fixed, kept)
    errors, error_slopes = _error_rows(library, derivatives, rows, numbers, fixed, kept)
    entropies = kept(library.cast(rows.entropies, wide))
    means = mean(policy), 0.5 * mean(errors * errors), mean(entropies), *map(mean, moved)
    weights = number(numbers.value_coefficient), number(numbers.entropy_coefficient)
    loss = means[0] + weights[0] * means[1] - weights[1] * means[2]
    parts = map(functools.partial(constant, library), means)
    scalars = tuple(map(library.cast, (loss, *parts), repeat(dtype)))
    if not derivatives:
        return scalars, ()
    ones = kept(library.xp.ones_like(entropies))
    slopes = policy_slopes, weights[0] * error_slopes, -weights[1] * ones
    return scalars, tuple(map(truediv, slopes, repeat(count)))


def _policy_rows(library: Library, derivatives, rows: Rows, numbers: Numbers, fixed, kept) -> Any:
    """What the policy adds to the loss, its derivatives, then what tells how far it has moved."""
    xp = library.xp
    pushes = kept(-fixed(rows.advantages))
    log_probs = library.cast(rows.log_probs, pushes.dtype)
    if rows.old_log_probs is None:
        return kept(log_probs) * pushes, pushes
    clip = _finite(library, numbers.clip, fixed, pushes.dtype)
    log_ratio = kept(log_probs - fixed(rows.old_log_probs))
    still = constant(library, log_ratio)
    change = xp.expm1(still)  # ρ − 1
    cut = _cut(xp.where, change, pushes, clip)
    # What is cut off must not enter the derivative as 0·∞ either.
    followed = change if derivatives else xp.expm1(xp.where(cut, 0, log_ratio))
    surrogate = (1 + xp.where(cut, xp.clip(change, -clip, clip), followed)) * pushes
    slopes = xp.where(cut, 0, surrogate) if derivatives else None
    clipped = library.cast(abs(change) > clip, pushes.dtype)
    return surrogate, slopes, change - still, clipped


def _error_rows(library: Library, derivatives, rows: Rows, numbers: Numbers, fixed, kept) -> Any:
    """The errors of the values, the larger of two if these are clipped, and their derivatives."""
    xp = library.xp
    returns = fixed(rows.returns)
    errors = kept(library.cast(rows.values, returns.dtype) - returns)
    if numbers.value_clip is None:
        return errors, errors
    value_clip = _finite(library, numbers.value_clip, fixed, returns.dtype)
    old_values = fixed(rows.old_values)
    away = kept(fixed(rows.values) - old_values)  # 0 in padding, which therefore is plain
    bounded = _bounded(xp.clip, away, old_values - returns, value_clip)
    plain = _is_plain(constant(library, errors), bounded, away, value_clip)
    slopes = xp.where(plain, errors, 0) if derivatives else None
    return xp.where(plain, errors, bounded), slopes


def _finite(library: Library, x, fixed, wide):
    """A bound that even an infinite ratio exceeds: it is then clipped, not multiplied by 0."""
    most = float(library.xp.finfo(wide).max)
    return min(x, most) if isinstance(x, NUMBER) else library.at_most(fixed(x), most)
