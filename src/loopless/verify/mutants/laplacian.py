"""ALLO as it goes wrong in real code. Each docstring is the diagnosis that its author should read.

Mutants of `allo_step` take all arguments of `allo_loss` as a dictionary and return the parts of the
loss and its gradients by the features and the multipliers, as a dictionary of float64 arrays. Those
of `eigenvalues` and `kernel_eigenvalues` take the arguments of the function that they break.
"""

import numpy as np

from loopless.reference import laplacian as reference
from loopless.verify.cases.batches import call_allo


def right_step(data: dict) -> dict:
    """Return the right parts of the loss, and its gradients as "by_" and the argument's name."""
    loss, parts = call_allo(reference.allo_loss, data)
    gradients = call_allo(reference.allo_gradients, data)
    return {"loss": loss, **parts, **{f"by_{name}": x for name, x in gradients.items()}}


def keeps_the_upper_triangle(data: dict) -> dict:
    """Keeps the upper triangle: feature j then gives way to later ones, and the order is
    reversed."""
    flipped = {
        name: np.flip(x, -1) if "features" in name else x
        for name, x in data.items()
        if name not in ("duals", "integral")
    }
    flipped |= {k: np.flip(data[k], (-2, -1)) for k in ("duals", "integral") if k in data}
    step = right_step(flipped | {"duals": np.swapaxes(flipped["duals"], -1, -2)})
    for name in ("errors", "other_errors", "by_duals"):
        step[name] = np.flip(step[name], (-2, -1))
    for name in [name for name in step if name.startswith("by_") and "features" in name]:
        step[name] = np.flip(step[name], -1)
    return step


def differentiates_both_sides(data: dict) -> dict:
    """Lets the gradient through both sides of an inner product: earlier features then move to make
    room for later ones, and the order is lost."""
    step = right_step(data)
    if data.get("scale", "half") == "half" and "gate_threshold" not in data:
        pulls = (
            data["duals"] + 2.0 * np.expand_dims(data["barrier"], (-2, -1)) * step["other_errors"]
        )
        x = data["features"]
        step["by_features"] = step["by_features"] + x @ np.tril(pulls) / x.shape[-2]
    return step


def loses_the_factor_two(data: dict) -> dict:
    """Loses the factor 2 that stopping one of two errors takes: the barrier pulls half as hard."""
    if data.get("scale", "half") == "full":
        return right_step(data)
    step, weak = right_step(data), right_step(data | {"barrier": 0.5 * data["barrier"]})
    weaker = {name: weak[name] for name in ("loss", "barrier", "barrier_ascent", "by_features")}
    return step | weaker | {name: 0.5 * step[name] for name in ("q", "by_barrier")}


def lowers_the_duals(data: dict) -> dict:
    """Has the sign of the dual term wrong: descent then minimizes over the duals too, and they run
    away."""
    step = right_step(data)
    negated = {name: -step[name] for name in ("dual_ascent", "by_duals")}
    return step | negated | {"loss": step["loss"] - 2.0 * step["dual_ascent"]}


def uses_one_batch_twice(data: dict) -> dict:
    """Uses one batch for both errors: the square of a noisy error is not the error squared, so that
    the constraint never reads 0."""
    same = data.get("constraint_features", data["features"])
    step = right_step(data | {"other_features": same})
    return step | {"by_other_features": np.zeros_like(data["other_features"])}


def trains_on_the_second_batch(data: dict) -> dict:
    """Leaves the second batch's features in the graph: in the half scale its gradient is not part
    of the method, and costs a backward pass."""
    step = right_step(data)
    if data.get("scale", "half") == "half":
        x, barrier = data["other_features"], np.expand_dims(data["barrier"], (-2, -1))
        pulls = np.where(step["gate"][..., None], 2.0 * barrier * step["errors"], 0.0)
        step["by_other_features"] = x @ np.swapaxes(pulls, -1, -2) / x.shape[-2]
    return step


def lets_the_barrier_fall(data: dict) -> dict:
    """Lets the barrier follow the sign of q, which a noisy batch makes negative: it must not
    fall."""
    step = right_step(data)
    fall = data["barrier"] * step["q"]
    return step | {
        "barrier_ascent": -fall,
        "by_barrier": -step["q"],
        "loss": step["loss"] - step["barrier_ascent"] - fall,
    }


def reads_the_full_scale_by_half(duals, barrier, errors, *, scale="half"):
    """Reads λ = −β/2 whatever the scale: where the graph loss has no ½ every eigenvalue comes out
    twice as large as it should be."""
    return reference.eigenvalues(duals, barrier, errors)


def reads_the_duals_alone(duals, barrier, errors, *, scale="half"):
    """Reads the duals without the share of the error: they lag by 2b / rate steps, often the whole
    run."""
    return reference.eigenvalues(duals, 0.0, errors, scale=scale)


def takes_the_successor_representation(steps, gamma):
    """Compares with eigenvalues of the successor representation: pairs a gap ≥ 1 apart have those
    of K, larger by 1/γ."""
    return 1 - (1 - gamma) / (1 - gamma * np.asarray(steps))


ALL = (
    ("allo_step", keeps_the_upper_triangle),
    ("allo_step", differentiates_both_sides),
    ("allo_step", loses_the_factor_two),
    ("allo_step", lowers_the_duals),
    ("allo_step", uses_one_batch_twice),
    ("allo_step", trains_on_the_second_batch),
    ("allo_step", lets_the_barrier_fall),
    ("eigenvalues", reads_the_full_scale_by_half),
    ("eigenvalues", reads_the_duals_alone),
    ("kernel_eigenvalues", takes_the_successor_representation),
)
