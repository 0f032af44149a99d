"""The argument checks of `kernels.q_learning`."""

from typing import Any

import numpy as np

from loopless.arrays import checks

NAMES = ("mse", "huber")  # of losses


def check_targets(rewards, terminated, next_q, gamma, next_q_online, next_actions):
    """Return the library, the dtype of the result, `terminated`, `gamma` and `next_actions`."""
    arguments = checks.Arguments("q_targets", "rewards", rewards)
    if next_q_online is not None and next_actions is not None:
        raise ValueError(
            "q_targets: next_q_online and next_actions were both given; the next action is the "
            "online network's best (double) or the one taken (SARSA). Drop one of them."
        )
    samples = rewards.shape
    arguments.alike("next_q", next_q)
    if next_q.shape[:-1] != samples or not next_q.ndim:
        raise arguments.misshapen("next_q", next_q, (*samples, "A"))
    _check_some_action(arguments, "next_q", next_q)
    dtype = _widest(arguments, {"rewards": rewards, "next_q": next_q})
    if next_q_online is not None:
        arguments.shaped("next_q_online", next_q_online, next_q.shape, "next_q", next_q)
        arguments.floating("next_q_online", next_q_online)
    if next_actions is not None:
        arguments.shaped("next_actions", next_actions, samples)
        next_actions = arguments.actions("next_actions", next_actions)
    arguments.shaped("terminated", terminated, samples)
    terminated = arguments.boolean("terminated", terminated)
    return arguments.library, dtype, terminated, arguments.number("gamma", gamma), next_actions


def check_loss(q, actions, targets, weights, loss, delta):
    """Return the library, the dtype of the results, delta as a number, and the actions."""
    if not callable(loss):
        checks.choice("q_loss", "loss", loss, NAMES)
    arguments = checks.Arguments("q_loss", "q", q)
    samples = q.shape[:-1]
    if q.ndim < 2 or samples[-1] == 0:
        raise ValueError(
            f"q_loss: q has shape {tuple(q.shape)}; it must be [..., B, A] with at least one "
            f"sample, because the loss is a mean over samples."
        )
    _check_some_action(arguments, "q", q)
    arguments.shaped("actions", actions, samples)
    actions = arguments.actions("actions", actions)
    arguments.shaped("targets", targets, samples)
    dtype = _widest(arguments, {"q": q, "targets": targets})
    if weights is not None:
        arguments.shaped("weights", weights, samples)
        arguments.floating("weights", weights)
    return arguments.library, dtype, _check_delta(arguments, delta), actions


def _check_delta(arguments: checks.Arguments, delta) -> Any:
    """Return `delta`: a number above 0, or a 0-d array of JAX beside other arrays of JAX."""
    if arguments.library.name == "jax" and checks.is_scalar_array(delta):
        arguments.floating("delta", delta)
        return delta
    return checks.positive("q_loss", "delta", delta)


def _widest(arguments: checks.Arguments, arrays: dict[str, Any]) -> Any:
    dtypes = [arguments.floating(name, x) for name, x in arrays.items()]
    return arguments.library.promote(*dtypes)


def _check_some_action(arguments: checks.Arguments, name, x) -> None:
    if x.shape[-1] == 0:
        raise ValueError(
            f"{arguments.function}: {name} has shape {tuple(x.shape)}; it must hold at least one "
            f"action along its last axis."
        )


def no_action(function: str, name: str, actions, sample: int, count: int) -> ValueError:
    return ValueError(
        f"{function}: {name} holds {actions.flat[sample]}{place_of(sample, actions.shape)}; "
        f"actions must be from 0 to {count - 1}."
    )


def place_of(sample: int, shape: tuple[int, ...]) -> str:
    place = tuple(map(int, np.unravel_index(sample, shape)))
    return f" at {place[0] if len(place) == 1 else place}" if place else ""
