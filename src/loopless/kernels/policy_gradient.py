"""Policy-gradient losses: PPO's clipped surrogate, and the plain one of A2C.

Both functions take arrays of NumPy, PyTorch or JAX, all of one shape, with an entry for each action
taken, and return scalars of the same library. Half precision is computed in float32.

A gradient reaches `log_probs`, `values` and `entropies`. Everything else is a constant: the old
log-probabilities and values, the advantages, the returns, and the numbers, which may be 0-d arrays
(traced ones too, so that a schedule does not compile again).

The formulas here take single numbers as well as whole arrays: the kernel of `compiled.losses` is
built from the same functions. Loop twins: `reference.policy_gradient`.
"""

import functools
import math
import sys
from collections.abc import Callable
from itertools import repeat
from operator import truediv
from typing import Any, NamedTuple

import numpy as np

from loopless.arrays.checks import is_array
from loopless.arrays.dispatch import flat, with_gradients
from loopless.arrays.library import NUMBER, NUMPY, Library, compiled_once
from loopless.kernels.policy_arguments import Batch, check

_BOOL = np.dtype(np.bool_)
_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
_MOST = sys.float_info.max
_LARGEST = {_SINGLE: float(np.finfo(_SINGLE).max), _DOUBLE: float(np.finfo(_DOUBLE).max)}
# Empty arrays stand for optional arguments that were left out.
_NO_FLAGS = np.empty(0, _BOOL)
_NO_ENTRIES = {_SINGLE: np.empty(0, _SINGLE), _DOUBLE: np.empty(0, _DOUBLE)}


class PPOParts(NamedTuple):
    """The terms of `ppo_loss`, and how far the policy has moved: scalars without gradients."""

    policy_loss: Any
    value_loss: Any
    entropy: Any
    approximate_kl: Any
    clip_fraction: Any


class PolicyGradientParts(NamedTuple):
    """The terms of `policy_gradient_loss`: scalars without gradients."""

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
    weights=None,
    masks=None,
    entropy_floor=0.0,
    floor_coefficient=0.0,
) -> tuple[Any, PPOParts]:
    """Return PPO's loss: clipped surrogate, value loss and entropy, means over valid entries.

        ρ = exp(log π(a|s) − log π_old(a|s))
        policy_loss = −mean min(ρ A, clip(ρ, 1−ε, 1+ε) A)
        value_loss  = ½ mean (V − G)², or with value_clip
                      ½ mean max((V − G)², (V_old + clip(V − V_old, −c, c) − G)²)
        loss = policy_loss + value_coefficient · value_loss − entropy_coefficient · mean H

    All arrays have one shape [...], and the loss is a scalar. ε is `clip` and c is `value_clip`,
    which asks for `old_values`; either may be infinite. Normalize the advantages beforehand
    (`normalize`) if you want that.

    approximate_kl is mean(ρ − 1 − log ρ), to full precision where ρ is near 1 too; clip_fraction
    is the share of entries with |ρ − 1| > ε. None of the parts has a gradient.

    Where the two sides of the minimum or the maximum are equal, as for ρ = 1 ± ε, the gradient is
    the unclipped one's. A ratio too large for its dtype is clipped or counts as infinite, and
    times an advantage of 0 it is 0. Entries with `valid` false hold anything, NaN included, and
    have a gradient of exactly 0; without a valid entry all is 0, the gradients too. In eager
    PyTorch a second derivative is an error; transforms of either library take it.

    `weights` [...] multiply each entry of all three means, and are constants; the divisor stays the
    number of valid entries. An entry of weight 0 is out, whatever it holds.

    An action may be made of several heads. Then `log_probs`, `old_log_probs` and `entropies` are
    dicts of arrays by head, each with its own ratio; `masks`, a dict of flags, says where a head
    counts, and its means are over these entries. `advantages`, `clip`, `entropy_coefficient` and
    `entropy_floor` are one for all heads, or dicts. The policy loss is the sum over heads, and

        loss = Σ_h policy_loss_h + value_coefficient · value_loss
               − Σ_h entropy_coefficient_h · mean H_h
               + floor_coefficient · Σ_h max(0, entropy_floor_h − mean H_h)²

    without the last term for a head that counts nowhere. The parts entropy, approximate_kl and
    clip_fraction are then dicts. Weights and heads are differentiated by your library.

    Returns (loss, PPOParts), in the widest dtype of the arrays.

    Schulman et al. 2017, eq. 7 and 9. Loop twin: `reference.policy_gradient.ppo_loss`.
    """
    old_values = None if value_clip is None else old_values
    if weights is not None or isinstance(log_probs, dict) or floor_coefficient or masks is not None:
        from loopless.kernels import policy_heads

        numbers = clip, value_coefficient, entropy_coefficient, value_clip
        loss, parts = policy_heads.loss(
            (log_probs, old_log_probs, advantages, values, returns, entropies, old_values),
            numbers, valid, weights, masks, entropy_floor, floor_coefficient,
        )  # fmt: skip
        return loss, PPOParts(*parts)
    arrays = log_probs, old_log_probs, advantages, values, returns, entropies, old_values, valid
    batch = *arrays, clip, value_coefficient, entropy_coefficient, value_clip
    inputs = log_probs, values, entropies
    loss, *parts = with_gradients(_losses, ("ppo_loss",), batch, inputs)
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
    """Return the loss of A2C and its kin: one step by the plain policy gradient.

        policy_loss = −mean A log π(a|s)
        value_loss  = ½ mean (V − G)²
        loss = policy_loss + value_coefficient · value_loss − entropy_coefficient · mean H

    Shapes, gradients, `valid` and dtypes as in `ppo_loss`, whose gradient at ρ = 1 is this one's.

    Returns (loss, PolicyGradientParts).

    Mnih et al. 2016. Loop twin: `reference.policy_gradient.policy_gradient_loss`.
    """
    arrays = log_probs, None, advantages, values, returns, entropies, None, valid
    batch = *arrays, None, value_coefficient, entropy_coefficient, None
    inputs = log_probs, values, entropies
    loss, *parts = with_gradients(_losses, ("policy_gradient_loss",), batch, inputs)
    return loss, PolicyGradientParts(*parts)


