"""Helpers of the policy-gradient losses' tests: ways through the kernels, checks for mutants."""

from dataclasses import dataclass

import numpy as np
import torch

import loopless as ll
from loopless import reference
from loopless.verify.cases.batches import INPUTS, ROWS, call_policy_gradient, call_ppo
from loopless.verify.mutants import policy_gradient as mutants
from support.backends import JAX, NUMPY, TORCH, Backend
from support.compare import assert_close
from support.q_learning import Elsewhere, Watched
from support.situations import policy_situations

SITUATIONS = policy_situations()
CALLS = {"ppo_loss": call_ppo, "policy_gradient_loss": call_policy_gradient}
KERNELS_OF = {name: getattr(ll, name) for name in CALLS}
TWINS_OF = {name: getattr(reference, name) for name in CALLS}
GRADIENTS_OF = {name: getattr(reference, f"{name}_gradients") for name in CALLS}


def scalars(result) -> list:
    """Return the loss and its parts in one list."""
    loss, parts = result
    return [loss, *parts]


def gradients_of(name: str, data: dict) -> dict:
    """Return the twin's closed-form gradients, by argument."""
    return dict(zip(INPUTS, CALLS[name](GRADIENTS_OF[name], data), strict=True))


def check_loss(name: str, function) -> None:
    """Raise AssertionError at the first batch for which `function` differs from the loop."""
    for situation in SITUATIONS:
        expected = scalars(CALLS[name](TWINS_OF[name], situation.data))
        with np.errstate(all="ignore"):
            got = scalars(CALLS[name](function, situation.data))
        assert len(got) == len(expected)
        for x, y in zip(got, expected, strict=True):
            assert_close(x, y, what=situation.name)


def check_update(name: str, function) -> None:
    for situation in SITUATIONS:
        data = situation.data
        loss, gradients = function(data)
        assert_close(loss, CALLS[name](TWINS_OF[name], data)[0], what=situation.name)
        expected = {key: np.zeros_like(data[key]) for key in ROWS} | gradients_of(name, data)
        for key, x in expected.items():
            assert_close(gradients[key], x, what=f"{situation.name}, {key}")


def kernel_update(name: str, data: dict):
    """Return the loss and its gradients by every array, by our kernel in PyTorch."""
    tensors = TORCH.arguments(data)
    variables = [tensors[key].requires_grad_() for key in ROWS]
    loss, _ = CALLS[name](KERNELS_OF[name], tensors)
    found = torch.autograd.grad(loss, variables, allow_unused=True, materialize_grads=True)
    return loss.item(), {key: x.numpy() for key, x in zip(ROWS, found, strict=True)}


CHECKS = {
    "ppo_loss": lambda function: check_loss("ppo_loss", function),
    "ppo_update": lambda function: check_update("ppo_loss", function),
    "policy_gradient_loss": lambda function: check_loss("policy_gradient_loss", function),
    "policy_gradient_update": lambda function: check_update("policy_gradient_loss", function),
}
KERNELS = KERNELS_OF | {
    "ppo_update": lambda data: kernel_update("ppo_loss", data),
    "policy_gradient_update": lambda data: kernel_update("policy_gradient_loss", data),
}
# The updates that mutants modify must themselves be right.
TWINS = TWINS_OF | {
    "ppo_update": mutants._update,
    "policy_gradient_update": mutants._plain_update,
}


@dataclass(frozen=True)
class Road:
    """One way through the kernels: a library, and settings that select the code path."""

    backend: Backend
    gradients: bool = False  # whether log-probabilities, values and entropies require gradients
    watched: bool = False
    elsewhere: bool = False

    def arguments(self, data: dict, dtype: str = "float64") -> dict:
        found = self.backend.arguments(data, dtype)
        if self.elsewhere:
            found = {k: x.as_subclass(Elsewhere) if TORCH.owns(x) else x for k, x in found.items()}
        if self.gradients:
            for name in INPUTS:
                found[name].requires_grad_()
        return found

    def loss(self, name: str, data: dict, dtype: str = "float64", **options) -> list:
        """Return loss and parts of one kernel, as this library's scalars."""
        arguments = self.arguments(data, dtype)
        if not self.watched:
            return scalars(CALLS[name](KERNELS_OF[name], arguments, **options))
        with Watched():
            return scalars(CALLS[name](KERNELS_OF[name], arguments, **options))

    def numpy(self, x) -> np.ndarray:
        return self.backend.numpy(x)


ROADS = {
    "numpy": Road(NUMPY),
    "torch": Road(TORCH),
    "torch, gradients": Road(TORCH, gradients=True),
    "torch, operations": Road(TORCH, watched=True),
    "torch, elsewhere": Road(TORCH, gradients=True, elsewhere=True),
    "jax": Road(JAX),
}
