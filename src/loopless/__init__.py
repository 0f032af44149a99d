"""Reinforcement-learning hot paths with no Python loop in them, checked against the loop they replace."""

from loopless.kernels.normalize import normalize
from loopless.kernels.off_policy import retrace, vtrace
from loopless.kernels.returns import (
    discounted_returns,
    gae,
    lambda_returns,
    n_step_returns,
    token_gae,
    upgo,
)
from loopless.kernels.rollouts import successor_values, unlag, valid_mask
from loopless.kernels.scan import affine_scan

__version__ = "0.1.0"

__all__ = [
    "affine_scan",
    "discounted_returns",
    "gae",
    "lambda_returns",
    "n_step_returns",
    "normalize",
    "retrace",
    "successor_values",
    "token_gae",
    "unlag",
    "upgo",
    "valid_mask",
    "vtrace",
]