def is_cut(where, change, pushes, clip):
    """Return whether the clipped side counts: ρ − 1 is past ε in the direction that A pushes."""
    return where(pushes > 0, change < -clip, change > clip)


def bounded_error(limit, away, old_errors, value_clip):
    """Return the error of the value, clipped to within `value_clip` of the old value."""
    return old_errors + limit(away, -value_clip, value_clip)


def is_unclipped(errors, bounded, away, value_clip):
    """Return whether the unclipped error counts; false for NaN, which then shows in `bounded`."""
    return (abs(away) <= value_clip) | (abs(bounded) <= abs(errors))


def _losses(function: str, derivatives: bool, *fields):
    """Return (loss, *parts), and the derivatives of the loss if `derivatives` is true, else ().

    `fields` are those of a `Batch`.
    """
    if _is_plain(function, *fields):
        return _numpy_losses(fields[0].dtype, derivatives, *fields)
    library, dtype, batch = check(function, Batch(*fields))
    if library is NUMPY:
        return _numpy_losses(dtype, derivatives, *batch)
    composed = compiled_once(library, _composed_losses, (0, 1, 2))
    return composed(library, dtype, derivatives, batch)


def _is_plain(
    function, log_probs, old_log_probs, advantages, values, returns, entropies, old_values, valid,
    clip, value_coefficient, entropy_coefficient, value_clip,
) -> bool:  # fmt: skip
    """Return whether all arguments are valid, and NumPy arrays that need no conversion."""
    if log_probs.__class__ is not np.ndarray or log_probs.dtype not in _LARGEST:
        return False
    shape, dtype = log_probs.shape, log_probs.dtype
    if function == "ppo_loss":
        if not is_array(old_log_probs, dtype, shape):
            return False
        if clip.__class__ not in NUMBER or not (0 <= clip <= _MOST or clip == math.inf):
            return False
        if value_clip is not None:
            if value_clip.__class__ not in NUMBER:
                return False
            if not (0 <= value_clip <= _MOST or value_clip == math.inf):
                return False
            if not is_array(old_values, dtype, shape):
                return False
    return (
        is_array(advantages, dtype, shape)
        and is_array(values, dtype, shape)
        and is_array(returns, dtype, shape)
        and is_array(entropies, dtype, shape)
        and (valid is None or is_array(valid, _BOOL, shape))
        and value_coefficient.__class__ in NUMBER
        and 0 <= value_coefficient <= _MOST
        and entropy_coefficient.__class__ in NUMBER
        and 0 <= entropy_coefficient <= _MOST
    )


def _numpy_losses(
    dtype, derivatives: bool, log_probs, old_log_probs, advantages, values, returns, entropies,
    old_values, valid, clip, value_coefficient, entropy_coefficient, value_clip,
):  # fmt: skip
    wide = NUMPY.wide(dtype)
    largest, none = _LARGEST[wide], _NO_ENTRIES[wide]
    scalars = np.empty(6, wide)
    gradients = np.empty((3, *values.shape), wide) if derivatives else none
    _kernel()(
        flat(log_probs, wide),
        none if old_log_probs is None else flat(old_log_probs, wide),
        flat(advantages, wide),
        flat(values, wide),
        flat(returns, wide),
        flat(entropies, wide),
        none if old_values is None else flat(old_values, wide),
        _NO_FLAGS if valid is None else flat(valid, _BOOL),
        0.0 if clip is None else min(float(clip), largest),
        float(value_coefficient),
        float(entropy_coefficient),
        0.0 if value_clip is None else min(float(value_clip), largest),
        scalars,
        gradients.reshape(3, -1),
    )
    if wide != dtype:
        scalars = scalars.astype(dtype)
    outs = scalars[0, ...], scalars[1, ...], scalars[2, ...], scalars[3, ...]  # 0-d arrays
    if old_log_probs is not None:
        outs = *outs, scalars[4, ...], scalars[5, ...]
    if not derivatives:
        return outs, ()
    return outs, (gradients[0, ...], gradients[1, ...], gradients[2, ...])


