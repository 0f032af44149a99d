"""Describe networks by plain arrays and words: what the exports of all trainers share."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from loopless.envs.spaces import Box

FLAT = "x is the observation, flat, as float32; a Discrete one as one-hot. "
PICTURE = (
    "x is the image [height, width, channels] as float32, divided by 255 if it was bytes. "
    "For each of conv: x = activation(convolution(x, weight) + bias), the weight being "
    "[height, width, in, out], no padding, by its stride. Then x is flattened row by row. "
)


def describe_observations(obs: Box) -> dict[str, Any]:
    """Return the card's entry about observations, as the environment gives them."""
    if obs.one_hot_start is not None:
        discrete = {"n": obs.shape[0], "start": obs.one_hot_start}
        return {"shape": list(obs.shape), "dtype": obs.dtype, "discrete": discrete}
    return {"shape": list(obs.shape), "dtype": obs.dtype}


def describe_network(
    layers: Iterable[tuple[Any, Any]], images: Any
) -> tuple[dict[str, np.ndarray], dict[str, Any], str]:
    """Return the arrays of dense `layers` (weight, bias) and of the convolutions before them.

    images: the convolutions, or None. With the arrays come the entries of the card about them, and
    the sentences on how an observation becomes the input x.
    """
    arrays: dict[str, np.ndarray] = {}
    for number, (weight, bias) in enumerate(layers):
        arrays |= {f"layers/{number}/weight": np.asarray(weight)}
        arrays |= {f"layers/{number}/bias": np.asarray(bias)}
    card: dict[str, Any] = {"layers": len(arrays) // 2}
    if images is None:
        return arrays, card, FLAT
    for number, (kernel, bias) in enumerate(zip(images.weights, images.biases, strict=True)):
        arrays |= {f"conv/{number}/weight": np.asarray(kernel)}
        arrays |= {f"conv/{number}/bias": np.asarray(bias)}
    return arrays, card | {"strides": list(images.strides)}, PICTURE
