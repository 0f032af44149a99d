"""What `kernels.q_learning` asks of its arguments; the rest of it reads as the maths.

Shapes, dtypes, libraries and devices are looked at always; actions and weights only by the
compiled kernels, which read them anyway. Tests: `tests/kernels/test_q_learning_refusals.py`.
"""

from typing import Any

import numpy as np

from loopless.arrays import checks
from loopless.arrays.library import NUMBER, Library

_BOOL, _INTEGER = np.dtype(np.bool_), np.dtype(np.int64)
_PLAIN = (np.dtype(np.float32), np.dtype(np.float64))


def plain_targets(rewards, terminated, next_q, gamma, next_q_online, next_actions) -> bool:
    """Whether all is right, and NumPy arrays as one would wish them: then nothing else is asked.

    Small batches spend their time in checks; here the common case is told at once.
    """
    if not _is_plain(next_q) or next_actions is not None or gamma.__class__ is not float:
        return False
    shape, dtype = next_q.shape, next_q.dtype
    return (
        0.0 <= gamma <= 1.0
        and _is(rewards, dtype, shape[:-1])
        and _is(terminated, _BOOL, shape[:-1])
        and (next_q_online is None or _is(next_q_online, dtype, shape))
    )


def plain_loss(q, actions, targets, weights, loss, losses, delta) -> bool:
    """The same of `q_loss`."""
    if not _is_plain(q) or q.ndim < 2 or loss.__class__ is not str or loss not in losses:
        return False
    if delta.__class__ is not float or not delta > 0:
        return False
    samples, dtype = q.shape[:-1], q.dtype
    return (
        _is(actions, _INTEGER, samples)
        and _is(targets, dtype, samples)
        and (weights is None or _is(weights, dtype, samples))
    )


def _is_plain(values) -> bool:
    return values.__class__ is np.ndarray and values.dtype in _PLAIN and values.size > 0


def _is(x, dtype, shape) -> bool:
    return x.__class__ is np.ndarray and x.dtype is dtype and x.shape == shape


def of_targets(function, rewards, terminated, next_q, gamma, next_q_online, next_actions):
    """The library, the dtype of the result, and flags and gamma as the formula wants them."""
    library = checks.library_or_refuse(function, "rewards", rewards)
    if next_q_online is not None and next_actions is not None:
        raise ValueError(
            f"{function}: next_q_online and next_actions were both given; the next action is the "
            f"online network's best (double) or the one taken (SARSA). Drop one of them."
        )
    samples = rewards.shape
    _alike(function, "next_q", next_q, library, "rewards", rewards)
    if next_q.shape[:-1] != samples or not next_q.ndim:
        wanted = f"({', '.join([*map(str, samples), 'A'])})"
        raise _misshapen(function, "next_q", next_q, wanted, "rewards", rewards)
    _some_action(function, "next_q", next_q)
    dtype = _widest(function, library, ("rewards", rewards), ("next_q", next_q))
    if next_q_online is not None:
        _fit(function, "next_q_online", next_q_online, library, next_q.shape, "next_q", next_q)
        _floating(function, "next_q_online", next_q_online, library)
    if next_actions is not None:
        _fit(function, "next_actions", next_actions, library, samples, "rewards", rewards)
        _integers(function, "next_actions", next_actions, library)
    _fit(function, "terminated", terminated, library, samples, "rewards", rewards)
    terminated = checks.boolean(function, "terminated", terminated, library)
    gamma = checks.number(function, "gamma", gamma, library, rewards)
    return library, dtype, terminated, gamma


def of_loss(function, q, actions, targets, weights, loss, losses, delta):
    """The library, the dtype of the results, and delta as a number."""
    checks.choice(function, "loss", loss, tuple(losses))
    library = checks.library_or_refuse(function, "q", q)
    samples = q.shape[:-1]
    if q.ndim < 2 or samples[-1] == 0:
        raise ValueError(
            f"{function}: q has shape {tuple(q.shape)}; it must be [..., B, A] with at least one "
            f"sample, for without one there is no mean."
        )
    _some_action(function, "q", q)
    _fit(function, "actions", actions, library, samples, "q", q)
    _integers(function, "actions", actions, library)
    _fit(function, "targets", targets, library, samples, "q", q)
    dtype = _widest(function, library, ("q", q), ("targets", targets))
    if weights is not None:
        _fit(function, "weights", weights, library, samples, "q", q)
        _floating(function, "weights", weights, library)
    if isinstance(delta, np.number):
        delta = delta.item()
    if isinstance(delta, bool) or not isinstance(delta, NUMBER):
        raise TypeError(f"{function}: delta is a {type(delta).__name__}; it must be a number.")
    if not delta > 0:
        raise ValueError(f"{function}: delta must be positive; received {delta}.")
    return library, dtype, delta


def no_action(function: str, name: str, actions, sample: int, count: int) -> ValueError:
    """What to say of the action of one sample that is none of `count`."""
    return ValueError(
        f"{function}: {name} holds {actions.flat[sample]}{_at(sample, actions.shape)}; of {count} "
        f"actions the first is 0 and the last {count - 1}."
    )


def no_weight(function: str, weights, sample: int) -> ValueError:
    """What to say of the weight of one sample that can be none."""
    return ValueError(
        f"{function}: weights holds {weights.flat[sample]}{_at(sample, weights.shape)}; weights "
        f"are finite and at least 0."
    )


def _alike(function, name, x, library: Library, like_name, like) -> None:
    if x.__class__ is not like.__class__:
        checks.same_library(function, name, x, library)
    if not library.same_device(x, like):
        raise checks.devices_differ(function, name, x.device, like_name, like.device)


def _fit(function, name, x, library: Library, wanted, like_name, like) -> None:
    _alike(function, name, x, library, like_name, like)
    if x.shape != wanted:
        raise _misshapen(function, name, x, str(tuple(wanted)), like_name, like)


def _misshapen(function, name, x, wanted: str, like_name, like) -> ValueError:
    return ValueError(
        f"{function}: {name} has shape {tuple(x.shape)}; beside {like_name} of shape "
        f"{tuple(like.shape)} it must be {wanted}. Nothing is broadcast or squeezed here."
    )


def _some_action(function, name, x) -> None:
    if x.shape[-1] == 0:
        raise ValueError(
            f"{function}: {name} has shape {tuple(x.shape)}, that is no action; actions are the "
            f"last axis."
        )


def _floating(function, name, x, library: Library) -> None:
    if not library.is_float(x):
        raise TypeError(
            f"{function}: {name} has dtype {x.dtype}; it must be float16, bfloat16, float32 or "
            f"float64."
        )


def _widest(function, library: Library, *named) -> Any:
    (name, x), (other_name, other) = named
    _floating(function, name, x, library)
    if other.dtype == x.dtype:
        return x.dtype
    _floating(function, other_name, other, library)
    return library.promote(x.dtype, other.dtype)


def _integers(function, name, x, library: Library) -> None:
    if library.kind(x) not in "ib":
        raise TypeError(
            f"{function}: {name} has dtype {x.dtype}; actions are integers. Store them as such "
            f"rather than convert them back: a float holds large ones inexactly."
        )


def _at(sample: int, shape: tuple[int, ...]) -> str:
    place = tuple(map(int, np.unravel_index(sample, shape)))
    return f" at {place[0] if len(place) == 1 else place}" if place else ""