@functools.cache
def _kernel() -> Callable:
    from loopless.compiled import losses

    return losses.policy_gradient_losses(is_cut, bounded_error, is_unclipped)


def _composed_losses(library: Library, dtype, derivatives: bool, batch: Batch):
    """Return what `_losses` does, by operations on whole arrays."""
    wide, valid = library.wide(dtype), batch.valid

    def fixed(x):
        return library.cast(library.constant(x), wide)

    def number(x):  # a Python number stays one: PyTorch then makes no tensor of it
        return x if isinstance(x, NUMBER) else fixed(x)

    def filled(x):  # padding is set to 0 before any product: 0·NaN is NaN, forwards and backwards
        return x if valid is None else library.xp.where(valid, x, 0)

    if valid is None:
        count = math.prod(batch.values.shape) or 1
    else:
        count = library.cast(valid.sum(), wide)
        count = library.xp.where(count > 1, count, 1)

    def mean(x):
        return x.sum() / count

    fields = library, derivatives, batch, fixed, filled
    policy, policy_slopes, *moved = _policy_terms(*fields)
    errors, error_slopes = _value_errors(*fields)
    entropies = filled(library.cast(batch.entropies, wide))
    means = mean(policy), 0.5 * mean(errors * errors), mean(entropies), *map(mean, moved)
    weights = number(batch.value_coefficient), number(batch.entropy_coefficient)
    loss = means[0] + weights[0] * means[1] - weights[1] * means[2]
    parts = map(library.constant, means)
    scalars = tuple(map(library.cast, (loss, *parts), repeat(dtype)))
    if not derivatives:
        return scalars, ()
    ones = filled(library.xp.ones_like(entropies))
    slopes = policy_slopes, weights[0] * error_slopes, -weights[1] * ones
    return scalars, tuple(map(truediv, slopes, repeat(count)))


def _policy_terms(library: Library, derivatives, batch, fixed, filled) -> Any:
    """Return the policy's terms of the loss, their derivatives, and how far the policy moved."""
    xp = library.xp
    pushes = filled(-fixed(batch.advantages))
    log_probs = library.cast(batch.log_probs, pushes.dtype)
    if batch.old_log_probs is None:
        return filled(log_probs) * pushes, pushes
    clip = finite(library, batch.clip, fixed, pushes.dtype)
    log_ratio = filled(log_probs - fixed(batch.old_log_probs))
    still = library.constant(log_ratio)
    change = xp.expm1(still)  # ρ − 1
    cut = is_cut(xp.where, change, pushes, clip)
    # The part that is cut off must not enter the derivative as 0·∞ either.
    followed = change if derivatives else xp.expm1(xp.where(cut, 0, log_ratio))
    surrogate = (1 + xp.where(cut, xp.clip(change, -clip, clip), followed)) * pushes
    slopes = xp.where(cut, 0, surrogate) if derivatives else None
    clipped = library.cast(abs(change) > clip, pushes.dtype)
    return surrogate, slopes, change - still, clipped


def _value_errors(library: Library, derivatives, batch, fixed, filled) -> Any:
    """Return the errors of the values (with a clip the larger of two) and their derivatives."""
    xp = library.xp
    returns = fixed(batch.returns)
    errors = filled(library.cast(batch.values, returns.dtype) - returns)
    if batch.value_clip is None:
        return errors, errors
    value_clip = finite(library, batch.value_clip, fixed, returns.dtype)
    old_values = fixed(batch.old_values)
    away = filled(fixed(batch.values) - old_values)  # 0 in padding, which is therefore unclipped
    bounded = bounded_error(xp.clip, away, old_values - returns, value_clip)
    unclipped = is_unclipped(library.constant(errors), bounded, away, value_clip)
    slopes = xp.where(unclipped, errors, 0) if derivatives else None
    return xp.where(unclipped, errors, bounded), slopes


def finite(library: Library, x, fixed, wide):
    """Return x made finite, so that an infinite ratio is clipped and not multiplied by 0."""
    largest = float(library.xp.finfo(wide).max)
    return min(x, largest) if isinstance(x, NUMBER) else library.at_most(fixed(x), largest)
