"""Helpers of the Laplacian losses' tests: calls, gradients, and checks that catch mutants."""

import jax
import numpy as np
import torch

from loopless.envs.grids import laplacian as grid_laplacian
from loopless.kernels.laplacian import duals as laplacian_duals
from loopless.kernels.laplacian.losses import allo_loss
from loopless.reference import laplacian as reference
from loopless.verify.cases.batches import ALLO, call_allo
from loopless.verify.mutants import laplacian as mutants
from support.backends import JAX, TORCH
from support.compare import assert_close
from support.situations import feature_situations

SITUATIONS = feature_situations()
WITH_GRADIENTS = (*ALLO, "constraint_features")


def assert_alike(actual: dict, expected: dict, dtype: str = "float64", what: str = "") -> None:
    """Assert that both have the same names, shapes and values."""
    assert actual.keys() == expected.keys()
    for name, x in expected.items():
        assert np.shape(actual[name]) == np.shape(x), f"{what}: {name}"
        assert_close(actual[name], x, dtype, f"{what}: {name}")


def step(backend, function, call, data: dict, dtype: str = "float64") -> dict:
    """Return the loss, its parts, and the gradients of its sum by the library's own autodiff."""
    arguments = backend.arguments(data, dtype)
    moving = {k: x for k, x in arguments.items() if k in WITH_GRADIENTS and backend.owns(x)}
    if backend is JAX:

        def total(moving):
            loss, parts = call(function, arguments | moving)
            return loss.sum(), (loss, parts)

        gradients, (loss, parts) = jax.grad(total, has_aux=True)(moving)
    elif backend is TORCH:
        moving = {name: x.requires_grad_() for name, x in moving.items()}
        loss, parts = call(function, arguments | moving)
        assert not any(x.requires_grad for x in parts)
        found = torch.autograd.grad(loss.sum(), list(moving.values()), materialize_grads=True)
        gradients = dict(zip(moving, found, strict=True))
    else:
        (loss, parts), gradients = call(function, arguments), {}
    named = {"loss": loss, **parts._asdict()}
    named |= {f"by_{name}": x for name, x in gradients.items()}
    return {name: backend.numpy(x) for name, x in named.items()}


def check_step(function) -> None:
    """Raise AssertionError at the first batch for which `function` differs from the loop."""
    for situation in SITUATIONS:
        assert_alike(
            function(situation.data), mutants.right_step(situation.data), what=situation.name
        )


def kernel_step(data: dict) -> dict:
    return step(TORCH, allo_loss, call_allo, data)


def check_eigenvalues(function) -> None:
    rng = np.random.default_rng(3)
    duals, errors = np.tril(rng.standard_normal((2, 4, 4)))
    for scale in ("half", "full"):
        for barrier in (0.0, 0.7):
            want = reference.eigenvalues(duals, barrier, errors, scale=scale)
            assert_close(function(duals, barrier, errors, scale=scale), want)


def summed_eigenvalues(steps, gamma):
    """Return 1 − Σ_k (1−γ) γ^(k−1) p^k, summed gap by gap."""
    gaps = np.arange(1, 2000)[:, None]
    return 1 - ((1 - gamma) * gamma ** (gaps - 1.0) * np.asarray(steps) ** gaps).sum(0)


def check_kernel_eigenvalues(function) -> None:
    steps = np.linspace(-1, 1, 7)
    for gamma in (0.0, 0.2, 0.9):
        assert_close(function(steps, gamma), summed_eigenvalues(steps, gamma))


CHECKS = {
    "allo_step": check_step,
    "eigenvalues": check_eigenvalues,
    "kernel_eigenvalues": check_kernel_eigenvalues,
}
KERNELS = {
    "allo_step": kernel_step,
    "eigenvalues": laplacian_duals.eigenvalues,
    "kernel_eigenvalues": grid_laplacian.kernel_eigenvalues,
}
TWINS = {
    "allo_step": mutants.right_step,
    "eigenvalues": reference.eigenvalues,
    "kernel_eigenvalues": summed_eigenvalues,
}
