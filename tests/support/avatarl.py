"""Helpers of AvataRL's tests: positions, ways through the kernels, checks that catch mutants."""

from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import torch

from loopless.kernels.avatarl import loss as avatarl
from loopless.kernels.avatarl.loss import _loss, _loss_by_arrays, avatarl_loss
from loopless.reference import avatarl as loops
from loopless.verify.mutants import avatarl as mutants
from support.backends import JAX, NUMPY, TORCH, Backend
from support.compare import assert_close
from support.q_learning import Watched

VARIANTS = loops.VARIANTS
STATS = (
    "gold_reward", "gold_rewarded", "kept", "actions", "kl", "entropy",
    "reward_mean", "reward_max", "reward_min", "gold_cross_entropy",
)  # fmt: skip
NAMES = ("student_logits", "critic_logits", "targets")


def positions(shape=(6,), vocabulary=12, seed=0, scale=2.0) -> dict:
    """Return logits and gold tokens. JAX compiles for every shape: most tests use the default."""
    rng = np.random.default_rng(seed)
    return {
        "student_logits": scale * rng.standard_normal((*shape, vocabulary)),
        "critic_logits": scale * rng.standard_normal((*shape, vocabulary)),
        "targets": rng.integers(0, vocabulary, shape),
    }


class Result(NamedTuple):
    loss: Any
    stats: dict
    gradient: Any  # None where the library has none


@dataclass(frozen=True)
class Road:
    """One way through the kernels: a library, and a setting that selects the code path.

    With `watched`, the loss is computed by the library's own operations, as on devices other than
    the CPU.
    """

    backend: Backend
    watched: bool = False

    def __call__(self, data: dict, dtype: str = "float64", kernel=None, **options) -> Result:
        kernel = kernel or avatarl_loss
        arguments = self.backend.arguments(data, dtype)
        options |= {name: arguments.pop(name) for name in list(arguments) if name not in NAMES}
        options = self.backend.arguments(options, dtype)
        first, *rest = arguments.values()

        def loss(x):
            found = kernel(x, *rest, **options)
            return found if isinstance(found, tuple) else (found, {})

        if self.backend is NUMPY:
            value, stats = loss(first)
            return Result(float(value), _floats(stats), None)
        if self.backend is JAX:
            if kernel is avatarl_loss:  # so that calls with and without a mask share one program
                options.setdefault("mask", jnp.ones(rest[-1].shape, bool))
            with mock.patch.object(avatarl, "_loss", _loss_by_arrays if self.watched else _loss):
                (value, stats), gradient = jax.value_and_grad(loss, has_aux=True)(first)
            return Result(float(value), _floats(stats), JAX.numpy(gradient))
        first.requires_grad_()
        if self.watched:
            with Watched():
                value, stats = loss(first)
                value.backward()
        else:
            value, stats = loss(first)
            value.backward()
        assert not any(x.requires_grad for x in stats.values())
        return Result(value.item(), _floats(stats), TORCH.numpy(first.grad))


def _floats(stats):
    return {name: float(x) for name, x in stats.items()}


ROADS = {
    "numpy": Road(NUMPY),
    "torch": Road(TORCH),
    "torch, operations": Road(TORCH, watched=True),
    "jax": Road(JAX),
    "jax, operations": Road(JAX, watched=True),
}


def twin(data: dict, **options) -> Result:
    """Return the answer of the loop twin."""
    loss, stats = loops.avatarl_loss(**data, **options)
    return Result(loss, stats, loops.avatarl_gradients(**data, **options))


def assert_same(got: Result, want: Result, dtype: str = "float64", what: str = "") -> None:
    assert_close(got.loss, want.loss, dtype, f"{what} loss")
    if got.stats:
        for name in STATS:
            assert_close(got.stats[name], want.stats[name], dtype, f"{what} {name}")
    if got.gradient is not None:
        assert got.gradient.shape == want.gradient.shape
        assert_close(got.gradient, want.gradient, dtype, f"{what} gradient")


def dense(backend, values, actions, present, size) -> np.ndarray:
    """Scatter values of actions [..., w] over the vocabulary; repeated actions add up."""
    values, actions, present = map(backend.numpy, (values, actions, present))
    out = np.zeros((*actions.shape[:-1], size))
    for place in np.ndindex(actions.shape):
        if present[place]:
            out[(*place[:-1], actions[place])] += values[place]
    return out


def mutant_cases():
    """Yield (data, options) of batches on which known mistakes and the right answer differ."""
    plain = positions((4,), 12, 1)
    yield plain, {"top_k": 3}
    yield plain, {"top_k": 3, "entropy_coefficient": 0.3}
    # The three sets are disjoint and gold comes last, so that a set that is cut short loses gold.
    apart = {
        "student_logits": np.tile(np.linspace(3, 0, 60), (2, 1)),
        "critic_logits": np.tile(np.linspace(0, 3, 60), (2, 1)),
        "targets": np.array([30, 31]),
    }
    yield apart, {"top_k": 20}
    # Duplicates leave unused places in the set, and token 0 is neither gold nor among the best.
    agreeing = positions((4,), 12, 2)
    agreeing["critic_logits"] = agreeing["student_logits"] + 0.01
    agreeing["targets"] = agreeing["student_logits"].argmax(-1)
    agreeing["student_logits"][:, 0] = agreeing["critic_logits"][:, 0] = -9.0
    yield agreeing, {"top_k": 3}
    several = {"reality_weight": 0.2, "critic_weight": 0.8, "label_smoothing": 0.6}
    yield agreeing, {"top_k": 3, **several}
    yield plain, {"top_k": 3, **several}  # keeps more than gold alone
    forbidden = {name: x.copy() for name, x in agreeing.items()}
    forbidden["student_logits"][:, 0] = -np.inf
    yield forbidden, {"top_k": 3}


def check_update(function) -> None:
    """Raise AssertionError at the first batch for which `function` differs from the loop."""
    for data, options in mutant_cases():
        want = twin(data, **options)
        with np.errstate(all="ignore"):
            loss, by_student, by_critic = function(*data.values(), **options)
        assert_close(loss, want.loss)
        assert_close(by_student, want.gradient)
        assert_close(by_critic, np.zeros_like(want.gradient))


def kernel_update(student_logits, critic_logits, targets, **options):
    """Return the loss and both gradients, by our kernel in PyTorch."""
    z, c = (torch.tensor(x, requires_grad=True) for x in (student_logits, critic_logits))
    loss, _ = avatarl_loss(z, c, torch.from_numpy(targets), **options)
    found = torch.autograd.grad(loss, (z, c), allow_unused=True, materialize_grads=True)
    return loss.item(), *(x.numpy() for x in found)


CHECKS = {"avatarl_update": check_update}
KERNELS = {"avatarl_update": kernel_update}
# The update that the mutants modify must itself be right.
TWINS = {"avatarl_update": mutants._update}
