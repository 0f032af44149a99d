"""The pairs of `examples/adopt` that replace one function: before and after are equal."""

import runpy
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

pytestmark = pytest.mark.slow  # it compiles every function of the pairs

FOLDER = Path(__file__).parents[2] / "examples" / "adopt"


def pair(name, function):
    return [runpy.run_path(str(FOLDER / f"{name}_{w}.py"))[function] for w in ("before", "after")]


def test_esper_gae():
    before, after = pair("esper_gae", "compute")
    g = torch.Generator().manual_seed(0)
    rewards, values, bootstrap = (torch.randn(4, 25, generator=g) for _ in range(3))
    counts = torch.tensor([25, 17, 1, 0])
    done = torch.rand(4, 25, generator=g) < 0.2
    truncated = torch.zeros(4, 25, dtype=torch.bool)
    truncated[0, 24] = truncated[2, 0] = done[0, 24] = True
    arguments = rewards, values, done, truncated, bootstrap, counts
    for a, b in zip(before(*arguments), after(*arguments), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_avatarl_loss():
    before, after = pair("avatarl_loss", "compute_loss")
    g = torch.Generator().manual_seed(0)
    student, critic = (torch.randn(12, 40, generator=g).double() for _ in range(2))
    gold = torch.randint(40, (12,), generator=g)
    results = []
    for function in (before, after):
        logits = student.clone().requires_grad_()
        loss = function(logits, critic, gold, top_k=4)
        (gradient,) = torch.autograd.grad(loss, logits)
        results.append((loss.detach(), gradient))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def test_episodic_sampler():
    before, after = pair("episodic", "Buffer")
    lengths, obs = np.array([40]), np.arange(40, dtype=np.float32).reshape(1, 40, 1)
    terminals = np.zeros((1, 40), bool)
    terminals[0, [12, 13, 38, 39]] = True
    draws = []
    for kind in (before, after):
        here, there = (x[:, 0] for x in kind(obs, terminals, lengths).sample(4000))
        gaps = there - here
        assert gaps.min() >= 1
        # no draw crosses from one episode of a row into the next
        assert ((here <= 13) == (there <= 13)).all()
        draws.append(gaps)
    spread = np.sqrt(draws[0].var() / 4000 + draws[1].var() / 4000)
    assert abs(draws[0].mean() - draws[1].mean()) < 5 * spread
    for gap in (1, 2, 5):
        share = [(x == gap).mean() for x in draws]
        assert abs(share[0] - share[1]) < 5 * np.sqrt(2 * share[0] / 4000)


def test_allo_loss():
    before, after = pair("allo_loss", "compute_loss")
    keys = jax.random.split(jax.random.key(0), 4)
    arrays = [jax.random.normal(key, (16, 5)) for key in keys[:3]]
    duals, barrier = jnp.tril(jax.random.normal(keys[3], (5, 5))), jnp.float32(0.5)
    values = [
        jax.value_and_grad(function, argnums=(0, 1, 2, 3, 4))(*arrays, duals, barrier)
        for function in (before, after)
    ]
    for a, b in zip(*map(jax.tree.leaves, values), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_another_number_is_noticed():
    before, after = pair("esper_gae", "compute")
    ones, flags = torch.ones(1, 3), torch.zeros(1, 3, dtype=torch.bool)
    arguments = ones, ones, flags, flags, ones, torch.tensor([3])
    with pytest.raises(AssertionError):
        torch.testing.assert_close(before(*arguments)[0], after(*arguments, gamma=0.9)[0])
