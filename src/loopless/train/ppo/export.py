"""A PPO policy as arrays and words, enough to act from NumPy alone.

Imports `exports` and `ppo`. Tests: `tests/train/test_ppo_export.py`, which acts by the words.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from loopless.nets.distributions import ChoiceHead, Head
from loopless.train.engine.export import described
from loopless.train.engine.statistics import LARGEST, SMALLEST
from loopless.train.ppo.algorithm import Algorithm

NORMALIZE = f"x = clip((observation − obs_mean) · obs_scale, ±{LARGEST:g}) takes its place first. "
BODY = "For each layer but the last: x = activation(x @ weight + bias). "
CORES = {
    "none": "",
    "gru": "Memory h is zeros at an episode's start. i = x @ core/inputs/weight + core/inputs/bias "
    "and u = h @ core/recurrent, each cut into three, ir, iz, in and ur, uz, un. r = σ(ir + ur), "
    "z = σ(iz + uz + 1), n = tanh(in + r · (un + core/bias)). h = n + z · (h − n), x = h. ",
    "lstm": "Memory h, c is zeros at an episode's start. x @ core/inputs/weight + core/inputs/bias "
    "+ h @ core/recurrent is cut into four, i, f, o, g. c = σ(f + 1) · c + σ(i) · tanh(g). "
    "h = σ(o) · tanh(c), x = h. ",
}
LAST = "Last layer: out = x @ weight + bias. "


def described_policy(
    algorithm: Algorithm, weights: Mapping[str, Any]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays, and a card that says how to act by them."""
    config, obs = algorithm.config, algorithm.obs
    net = algorithm.rebuild(jnp.asarray(weights["online"]))
    dense = [(layer.weight, layer.bias) for layer in (*net.body.layers, net.policy)]
    arrays, layers, start = described(dense, net.images)
    if config.normalize_obs:
        variance = np.asarray(weights["obs_variance"]) + np.float32(SMALLEST)
        arrays["obs_mean"] = np.asarray(weights["obs_mean"])
        arrays["obs_scale"] = np.float32(1) / np.sqrt(variance)
        start += NORMALIZE
    if net.core is not None:
        arrays |= {
            "core/inputs/weight": np.asarray(net.core.inputs.weight),
            "core/inputs/bias": np.asarray(net.core.inputs.bias),
            "core/recurrent": np.asarray(net.core.recurrent),
        }
        if config.core == "gru":
            arrays["core/bias"] = np.asarray(getattr(net.core, "bias"))  # noqa: B009
    if algorithm.head.own:
        arrays["log_std"] = np.asarray(net.own)
    actions, choice = _of_actions(algorithm.head)
    card = {
        "env": config.env,
        "observation": {"shape": list(obs.shape), "dtype": obs.dtype},
        **actions,
        "activation": config.activation,
        "core": config.core,
        **layers,
        "use": start + BODY + CORES[config.core] + LAST + choice,
    }
    return arrays, card


def _of_actions(head: Head) -> tuple[dict[str, Any], str]:
    """What a card says of the actions, and how to take one from the last layer's out."""
    if isinstance(head, ChoiceHead):
        if not head.several:
            return {"actions": head.sizes[0]}, (
                "The action is argmax(out), the first of equals, counted from the start of the "
                "action space; actions that are not legal are left out. In training actions were "
                "drawn with probabilities softmax(out)."
            )
        return {"actions": list(head.sizes)}, (
            "out is cut into parts as long as the numbers of `actions`; each choice is the argmax "
            "of its part, the first of equals. In training it was drawn with softmax(part)."
        )
    box = {"shape": list(head.shape), "low": list(head.low), "high": list(head.high)}
    scale = "the second half of out" if head.state_std else "log_std"
    mean = "its first half" if head.state_std else "out"
    bound = "low + (tanh(u) + 1) / 2 · (high − low)" if head.squash else "clip(u, low, high)"
    return {"actions": {**box, "squash": head.squash, "state_std": head.state_std}}, (
        f"u is {mean}, and the action is {bound}, in its shape. In training u was drawn from a "
        f"normal law with that mean and the deviation exp({scale})."
    )
