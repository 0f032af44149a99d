"""The loop twins of the kernels: plain Python, one element at a time, the truth to test by."""

from loopless.reference import avatarl, episodic, esper, laplacian, replay
from loopless.reference.off_policy import retrace, vtrace
from loopless.reference.policy_gradient import (
    policy_gradient_loss,
    policy_gradient_loss_gradients,
    ppo_loss,
    ppo_loss_gradients,
)
from loopless.reference.q_learning import q_loss, q_loss_gradients, q_targets
from loopless.reference.returns import (
    discounted_returns,
    gae,
    gae_forward,
    lambda_returns,
    n_step_returns,
    normalize,
    token_gae,
    upgo,
)
from loopless.reference.rollouts import successor_values, unlag, valid_mask
from loopless.reference.scan import affine_scan, affine_scan_gradients

__all__ = [
    "affine_scan",
    "affine_scan_gradients",
    "avatarl",
    "discounted_returns",
    "episodic",
    "esper",
    "gae",
    "gae_forward",
    "lambda_returns",
    "laplacian",
    "n_step_returns",
    "normalize",
    "policy_gradient_loss",
    "policy_gradient_loss_gradients",
    "ppo_loss",
    "ppo_loss_gradients",
    "q_loss",
    "q_loss_gradients",
    "q_targets",
    "replay",
    "retrace",
    "successor_values",
    "token_gae",
    "unlag",
    "upgo",
    "valid_mask",
    "vtrace",
]
