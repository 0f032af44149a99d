"""Named batches of features that tell right Laplacian losses from wrong, as float64 arguments.

`features` makes the arguments of `allo_loss` and `ggdo_loss` at once; `situations` lists the ones
that matter, for ALLO with the options that they need.
"""

import numpy as np

from loopless.verify.cases.rollouts import Situation

ARGUMENTS = ("features", "next_features", "other_features", "duals", "barrier")  # by position
GGDO = ("features", "next_features", "other_features", "barrier", "constraint_features")


def features(shape: tuple[int, ...], seed: int, *, others: int | None = None) -> dict:
    """Arguments for features [..., n, d], with another batch of `others` samples."""
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


def call_allo(function, data: dict):
    """`function`, one like `allo_loss`, on all of `data`."""
    rest = {name: x for name, x in data.items() if name not in ARGUMENTS}
    return function(*(data[name] for name in ARGUMENTS), **rest)


def call_ggdo(function, data: dict):
    """`function`, one like `ggdo_loss`, on what it takes of `data`."""
    named = {name: data[name] for name in GGDO[3:] if name in data}
    return function(*(data[name] for name in GGDO[:3]), **named)


def situations() -> list[Situation]:
    """The batches that between them catch every mistake in `verify.mutants.laplacian`."""
    rng = np.random.default_rng(0)
    apart = {"constraint_features": rng.standard_normal((4, 3)), "scale": "full"}
    summed = {"integral": np.tril(rng.standard_normal((3, 3))), "integral_gain": 0.3}
    nearly = features((6, 3), 5)
    orthonormal = np.linalg.qr(rng.standard_normal((6, 3)))[0] * np.sqrt(6)
    orthonormal[:, 1] *= 1.5  # the second row is off, so that the third component waits
    small = features((6, 3), 6)
    small["features"] *= 0.3
    return [
        Situation("half", features((5, 3), 1)),
        Situation("full", features((5, 3), 2) | {"scale": "full"}),
        Situation("full, constraints on a third batch", features((5, 3), 3, others=6) | apart),
        Situation("integral", features((5, 3), 4) | summed | {"proportional_gain": 0.7}),
        Situation("a gate half open", nearly | {"features": orthonormal, "gate_threshold": 0.1}),
        Situation("a gate half open, full", nearly | {
            "features": orthonormal, "gate_threshold": 0.1, "scale": "full",
        }),
        Situation("exponential lift", small | {"perturbation": "exponential"}),
        Situation("squared lift", small | {
            "perturbation": "squared", "perturbation_scale": 0.5, "perturbation_width": 0.4,
        }),
        Situation("squared lift without a slope", small | {"perturbation": "squared-null-grad"}),
        Situation("one component", features((5, 1), 8) | {"perturbation": "exponential"}),
        Situation("one sample", features((1, 3), 9)),
        Situation("two problems", features((2, 5, 3), 10, others=4) | {"scale": "full"}),
    ]  # fmt: skip
