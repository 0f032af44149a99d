"""Helpers of Q-learning's tests: the ways through the kernels, and checks that catch mutants."""

from dataclasses import dataclass

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import loopless as ll
from loopless import reference
from loopless.verify.cases.batches import MEMBERS, call_targets
from loopless.verify.mutants import q_learning as mutants
from support.backends import JAX, NUMPY, TORCH, Backend
from support.compare import assert_close
from support.situations import call_loss, transition_situations

SITUATIONS = transition_situations()
LOSSES = ({"loss": "mse"}, {"loss": "huber"}, {"loss": "huber", "delta": 0.3})


def assert_alike(actual, expected, dtype: str = "float64", what: str = "") -> None:
    """Assert equal shapes and close values: a check that broadcasts hides a wrong broadcast."""
    assert np.shape(actual) == np.shape(expected), what
    assert_close(actual, expected, dtype, what)


def check_targets(function) -> None:
    """Raise AssertionError at the first batch for which `function` differs from the loop."""
    for situation in SITUATIONS:
        for member in MEMBERS:
            expected = call_targets(reference.q_targets, situation.data, member)
            with np.errstate(all="ignore"):
                got = call_targets(function, situation.data, member)
            assert_alike(got, expected, what=f"{situation.name}, {member}")


def check_loss(function) -> None:
    for situation in SITUATIONS:
        for options in LOSSES:
            expected = call_loss(reference.q_loss, situation.data, **options)
            with np.errstate(all="ignore"):
                got = call_loss(function, situation.data, **options)
            for x, y in zip(got, expected, strict=True):
                assert_alike(x, y, what=f"{situation.name}, {options}")


def check_update(function) -> None:
    for situation in SITUATIONS:
        for x, y in zip(function(situation.data), expected_update(situation.data), strict=True):
            assert_alike(x, y, what=situation.name)


def expected_update(data):
    targets = call_targets(reference.q_targets, data)
    arguments = data["q"], data["actions"], targets
    gradients = reference.q_loss_gradients(*arguments)
    return targets, *reference.q_loss(*arguments), gradients, np.zeros_like(data["next_q"])


def kernel_update(data):
    """Return targets, losses, errors and gradients, by our kernels in PyTorch."""
    names = ("q", "actions", "rewards", "terminated", "next_q")
    q, actions, rewards, terminated, next_q = (torch.from_numpy(data[name]) for name in names)
    q.requires_grad_(), next_q.requires_grad_()
    gamma = data["gamma"]
    gamma = torch.from_numpy(gamma) if isinstance(gamma, np.ndarray) else gamma
    targets = ll.q_targets(rewards, terminated, next_q, gamma=gamma)
    losses, errors = ll.q_loss(q, actions, targets)
    gradients = torch.autograd.grad(losses.sum(), (q, next_q), materialize_grads=True)
    return [x.detach().numpy() for x in (targets, losses, errors, *gradients)]


CHECKS = {"q_targets": check_targets, "q_loss": check_loss, "q_update": check_update}
KERNELS = {"q_targets": ll.q_targets, "q_loss": ll.q_loss, "q_update": kernel_update}
# The update that mutants modify must itself be right.
TWINS = {
    "q_targets": reference.q_targets,
    "q_loss": reference.q_loss,
    "q_update": mutants._update,
}


class Watched(TorchDispatchMode):
    """A dispatch mode that does nothing: under any mode, as under tracers, tensors stay tensors."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Elsewhere(torch.Tensor):
    """A tensor type that the kernels do not view as NumPy, and so treat like one on a GPU."""


@dataclass(frozen=True)
class Road:
    """One way through the kernels: a library, and settings that select the code path."""

    backend: Backend
    gradients: bool = False  # whether `q` requires a gradient
    watched: bool = False
    elsewhere: bool = False

    def arguments(self, data: dict, dtype: str = "float64") -> dict:
        found = self.backend.arguments(data, dtype)
        if self.elsewhere:
            found = {k: x.as_subclass(Elsewhere) if TORCH.owns(x) else x for k, x in found.items()}
        if self.gradients:
            found["q"].requires_grad_()
        return found

    def call(self, function, *args, **keywords):
        if not self.watched:
            return function(*args, **keywords)
        with Watched():
            return function(*args, **keywords)

    def targets(self, data: dict, member: str = "dqn", dtype: str = "float64"):
        return self.call(call_targets, ll.q_targets, self.arguments(data, dtype), member)

    def loss(self, data: dict, dtype: str = "float64", **options):
        return self.call(call_loss, ll.q_loss, self.arguments(data, dtype), **options)

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
