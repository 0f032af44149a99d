"""Named rollouts on which right return estimators and wrong ones differ, in float64.

`rollout` makes the arguments of every estimator at once; `situations` lists the rollouts that
matter. Steps follow one another as a real collector's do: the successor value of a step is the
value of the next step, except where an episode ended.
"""

import numpy as np

from loopless.verify.cases import Situation


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
