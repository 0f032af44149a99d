"""Named cases on which right kernels and wrong ones differ, in float64.

`rollout` makes the arguments of every return estimator at once, `transitions` those of `q_targets`
and `q_loss`, `policy_rows` those of `ppo_loss` and `policy_gradient_loss`, `features` those of
`allo_loss` and `ggdo_loss`. For each family a function `…situations` lists the cases that matter.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from loopless.verify.cases.batches import LOSS, ROWS


@dataclass(frozen=True)
class Situation:
    """A named case that some known mistake fails on."""

    name: str
    data: dict


# --- rollouts


def rollout(
    shape: tuple[int, ...],
    seed: int,
    *,
    terminated: float = 0.1,
    truncated: float = 0.1,
    gamma: float = 0.9,
    lambda_: float = 0.8,
) -> dict:
    """Return arguments [T, ...] of any estimator, with episode ends at these rates."""
    rng = np.random.default_rng(seed)
    following = rng.standard_normal((shape[0] + 1, *shape[1:]))
    data = {
        "rewards": rng.standard_normal(shape),
        "values": following[:-1].copy(),
        "next_values": following[1:].copy(),
        "q_values": rng.standard_normal(shape),
        "log_ratios": 0.5 * rng.standard_normal(shape),
        "log_policy": -rng.exponential(size=shape),
        "terminated": rng.random(shape) < terminated,
        "truncated": rng.random(shape) < truncated,
        "mask": rng.random(shape) < 0.7,
        "gamma": gamma,
        "lambda_": lambda_,
    }
    ended = data["terminated"] | data["truncated"]
    data["next_values"][ended] = rng.standard_normal(int(ended.sum()))
    return data


def padded(data: dict, valid: np.ndarray, fill: float) -> dict:
    """Return `data` with `fill` in every cell that is not valid; flags there are set."""
    out = dict(data, valid=valid)
    for name, x in data.items():
        if isinstance(x, np.ndarray) and name not in ("valid", "gamma", "lambda_"):
            out[name] = np.where(valid, x, fill if x.dtype.kind == "f" else True)
    out["mask"] = data["mask"] & valid
    return out


def situations(shape: tuple[int, ...] = (12, 3)) -> list[Situation]:
    """Return the rollouts that together catch every mistake in `verify.mutants.returns`."""
    never = {"terminated": 0.0, "truncated": 0.0}
    steps = shape[0]

    plain = rollout(shape, 1, **never)
    terminal = rollout(shape, 2, terminated=0.3, truncated=0.0)

    interior = rollout(shape, 3, **never)
    interior["truncated"][steps // 2] = True
    interior["values"][steps // 2 + 1 :] += 1e3  # the next episode: nothing of it may leak back

    both = rollout(shape, 4, **never)
    both["terminated"][steps // 3] = both["truncated"][steps // 3] = True

    unread = rollout(shape, 5, terminated=0.3)
    unread["next_values"][unread["terminated"]] = np.nan

    lengths = np.arange(int(np.prod(shape[1:]))).reshape(shape[1:]) * steps // 3
    valid = np.arange(steps).reshape(-1, *[1] * (len(shape) - 1)) < lengths
    ragged = rollout(shape, 6)

    # The flags in padding are false here, so that only `valid` marks the last real step.
    unflagged = padded(rollout(shape, 12, **never), valid, 1e6)
    unflagged["terminated"] = unflagged["truncated"] = np.zeros(shape, bool)

    spoilt = rollout(shape, 7, **never)
    spoilt["truncated"][steps // 2] = True
    spoilt["rewards"][steps // 2 + 1] = np.nan

    ratios = rollout(shape, 10)
    ratios["log_ratios"] = ratios["log_ratios"] * 4

    tail = rollout((3000, 2), 9, terminated=0.0, truncated=0.002, gamma=0.999, lambda_=0.999)
    fast = rollout((1000, 2), 11, terminated=0.0, truncated=0.0, gamma=0.7, lambda_=0.5)
    fast["rewards"][-1] = 1e8  # matters even far away, where a truncated filter sees nothing

    return [
        Situation("one episode that outlasts the window", plain),
        Situation("terminations", terminal),
        Situation("a truncation inside the window", interior),
        Situation("terminated and truncated at once", both),
        Situation("NaN where a terminated row's successor value would be", unread),
        Situation("padding that holds NaN", padded(ragged, valid, np.nan)),
        Situation("padding that holds large numbers", padded(ragged, valid, 1e6)),
        Situation("columns cut off by their length alone", unflagged),
        Situation("NaN in the next episode", spoilt),
        Situation("ratios far from 1", ratios),
        Situation("a long window, γλ near 1", tail),
        Situation("a long window, γλ small", fast),
        Situation("one row", rollout((1, *shape[1:]), 8)),
    ]


# --- transitions

# A batch that is small enough to check by hand.
FIXTURE = {
    "gamma": 0.9,
    "q": np.array([[1.0, 2, 0], [0, 0, 0], [3, -1, 2], [5, 5, 5]]),
    "actions": np.array([1, 0, 2, 0]),
    "rewards": np.array([1, -1, 0.5, 2]),
    "terminated": np.array([False, True, False, False]),
    "truncated": np.array([False, False, True, False]),
    "next_q_online": np.array([[2.0, 1, 0], [9, 9, 9], [0, 4, 1], [1, 1, 1]]),
    "next_q": np.array([[0.5, 3, 1], [100, 100, 100], [2, -2, 7], [4, 6, 5]]),
    "next_actions": np.array([1, 2, 2, 0]),
}


def transitions(
    shape: tuple[int, ...],
    actions: int,
    seed: int,
    *,
    terminated: float = 0.3,
    truncated: float = 0.3,
    gamma: float = 0.9,
) -> dict:
    """Return arguments for transitions [..., B] with so many actions and ends at these rates.

    The targets are random numbers for `q_loss`; they do not follow from the other arguments.
    """
    rng = np.random.default_rng(seed)
    return {
        "q": rng.standard_normal((*shape, actions)),
        "actions": rng.integers(0, actions, shape),
        "rewards": rng.standard_normal(shape),
        "terminated": rng.random(shape) < terminated,
        "truncated": rng.random(shape) < truncated,
        "next_q": rng.standard_normal((*shape, actions)),
        "next_q_online": rng.standard_normal((*shape, actions)),
        "next_actions": rng.integers(0, actions, shape),
        "targets": 2.0 * rng.standard_normal(shape),
        "weights": rng.uniform(0.1, 1.0, shape),
        "gamma": gamma,
    }


def call_loss(function, data: Mapping, **options):
    """Call `function`, one like `q_loss`, with the weights in `data` if there are any."""
    return function(*(data[name] for name in LOSS), weights=data.get("weights"), **options)


def transition_situations() -> list[Situation]:
    """Return the batches that together catch every mistake in `verify.mutants.q_learning`."""
    unread = transitions((2, 6), 3, 1, terminated=0.5)
    unread["next_q"][unread["terminated"]] = np.nan
    unread["next_q_online"][unread["terminated"]] = np.inf

    ties = transitions((7,), 4, 2)
    ties["next_q_online"] = np.round(ties["next_q_online"])

    windows = transitions((3, 5), 3, 3)
    windows["gamma"] = 0.9 ** np.random.default_rng(4).integers(1, 6, (3, 5))

    unweighted = transitions((4, 6), 3, 5)
    del unweighted["weights"]

    weightless = transitions((2, 6), 3, 6)
    weightless["weights"][:, ::2] = 0.0
    weightless["targets"][:, 0] = np.nan

    return [
        Situation("the fixture", FIXTURE | {"targets": np.array([1.45, -1, -1.3, 5.6])}),
        Situation("several batches", transitions((3, 8), 2, 7)),
        Situation("NaN and infinity after a terminal state", unread),
        Situation("equal values", ties),
        Situation("windows of several lengths", windows),
        Situation("batches without weights", unweighted),
        Situation("weights of 0, on NaN", weightless),
        Situation("one sample", transitions((1,), 3, 8, terminated=0.0)),
        Situation("batches of one sample", transitions((3, 1), 3, 9, terminated=0.0)),
        Situation("one action", transitions((5,), 1, 10)),
    ]


# --- steps of a policy


def policy_rows(shape: tuple[int, ...], seed: int, *, moved: float = 0.3) -> dict:
    """Return arguments of either loss, with log-ratios of about `moved` and none on a kink.

    Returns and old values lie around the values, so that a clipped value may be nearer or farther.
    """
    rng = np.random.default_rng(seed)
    log_probs, values = -rng.exponential(size=shape), rng.standard_normal(shape)
    return {
        "log_probs": log_probs,
        "old_log_probs": log_probs - moved * rng.standard_normal(shape),
        "advantages": rng.standard_normal(shape),
        "values": values,
        "returns": values + rng.standard_normal(shape),
        "entropies": rng.exponential(size=shape),
        "old_values": values + 0.5 * rng.standard_normal(shape),
        "clip": 0.2,
        "value_coefficient": 0.7,
        "entropy_coefficient": 0.05,
    }


def padded_rows(data: Mapping, valid: np.ndarray, fill: float) -> dict:
    """Return `data` with `fill` in every row that is not valid."""
    rows = {name: np.where(valid, data[name], fill) for name in ROWS}
    return {**data, **rows, "valid": valid}


def policy_situations() -> list[Situation]:
    """Return the batches that together catch every mistake in `verify.mutants.policy_gradient`."""
    holes = np.random.default_rng(0).random((4, 6)) < 0.6
    lengths = np.arange(4)[:, None] < np.array([4, 3, 0, 1, 2, 4])

    first = policy_rows((12,), 1)
    first["old_log_probs"] = first["log_probs"].copy()

    sure = policy_rows((12,), 2)
    sure |= {"value_coefficient": 1.0, "entropy_coefficient": 0.0, "advantages": np.ones(12)}

    far = policy_rows((12,), 3, moved=3.0)
    far["clip"] = 0.1

    overflow = policy_rows((12,), 4)
    overflow["log_probs"][:3] = 800.0
    overflow["advantages"][:3] = 2.0, 0.0, 1.0
    overflow["old_log_probs"][:3] = -800.0

    return [
        Situation("several rows", policy_rows((12,), 5)),
        Situation("several axes, values clipped", policy_rows((2, 3, 4), 6) | {"value_clip": 0.3}),
        Situation("ratios of 1, as before the first step", first),
        Situation("advantages of one sign, no bonus", sure),
        Situation("ratios far from 1", far),
        Situation("ratios beyond all numbers", overflow),
        Situation("padding that holds NaN", padded_rows(policy_rows((4, 6), 7), holes, np.nan)),
        Situation(
            "padding that holds infinity, values clipped",
            padded_rows(policy_rows((4, 6), 8) | {"value_clip": 0.2}, lengths, np.inf),
        ),
        Situation("padding that holds numbers", padded_rows(policy_rows((4, 6), 9), holes, 3.0)),
        Situation("no valid row", padded_rows(policy_rows((4, 6), 10), holes & False, np.nan)),
        Situation("one row", policy_rows((1,), 11) | {"value_clip": 0.1}),
    ]


# --- features of states

GGDO = ("features", "next_features", "other_features", "barrier", "constraint_features")


def features(shape: tuple[int, ...], seed: int, *, others: int | None = None) -> dict:
    """Return arguments for features [..., n, d], with another batch of `others` samples."""
    rng = np.random.default_rng(seed)
    *lead, n, d = shape
    others = n if others is None else others
    return {
        "features": rng.standard_normal(shape),
        "next_features": rng.standard_normal(shape),
        "other_features": rng.standard_normal((*lead, others, d)),
        "duals": np.tril(rng.standard_normal((*lead, d, d))),
        "barrier": rng.uniform(0.5, 2.0, tuple(lead)),
    }


def call_ggdo(function, data: Mapping):
    """Call `function`, one like `ggdo_loss`, with those of its arguments that are in `data`."""
    named = {name: data[name] for name in GGDO[3:] if name in data}
    return function(*(data[name] for name in GGDO[:3]), **named)


def feature_situations() -> list[Situation]:
    """Return the batches that together catch every mistake in `verify.mutants.laplacian`."""
    rng = np.random.default_rng(0)
    apart = {"constraint_features": rng.standard_normal((4, 3)), "scale": "full"}
    summed = {"integral": np.tril(rng.standard_normal((3, 3))), "integral_gain": 0.3}
    nearly = features((6, 3), 5)
    orthonormal = np.linalg.qr(rng.standard_normal((6, 3)))[0] * np.sqrt(6)
    orthonormal[:, 1] *= 1.5  # the second row is off, so that the third component waits
    gated = nearly | {"features": orthonormal, "gate_threshold": 0.1}
    small = features((6, 3), 6)
    small["features"] *= 0.3
    squared = {"perturbation": "squared", "perturbation_scale": 0.5, "perturbation_width": 0.4}
    return [
        Situation("half", features((5, 3), 1)),
        Situation("full", features((5, 3), 2) | {"scale": "full"}),
        Situation("full, constraints on a third batch", features((5, 3), 3, others=6) | apart),
        Situation("integral", features((5, 3), 4) | summed | {"proportional_gain": 0.7}),
        Situation("a gate half open", gated),
        Situation("a gate half open, full", gated | {"scale": "full"}),
        Situation("exponential lift", small | {"perturbation": "exponential"}),
        Situation("squared lift", small | squared),
        Situation("squared lift without a slope", small | {"perturbation": "squared-null-grad"}),
        Situation("one component", features((5, 1), 8) | {"perturbation": "exponential"}),
        Situation("one sample", features((1, 3), 9)),
        Situation("two problems", features((2, 5, 3), 10, others=4) | {"scale": "full"}),
    ]
