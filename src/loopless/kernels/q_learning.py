"""Q-learning: targets for the DQN family and the loss towards them.

Both functions take arrays of NumPy, PyTorch or JAX, values [..., B, A] and the rest [..., B], and
return the same kind; half precision is computed in float32. Leading axes are batches of their own:
one call on [K, B, A] serves K batches.

Targets are constants. `q_targets` returns values without a gradient, and `q_loss` passes one to the
taken action's entry of `q` alone: none to `targets`, none to `weights`.

Actions are integers (or booleans, or whole floats) in 0 … A−1. Where values can be looked at (NumPy
arrays, and PyTorch tensors on the CPU outside of traces) an action out of range is refused.
Elsewhere PyTorch's own gather raises, and JAX gives NaN, never a neighbor's value.

The formulas here take single numbers as well as whole arrays: the kernels of `compiled.losses` are
built from the same functions. Loop twins: `reference.q_learning`.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from loopless.arrays.checks import is_array
from loopless.arrays.dispatch import (
    eager_torch,
    flat,
    flat_or_number,
    numpy_views,
    on_host,
    with_gradients,
)
from loopless.arrays.library import NUMPY, Library, compiled_once, library_of, typed
from loopless.kernels.q_arguments import check_loss, check_targets, no_action, place_of

_BOOL, _INTEGER = np.dtype(np.bool_), np.dtype(np.int64)
_PLAIN = (np.dtype(np.float32), np.dtype(np.float64))


def q_targets(rewards, terminated, next_q, *, gamma, next_q_online=None, next_actions=None) -> Any:
    """Return one-step targets of action values, for every member of the DQN family.

        y = r + γ Q(s', a')         y = r where terminated, whatever Q(s', ·) holds

        member                a'                          next_q is Q(s', ·) of
        DQN                   argmax next_q               the target network
        without a target      argmax next_q               the online network
        double                argmax next_q_online        the target network
        SARSA                 next_actions                either

    `rewards` and `terminated` are [..., B], `next_q` and `next_q_online` [..., B, A] of the true
    successor s': a truncated step bootstraps like any other. Of equal values the lowest action is
    chosen. `next_actions` [..., B] is not read where terminated.

    `gamma` is a number or an array with one entry or the full length along each axis of [..., B]:
    for n-step targets pass the windows' rewards, the values of where they led, and γ^h, h being
    each window's length. The result is [..., B], in the wider dtype of `rewards` and `next_q`.

    Mnih et al. 2015; van Hasselt et al. 2016 for the double. Loop twin:
    `reference.q_learning.q_targets`.
    """
    fields = rewards, terminated, next_q, gamma, next_q_online, next_actions
    torch = eager_torch(rewards)
    if torch is None:
        return _targets(*fields)
    views = numpy_views(torch, fields)
    return _targets(*fields) if views is None else torch.from_numpy(_targets(*views))


def _targets(rewards, terminated, next_q, gamma, next_q_online, next_actions) -> Any:
    fields = rewards, terminated, next_q, gamma, next_q_online, next_actions
    if _are_plain_targets(*fields):
        return _numpy_targets(rewards.dtype, *fields)
    library, dtype, terminated, gamma, next_actions = check_targets(*fields)
    fields = rewards, terminated, next_q, gamma, next_q_online, next_actions
    if library is NUMPY:
        return _numpy_targets(dtype, *fields)
    return compiled_once(library, _composed_targets, (0, 1))(library, dtype, *fields)


def _are_plain_targets(rewards, terminated, next_q, gamma, next_q_online, next_actions) -> bool:
    """Return whether all arguments are valid, and NumPy arrays that need no conversion."""
    if not _is_plain(next_q) or next_actions is not None or gamma.__class__ is not float:
        return False
    shape, dtype = next_q.shape, next_q.dtype
    return (
        0.0 <= gamma <= 1.0
        and is_array(rewards, dtype, shape[:-1])
        and is_array(terminated, _BOOL, shape[:-1])
        and (next_q_online is None or is_array(next_q_online, dtype, shape))
    )


def _is_plain(values) -> bool:
    return values.__class__ is np.ndarray and values.dtype in _PLAIN and values.size > 0


def _target(where, rewards, terminated, gamma, value):
    return where(terminated, rewards, rewards + gamma * value)


def _numpy_targets(dtype, rewards, terminated, next_q, gamma, next_q_online, next_actions):
    wide = NUMPY.wide(dtype)
    out = np.empty(rewards.shape, wide)
    refused = _target_kernel()(
        flat(rewards, wide),
        flat(terminated, _BOOL),
        flat(next_q, wide),
        flat_or_number(gamma, rewards.shape, wide),
        # in its own precision: rounding could make different values equal
        None if next_q_online is None else flat(next_q_online, NUMPY.wide(next_q_online.dtype)),
        None if next_actions is None else flat(next_actions, _INTEGER),
        out.ravel(),
    )
    if refused >= 0:
        raise no_action("q_targets", "next_actions", next_actions, refused, next_q.shape[-1])
    return out if wide == dtype else out.astype(dtype)


@functools.cache
def _target_kernel() -> Callable:
    from loopless.compiled import losses

    return losses.q_targets(_target)


def _composed_targets(
    library, dtype, rewards, terminated, next_q, gamma, next_q_online, next_actions
):
    xp = library.xp
    wide = library.wide(dtype)
    rewards, next_q = library.constant(rewards), library.constant(next_q)
    if next_actions is not None:
        # A terminal state has no next action: whatever stands there is not looked up.
        value = _taken(library, next_q, xp.where(terminated, 0, next_actions))
    elif next_q_online is not None:
        value = _taken(library, next_q, xp.argmax(library.constant(next_q_online), -1))
    else:
        value = xp.amax(next_q, -1)
    rewards, value = library.cast(rewards, wide), library.cast(value, wide)
    gamma = typed(library, library.constant(gamma), wide, rewards)
    return library.cast(_target(xp.where, rewards, terminated, gamma, value), dtype)


def _taken(library: Library, values, actions) -> Any:
    """Return values[..., actions] of values [..., A] and integer actions [...].

    The actions are not read back to be checked. An action out of range is PyTorch's own error (on a
    GPU its device-side assert), and gives NaN in JAX.
    """
    xp = library.xp
    if library.name == "torch":
        return values.gather(-1, actions.long().unsqueeze(-1)).squeeze(-1)
    if library is NUMPY:
        return xp.take_along_axis(values, actions.astype(_INTEGER)[..., None], -1)[..., 0]
    if actions.dtype.itemsize < 4:
        actions = actions.astype(xp.int32)  # A need not fit into a byte
    # JAX's indexing wraps −1, and may read 2³² as 0
    count = values.shape[-1]
    actions = xp.where((actions < 0) | (actions >= count), count, actions)
    return xp.take_along_axis(values, actions[..., None], -1, mode="fill")[..., 0]


class Loss(NamedTuple):
    """A loss as a function of the error, and its derivative."""

    value: Callable
    slope: Callable


def _square(clip, error, delta):
    return error * error


def _square_slope(clip, error, delta):
    return 2.0 * error


def _huber(clip, error, delta):
    near = clip(error, -delta, delta)  # ½ error² up to δ and δ(|error| − ½ δ) beyond, in one
    return near * (error - 0.5 * near)


def _huber_slope(clip, error, delta):
    return clip(error, -delta, delta)


LOSSES = {"mse": Loss(_square, _square_slope), "huber": Loss(_huber, _huber_slope)}


def q_loss(q, actions, targets, *, weights=None, loss="mse", delta=1.0) -> Any:
    """Return the loss of the taken actions' values towards their targets, and each error.

        d_i  = Q(s_i, a_i) − y_i
        loss = (1/B) Σ_i w_i L(d_i)         "mse": L = d²
                                            "huber": L = ½ d² up to |d| = δ, δ (|d| − ½ δ) beyond

    `q` is [..., B, A]; `actions`, `targets` and `weights` are [..., B]. The loss is [...], one for
    each leading index: [K, B, A] gives K losses, not one of K·B samples. `weights`, such as the
    importance weights of prioritized replay, are not normalized: the divisor is B. A sample of
    weight 0 is out, even one that holds NaN or infinity. δ is `delta`, which may be a 0-d array in
    JAX. "huber" with δ = 1 is PyTorch's smooth_l1_loss.

    `loss` may also be a function of yours, loss(prediction, target), of your library: it gets
    Q(s_i, a_i) and y_i, [..., B] each, and returns L of each sample, not their mean. Its gradient
    is your library's own; beside NumPy arrays it has none.

    The loss has the gradient w_i L'(d_i)/B at each taken action and exactly 0 elsewhere; targets
    and weights are constants to it. The errors d [..., B], for priorities and logs, have none.
    In eager PyTorch a second derivative is an error; transforms of either library take it.

    Returns (loss, td_errors), in the wider dtype of `q` and `targets`.

    Mnih et al. 2015. Loop twin: `reference.q_learning.q_loss`.
    """
    if callable(loss):
        return _foreign_loss(loss, q, actions, targets, weights)
    return with_gradients(_losses, (loss, delta), (q, actions, targets, weights), (q,))


def _foreign_loss(loss: Callable, q, actions, targets, weights) -> Any:
    library, dtype, _, actions = check_loss(q, actions, targets, weights, loss, 1.0)
    xp, wide, count = library.xp, library.wide(dtype), q.shape[-1]
    values = on_host(library, actions)
    if values is not None:
        outside = (values[0] < 0) | (values[0] >= count)
        if outside.any():
            raise no_action("q_loss", "actions", values[0], int(np.argmax(outside)), count)
    targets = library.cast(library.constant(targets), wide)
    prediction = library.cast(_taken(library, q, actions), wide)
    errors = library.constant(prediction - targets)
    if weights is not None:
        weights = library.cast(library.constant(weights), wide)
        values = on_host(library, weights)
        if values is not None and not ((values[0] >= 0) & (values[0] < np.inf)).all():
            raise ValueError("q_loss: weights are finite and at least 0.")
        # A sample that is out must not bring its NaN into the derivative either.
        prediction = xp.where(weights == 0, 0, prediction)
        targets = xp.where(weights == 0, 0, targets)
    losses = loss(prediction, targets)
    if library_of(losses) is not library or tuple(losses.shape) != tuple(targets.shape):
        received = getattr(losses, "shape", None)
        received = type(losses).__name__ if received is None else f"shape {tuple(received)}"
        raise ValueError(
            f"q_loss: loss returned {received}; it must return the loss of each sample, an array "
            f"of shape {tuple(targets.shape)}. In PyTorch pass reduction='none'."
        )
    if weights is not None:
        losses = xp.where(weights == 0, 0, weights * losses)
    mean = library.cast(xp.mean(losses, -1), dtype)
    return mean if library is not NUMPY else np.asarray(mean), library.cast(errors, dtype)


def _losses(loss, delta, derivatives: bool, q, actions, targets, weights) -> Any:
    """Return (losses, errors), and (the derivative by `q`,) if `derivatives` is true, else ()."""
    fields = q, actions, targets, weights
    if _is_plain_loss(*fields, loss, delta):
        return _numpy_losses(q.dtype, loss, delta, derivatives, *fields)
    library, dtype, delta, actions = check_loss(*fields, loss, delta)
    fields = q, actions, targets, weights
    if library is NUMPY:
        return _numpy_losses(dtype, loss, delta, derivatives, *fields)
    composed = compiled_once(library, _composed_losses, (0, 1, 2, 4))
    return composed(library, dtype, loss, delta, derivatives, *fields)


def _is_plain_loss(q, actions, targets, weights, loss, delta) -> bool:
    """Return whether all arguments are valid, and NumPy arrays that need no conversion."""
    if not _is_plain(q) or q.ndim < 2 or loss.__class__ is not str or loss not in LOSSES:
        return False
    if delta.__class__ is not float or not delta > 0:
        return False
    samples, dtype = q.shape[:-1], q.dtype
    return (
        is_array(actions, _INTEGER, samples)
        and is_array(targets, dtype, samples)
        and (weights is None or is_array(weights, dtype, samples))
    )


def _numpy_losses(dtype, loss, delta, derivatives, q, actions, targets, weights):
    wide = NUMPY.wide(dtype)
    shape = q.shape
    means, errors = np.empty(shape[:-2], wide), np.empty(shape[:-1], wide)
    gradient = np.zeros(shape, wide) if derivatives else None
    refused = _loss_kernel(loss)(
        flat(q, wide),
        flat(actions, _INTEGER),
        flat(targets, wide),
        None if weights is None else flat(weights, wide),
        flat_or_number(delta, (), wide),
        means.ravel(),
        errors.ravel(),
        None if gradient is None else gradient.ravel(),
    )
    if refused >= 0:
        if weights is None or not 0 <= actions.flat[refused] < shape[-1]:
            raise no_action("q_loss", "actions", actions, refused, shape[-1])
        weight, place = weights.flat[refused], place_of(refused, weights.shape)
        raise ValueError(
            f"q_loss: weights holds {weight}{place}; weights are finite and at least 0."
        )
    if wide != dtype:
        means, errors = means.astype(dtype), errors.astype(dtype)
    return (means, errors), () if gradient is None else (gradient,)


@functools.cache
def _loss_kernel(loss: str):
    from loopless.compiled import losses

    return losses.q_losses(*LOSSES[loss])


def _composed_losses(library, dtype, loss, delta, derivatives, q, actions, targets, weights):
    xp = library.xp
    wide = library.wide(dtype)
    formula = LOSSES[loss]
    targets = library.cast(library.constant(targets), wide)
    error = counted = library.cast(_taken(library, q, actions), wide) - targets
    if weights is not None:
        weights = library.cast(library.constant(weights), wide)
        counted = xp.where(weights == 0, 0, error)

    def weighted(x):
        return x if weights is None else weights * x

    mean = xp.mean(weighted(formula.value(xp.clip, counted, delta)), -1)
    outs = library.cast(mean, dtype), library.cast(library.constant(error), dtype)
    if not derivatives:
        return outs, ()
    slope = weighted(formula.slope(xp.clip, counted, delta)) / error.shape[-1]
    places = actions.long().unsqueeze(-1)  # only eager PyTorch wants derivatives
    return outs, (slope.new_zeros(q.shape).scatter_(-1, places, slope.unsqueeze(-1)),)
