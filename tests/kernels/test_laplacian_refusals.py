"""What the Laplacian losses refuse, and in which words."""

import numpy as np
import pytest
import torch
from support.situations import call_ggdo, features

from loopless.kernels.laplacian.losses import allo_loss, ggdo_loss
from loopless.verify.cases.batches import call_allo

PLAIN = features((5, 3), 0)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"features": [[1.0]]}, TypeError, "features is a list; pass a NumPy array"),
        ({"features": np.zeros(3)}, ValueError, r"features has shape \(3,\).*\[..., n, d\]"),
        ({"features": np.zeros((0, 3))}, ValueError, "at least one sample"),
        ({"features": np.zeros((5, 0))}, ValueError, "one component"),
        ({"features": np.zeros((5, 3), int)}, TypeError, "features has dtype int64"),
        ({"next_features": np.zeros((4, 3))}, ValueError, r"next_features has shape \(4, 3\)"),
        ({"other_features": np.zeros((4, 2))}, ValueError, r"it must be \(m, 3\)"),
        ({"other_features": torch.zeros(4, 3)}, TypeError, "other_features is a torch array"),
        ({"constraint_features": np.zeros((2, 4, 3))}, ValueError, "constraint_features has shape"),
        ({"duals": np.zeros((3, 2))}, ValueError, r"duals has shape \(3, 2\).*\(3, 3\)"),
        ({"duals": np.zeros((3, 3), bool)}, TypeError, "duals has dtype bool"),
        ({"integral": np.zeros(3)}, ValueError, "integral has shape"),
        ({"integral_gain": 0.1}, ValueError, "integral_gain=0.1 without an integral"),
        ({"barrier": -0.5}, ValueError, "barrier must be at least 0; received -0.5"),
        ({"barrier": float("nan")}, ValueError, "barrier must be at least 0; received nan"),
        ({"barrier": True}, TypeError, "barrier is a bool; it must be a number"),
        ({"barrier": np.array(-1.0)}, ValueError, "barrier must be at least 0; received -1.0"),
        ({"barrier": np.zeros(4)}, ValueError, r"barrier has shape \(4,\)"),
        ({"barrier": None}, TypeError, "barrier is a NoneType"),
        ({"scale": "whole"}, ValueError, "scale='whole' is unknown; choose one of half, full"),
        ({"perturbation": "cubed"}, ValueError, "perturbation='cubed' is unknown"),
        ({"gate_threshold": 0.0}, ValueError, "gate_threshold must be above 0; received 0"),
        ({"gate_threshold": "high"}, TypeError, "gate_threshold is a str"),
        ({"proportional_gain": None}, TypeError, "proportional_gain is a NoneType"),
        ({"perturbation_width": 0.0}, ValueError, "perturbation_width must be above 0"),
    ],
)
def test_wrong_arguments_are_named(changes, error, words):
    with pytest.raises(error, match=f"allo_loss: .*{words}"):
        call_allo(allo_loss, PLAIN | changes)


def test_ggdo_says_its_own_name():
    with pytest.raises(ValueError, match="ggdo_loss: next_features has shape"):
        call_ggdo(ggdo_loss, PLAIN | {"next_features": np.zeros((4, 3))})


def test_numbers_of_numpy_are_numbers():
    numbers = {"proportional_gain": np.float64(1.0), "gate_threshold": np.float32(0.5)}
    loss, _ = call_allo(allo_loss, PLAIN | numbers | {"barrier": np.float64(0.5)})
    assert np.isfinite(loss)
