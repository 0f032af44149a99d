"""ALLO as the commands see it: make a run, export its encoder and eigenvalues.

Imports the rest of ALLO. Tests: `tests/train/test_allo_runs.py`.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from loopless.nets.q_network import plain_layers
from loopless.runs.failures import BadConfig
from loopless.train.allo.algorithm import rebuilt
from loopless.train.allo.config import ALLO
from loopless.train.allo.data import observations_of
from loopless.train.allo.run import Run
from loopless.train.engine.export import describe_network

USE = (
    "For each layer but the last: x = activation(x @ weight + bias). Last layer: features = "
    "x @ weight + bias, one for each component, those of small eigenvalues first. `eigenvalues` "
    "are the components' own; features · scales, which are 1/√eigenvalue and 0 for the first, "
    "constant one, are those in which distance means time to reach."
)
INPUTS = {
    "xy": "The observation is (column, row) less half of (width, height), over half the longer side"
    " of the grid. ",
    "onehot": "The observation is the free cell's number, row by row, as one-hot. ",
    "pixels": "The observation is the grid as a picture: walls grey, the agent red. ",
}
SMALLEST = 1e-6  # of an eigenvalue that is learned, and so may come out below 0


def make(config: ALLO) -> Run:
    """The run that `config` describes."""
    return Run(config)


def player(config: ALLO, weights: Mapping[str, np.ndarray]) -> Any:
    raise BadConfig(["allo learns a representation, and has no policy to play. See export."])


def export(
    config: ALLO, weights: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays of an encoder, its eigenvalues, and a card that says how to use them."""
    shape, dtype = observations_of(config)
    net = rebuilt(config, shape, dtype)(jnp.asarray(weights["online"]))
    arrays, card, start = describe_network(plain_layers(net), net.images)
    values = np.asarray(weights["eigenvalues"], np.float32)
    scales = 1 / np.sqrt(np.maximum(values, SMALLEST))
    scales[0] = 0
    arrays |= {"eigenvalues": values, "scales": scales.astype(np.float32)}
    card |= {
        "grid": config.grid if config.data is None else None,
        "data": None if config.data is None else str(config.data),
        "observation": {"shape": list(shape), "dtype": dtype},
        "components": config.components,
        "discount": config.discount,
        "activation": config.activation,
        "use": (INPUTS[config.inputs] if config.data is None else "") + start + USE,
    }
    return arrays, card
