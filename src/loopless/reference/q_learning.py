"""Q-learning targets and losses, one sample at a time.

Conventions: values are [..., B, A], the rest is [..., B], and an action is a whole number from 0 to
A − 1. Results are new float64 arrays. The kernels are in `kernels.q_learning`.
"""

import math

import numpy as np

from loopless.reference.scan import coefficient, data, flags, numbers


def q_targets(rewards, terminated, next_q, *, gamma, next_q_online=None, next_actions=None):
    """Return targets of action values.

        y = r                       where terminated
        y = r + γ Q(s', a')         elsewhere

    a' is the first action with the largest value in `next_q_online`, or in `next_q` without it, or
    the one in `next_actions`. Q(s', ·) is `next_q` always. Mnih et al. 2015; van Hasselt et al.
    2016; Rummery & Niranjan 1994 for SARSA.
    """
    shape = np.shape(rewards)
    rewards, terminated = data(rewards, shape), flags(terminated, shape)
    next_q, gamma = _rows(next_q, shape), coefficient(gamma, shape)
    judge = next_q if next_q_online is None else _rows(next_q_online, shape)
    targets = np.zeros(shape)
    for i in np.ndindex(shape):
        if terminated[i]:
            targets[i] = rewards[i]
        else:
            if next_actions is None:
                action = _first_largest(judge[i])
            else:
                action = _action(next_actions[i], len(next_q[i]))
            targets[i] = rewards[i] + gamma[i] * next_q[i][action]
    return targets


def q_loss(q, actions, targets, *, weights=None, loss="mse", delta=1.0):
    """Return losses [...] of the taken actions' values, and the error of each sample [..., B].

        d_i = Q(s_i, a_i) − y_i
        loss = (1/B) Σ_i w_i L(d_i)         L = d² for "mse"; for "huber" ½ d² where |d| ≤ δ, and
                                            δ (|d| − ½ δ) elsewhere

    A sample of weight 0 adds nothing, whatever it holds. `loss` may be a function of a sample's
    prediction and target. Mnih et al. 2015.
    """
    shape = np.shape(q)[:-1]
    errors = _errors(q, actions, targets)
    weights = np.ones(shape) if weights is None else data(weights, shape)
    losses = np.zeros(shape[:-1])
    for k in np.ndindex(shape[:-1]):
        terms = []
        for b in range(shape[-1]):
            i = (*k, b)
            if weights[i] == 0:
                continue
            if callable(loss):
                term = float(loss(float(q[i][int(actions[i])]), float(targets[i])))
            else:
                term = _loss(float(errors[i]), loss, delta)
            terms.append(weights[i] * term)
        losses[k] = _sum(terms) / shape[-1]
    return losses, errors


def q_loss_gradients(q, actions, targets, *, weights=None, loss="mse", delta=1.0):
    """Return the derivative of each loss of `q_loss` by its own values [..., B, A].

    w_i L'(d_i) / B at the taken action, 0 elsewhere
    """
    shape = np.shape(q)[:-1]
    errors = _errors(q, actions, targets)
    weights = np.ones(shape) if weights is None else data(weights, shape)
    gradients = np.zeros(np.shape(q))
    for i in np.ndindex(shape):
        if weights[i] != 0:
            taken = (*i, int(actions[i]))
            gradients[taken] = weights[i] * _slope(float(errors[i]), loss, delta) / shape[-1]
    return gradients


def _errors(q, actions, targets):
    shape = np.shape(q)[:-1]
    q, targets = _rows(q, shape), data(targets, shape)
    if np.shape(actions) != shape:
        raise ValueError(f"expected one action a sample, {shape}; got shape {np.shape(actions)}.")
    errors = np.zeros(shape)
    for i in np.ndindex(shape):
        errors[i] = q[i][_action(actions[i], len(q[i]))] - targets[i]
    return errors


def _loss(d, loss, delta):
    if loss == "mse":
        return d * d
    if loss != "huber":
        raise ValueError(f"q_loss: unknown loss {loss!r}; choose mse or huber.")
    if abs(d) > delta:
        return delta * (abs(d) - 0.5 * delta)
    return 0.5 * d * d


def _slope(d, loss, delta):
    if loss == "mse":
        return 2.0 * d
    if d > delta:
        return delta
    if d < -delta:
        return -delta
    return d


def _first_largest(row):
    """Return the first action that no other beats. NaN beats all, so that it shows."""
    best = 0
    for action in range(len(row)):
        if math.isnan(row[action]):
            return action
        if row[action] > row[best]:
            best = action
    return best


def _action(action, count):
    if not 0 <= action < count or action != int(action):
        raise ValueError(f"an action is a whole number from 0 to {count - 1}; got {action!r}.")
    return int(action)


def _rows(values, shape):
    """Return values [..., A] over samples of `shape`, in float64."""
    if np.shape(values)[:-1] != shape or np.ndim(values) == 0:
        raise ValueError(f"expected values of shape {shape} and actions, got {np.shape(values)}.")
    return numbers(values, np.shape(values))


def _sum(terms):
    """Return the sum, exact where it is finite; NaN and infinity as they add up."""
    return math.fsum(terms) if all(math.isfinite(x) for x in terms) else sum(terms)
