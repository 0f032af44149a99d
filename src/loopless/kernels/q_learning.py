"""Q-learning: targets for the DQN family and the loss towards them.

Both functions take arrays of NumPy, PyTorch or JAX, values [..., B, A] and the rest [..., B], and
give back the same kind; half precision is computed in float32. Leading axes are batches of their
own: one call on [K, B, A] serves K batches.

Targets are constants. `q_targets` gives back values without a gradient, and `q_loss` passes one to
the taken action's entry of `q` alone: none to `targets`, none to `weights`.

Actions are integers (or booleans) in 0 … A−1. Where values can be looked at (NumPy arrays, and
PyTorch tensors on the CPU outside of traces) one out of range is refused. Elsewhere PyTorch's own
gather raises, and JAX gives NaN, never a neighbour's value.

A formula here takes numbers as well as whole arrays: the compiled kernels of `numba_actions` are
made of the same functions. Loop twins: `reference.q_learning`. Tests:
`tests/kernels/test_q_learning_*.py`.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from loopless.arrays import dispatch as tensors
from loopless.arrays import scan
from loopless.arrays.actions import constant, taken
from loopless.arrays.library import NUMPY
from loopless.arrays.scan.numpy import flat, flat_or_number
from loopless.kernels import q_arguments

_BOOL, _INTEGER = np.dtype(np.bool_), np.dtype(np.int64)


def q_targets(rewards, terminated, next_q, *, gamma, next_q_online=None, next_actions=None) -> Any:
    """One-step targets of action values, for every member of the DQN family.

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
    torch = tensors.eager(rewards)
    if torch is None:
        return _targets(*fields)
    arrays = tensors.arrays(torch, fields)
    return _targets(*fields) if arrays is None else torch.from_numpy(_targets(*arrays))


def _targets(rewards, terminated, next_q, gamma, next_q_online, next_actions):
    fields = rewards, terminated, next_q, gamma, next_q_online, next_actions
    if q_arguments.plain_targets(*fields):
        return _numpy_targets(rewards.dtype, *fields)
    library, dtype, terminated, gamma = q_arguments.of_targets("q_targets", *fields)
    fields = rewards, terminated, next_q, gamma, next_q_online, next_actions
    if library is NUMPY:
        return _numpy_targets(dtype, *fields)
    return scan.once(library, _composed_targets, (0, 1))(library, dtype, *fields)


def _target(where, rewards, terminated, gamma, value):
    return where(terminated, rewards, rewards + gamma * value)


def _numpy_targets(dtype, rewards, terminated, next_q, gamma, next_q_online, next_actions):
    wide = NUMPY.wide(dtype)
    out = np.empty(rewards.shape, wide)
    wrong = _target_kernel()(
        flat(rewards, wide),
        flat(terminated, _BOOL),
        flat(next_q, wide),
        flat_or_number(gamma, rewards.shape, wide),
        # in its own precision: rounding would tie what differs
        None if next_q_online is None else flat(next_q_online, NUMPY.wide(next_q_online.dtype)),
        None if next_actions is None else flat(next_actions, _INTEGER),
        out.ravel(),
    )
    if wrong >= 0:
        count = next_q.shape[-1]
        raise q_arguments.no_action("q_targets", "next_actions", next_actions, wrong, count)
    return out if wide == dtype else out.astype(dtype)


@functools.cache
def _target_kernel() -> Callable:
    from loopless.compiled import q_learning as numba_actions

    return numba_actions.targets(_target)


def _composed_targets(
    library, dtype, rewards, terminated, next_q, gamma, next_q_online, next_actions
):
    xp = library.xp
    wide = library.wide(dtype)
    rewards, next_q = constant(library, rewards), constant(library, next_q)
    if next_actions is not None:
        # Nothing is done in a terminal state: what stands there is not looked up.
        value = taken(library, next_q, xp.where(terminated, 0, next_actions))
    elif next_q_online is not None:
        value = taken(library, next_q, xp.argmax(constant(library, next_q_online), -1))
    else:
        value = xp.amax(next_q, -1)
    rewards, value = library.cast(rewards, wide), library.cast(value, wide)
    gamma = scan.typed(library, constant(library, gamma), wide, rewards)
    return library.cast(_target(xp.where, rewards, terminated, gamma, value), dtype)


