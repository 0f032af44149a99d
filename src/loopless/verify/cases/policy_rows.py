"""Named batches that tell right policy-gradient losses from wrong, as plain float64 arguments.

`policy_rows` makes the arguments of `ppo_loss` and `policy_gradient_loss` at once; `situations`
lists the batches that matter. Tests: `tests/kernels/test_policy_gradient_*.py` and
`tests/verify/test_mutants.py`.
"""

import numpy as np

from loopless.verify.cases.rollouts import Situation

PPO = ("log_probs", "old_log_probs", "advantages", "values", "returns", "entropies")
POLICY_GRADIENT = ("log_probs", "advantages", "values", "returns", "entropies")
INPUTS = ("log_probs", "values", "entropies")  # what a gradient reaches
ROWS = (*PPO, "old_values")

_OPTIONS = ("value_coefficient", "entropy_coefficient", "valid")
_PPO_OPTIONS = (*_OPTIONS, "clip", "value_clip", "old_values")


def policy_rows(shape: tuple[int, ...], seed: int, *, moved: float = 0.3) -> dict:
    """Arguments of either loss, with log-ratios of about `moved`; none of them on a kink.

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


def padded(data: dict, valid: np.ndarray, fill: float) -> dict:
    """The same arguments with `fill` in every row that is not valid."""
    rows = {name: np.where(valid, data[name], fill) for name in ROWS}
    return data | rows | {"valid": valid}


def call_ppo(function, data: dict, **options):
    """`function`, one like `ppo_loss`, with what of its options is in `data`."""
    found = {name: data[name] for name in _PPO_OPTIONS if name in data}
    return function(*(data[name] for name in PPO), **found | options)


def call_policy_gradient(function, data: dict, **options):
    """`function`, one like `policy_gradient_loss`, likewise."""
    found = {name: data[name] for name in _OPTIONS if name in data}
    return function(*(data[name] for name in POLICY_GRADIENT), **found | options)


def situations() -> list[Situation]:
    """The batches that between them catch every mistake in `verify.mutants.policy_gradient`."""
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
        Situation("padding that holds NaN", padded(policy_rows((4, 6), 7), holes, np.nan)),
        Situation(
            "padding that holds infinity, values clipped",
            padded(policy_rows((4, 6), 8) | {"value_clip": 0.2}, lengths, np.inf),
        ),
        Situation("padding that holds numbers", padded(policy_rows((4, 6), 9), holes, 3.0)),
        Situation("no valid row", padded(policy_rows((4, 6), 10), holes & False, np.nan)),
        Situation("one row", policy_rows((1,), 11) | {"value_clip": 0.1}),
    ]
