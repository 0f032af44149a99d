"""`q_loss` takes any elementwise loss of the caller's, with the gradient of their library."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from support.backends import BACKENDS, JAX, NUMPY, TORCH
from support.compare import assert_all_close, assert_close

import loopless as ll
from loopless import reference

SHAPE = (2, 5)


def log_cosh(prediction, target):
    xp = torch if isinstance(prediction, torch.Tensor) else np
    xp = jnp if isinstance(prediction, jax.Array) else xp
    return xp.log(xp.cosh(prediction - 2.0 * target))


def case(backend, seed=0):
    rng = np.random.default_rng(seed)
    arrays = {
        "q": rng.standard_normal((*SHAPE, 3)),
        "actions": rng.integers(0, 3, SHAPE),
        "targets": rng.standard_normal(SHAPE),
        "weights": rng.random(SHAPE) * (rng.random(SHAPE) < 0.7),
    }
    return arrays, {name: backend.array(x) for name, x in arrays.items()}


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_loss_of_the_callers_equals_the_loop(backend, weighted):
    arrays, arguments = case(backend)
    if not weighted:
        del arrays["weights"], arguments["weights"]
    expected = reference.q_loss(**arrays, loss=lambda p, t: np.log(np.cosh(p - 2.0 * t)))
    got = ll.q_loss(**arguments, loss=log_cosh)
    assert_all_close([backend.numpy(x) for x in got], expected)


@pytest.mark.parametrize("name", ["mse", "huber"])
def test_pytorchs_own_losses_give_the_gradients_of_ours(name):
    _, arguments = case(TORCH)
    function = {"mse": torch.nn.functional.mse_loss, "huber": torch.nn.functional.smooth_l1_loss}
    gradients = []
    for loss in (name, lambda p, t: function[name](p, t, reduction="none")):
        q = arguments["q"].clone().requires_grad_()
        losses, errors = ll.q_loss(**arguments | {"q": q}, loss=loss)
        assert not errors.requires_grad
        losses.sum().backward()
        gradients.append(q.grad.numpy())
    assert_close(*gradients)


def test_gradients_of_jax_are_those_of_ours_under_jit():
    _, arguments = case(JAX)

    def total(q, loss):
        return ll.q_loss(**arguments | {"q": q}, loss=loss)[0].sum()

    def square(p, t):
        return (p - t) ** 2

    ours, theirs = (
        jax.jit(jax.grad(total), static_argnums=1)(arguments["q"], loss) for loss in ("mse", square)
    )
    assert_close(JAX.numpy(theirs), JAX.numpy(ours))


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_a_sample_of_weight_0_is_out_even_with_nan(backend):
    arrays, _ = case(backend)
    arrays["weights"][0, 0] = 0.0
    clean = ll.q_loss(**{n: backend.array(x) for n, x in arrays.items()}, loss=log_cosh)[0]
    arrays["targets"][0, 0] = np.nan
    got = ll.q_loss(**{n: backend.array(x) for n, x in arrays.items()}, loss=log_cosh)[0]
    np.testing.assert_array_equal(backend.numpy(got), backend.numpy(clean))
    if backend is TORCH:
        q = torch.tensor(arrays["q"], requires_grad=True)
        others = {n: backend.array(x) for n, x in arrays.items() if n != "q"}
        ll.q_loss(q, **others, loss=log_cosh)[0].sum().backward()
        assert q.grad is not None
        assert torch.isfinite(q.grad).all()


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_a_loss_that_is_a_mean_is_refused(backend):
    _, arguments = case(backend)
    with pytest.raises(ValueError, match=r"loss returned shape \(\); .* each sample"):
        ll.q_loss(**arguments, loss=lambda p, t: ((p - t) ** 2).mean())


@pytest.mark.parametrize("backend", [NUMPY, TORCH], ids=str)
def test_what_q_loss_refuses_is_refused_beside_a_function_too(backend):
    _, arguments = case(backend)
    with pytest.raises(ValueError, match=r"actions holds 3 at \(0, 0\); actions must be from 0"):
        ll.q_loss(**arguments | {"actions": arguments["actions"] * 0 + 3}, loss=log_cosh)
    with pytest.raises(ValueError, match="weights are finite"):
        ll.q_loss(**arguments | {"weights": -1 - arguments["weights"]}, loss=log_cosh)
    with pytest.raises(ValueError, match="loss='l3' is unknown"):
        ll.q_loss(**arguments, loss="l3")