class Loss(NamedTuple):
    """A loss of an error, and its derivative."""

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
    """The loss of the taken actions' values towards their targets, and each sample's error.

        d_i  = Q(s_i, a_i) − y_i
        loss = (1/B) Σ_i w_i L(d_i)         "mse": L = d²
                                            "huber": L = ½ d² up to |d| = δ, δ (|d| − ½ δ) beyond

    `q` is [..., B, A]; `actions`, `targets` and `weights` are [..., B]. The loss is [...], one for
    each leading index: [K, B, A] gives K losses, not one of K·B samples. `weights`, such as the
    importance weights of prioritized replay, are not normalised: the divisor is B. A sample of
    weight 0 is out, even one that holds NaN or infinity. "huber" with δ = 1 is PyTorch's
    smooth_l1_loss.

    The loss has the gradient w_i L'(d_i)/B at each taken action and exactly 0 elsewhere; targets
    and weights are constants to it. The errors d [..., B], for priorities and logs, have none.
    In eager PyTorch a second derivative is an error; transforms of either library take it.

    Returns (loss, td_errors), in the wider dtype of `q` and `targets`.

    Mnih et al. 2015. Loop twin: `reference.q_learning.q_loss`.
    """
    fields = q, actions, targets, weights
    torch = tensors.eager(q)
    if torch is None:
        return _losses(loss, delta, False, *fields)
    records = q.requires_grad and torch.is_grad_enabled()
    arrays = tensors.arrays(torch, fields)
    if arrays is None:
        outs = _losses(loss, delta, records, q.detach(), actions, targets, weights)
    else:
        outs = tuple(map(torch.from_numpy, _losses(loss, delta, records, *arrays)))
    if not records:
        return outs
    value, errors, gradient = outs
    return _attached()(value, (gradient,), (q,)), errors


@functools.cache
def _attached() -> Callable:
    from loopless.arrays import torch_losses

    return torch_losses.attached


def _losses(loss, delta, derivatives, q, actions, targets, weights) -> Any:
    """Losses and errors, and if asked for the derivatives of each loss by its own values."""
    if q_arguments.plain_loss(q, actions, targets, weights, loss, LOSSES, delta):
        return _numpy_losses(q.dtype, loss, delta, derivatives, q, actions, targets, weights)
    library, dtype, delta = q_arguments.of_loss(
        "q_loss", q, actions, targets, weights, loss, LOSSES, delta
    )
    fields = loss, delta, derivatives, q, actions, targets, weights
    if library is NUMPY:
        return _numpy_losses(dtype, *fields)
    return scan.once(library, _composed_losses, (0, 1, 2, 4))(library, dtype, *fields)


def _numpy_losses(dtype, loss, delta, derivatives, q, actions, targets, weights):
    wide = NUMPY.wide(dtype)
    shape = q.shape
    means, errors = np.empty(shape[:-2], wide), np.empty(shape[:-1], wide)
    gradient = np.zeros(shape, wide) if derivatives else None
    wrong = _loss_kernel(loss)(
        flat(q, wide),
        flat(actions, _INTEGER),
        flat(targets, wide),
        None if weights is None else flat(weights, wide),
        flat_or_number(delta, (), wide),
        means.ravel(),
        errors.ravel(),
        None if gradient is None else gradient.ravel(),
    )
    if wrong >= 0:
        if 0 <= actions.flat[wrong] < shape[-1]:
            raise q_arguments.no_weight("q_loss", weights, wrong)
        raise q_arguments.no_action("q_loss", "actions", actions, wrong, shape[-1])
    if wide != dtype:
        means, errors = means.astype(dtype), errors.astype(dtype)
    return (means, errors, gradient) if derivatives else (means, errors)


@functools.cache
def _loss_kernel(loss: str):
    from loopless.compiled import q_learning as numba_actions

    return numba_actions.losses(*LOSSES[loss])


def _composed_losses(library, dtype, loss, delta, derivatives, q, actions, targets, weights):
    xp = library.xp
    wide = library.wide(dtype)
    formula = LOSSES[loss]
    targets = library.cast(constant(library, targets), wide)
    error = counted = library.cast(taken(library, q, actions), wide) - targets
    if weights is not None:
        weights = library.cast(constant(library, weights), wide)
        counted = xp.where(weights == 0, 0, error)

    def weighted(x):
        return x if weights is None else weights * x

    mean = xp.mean(weighted(formula.value(xp.clip, counted, delta)), -1)
    outs = library.cast(mean, dtype), library.cast(constant(library, error), dtype)
    if not derivatives:
        return outs
    slope = weighted(formula.slope(xp.clip, counted, delta)) / error.shape[-1]
    places = actions.long().unsqueeze(-1)  # asked for by eager PyTorch alone
    return *outs, slope.new_zeros(q.shape).scatter_(-1, places, slope.unsqueeze(-1))
