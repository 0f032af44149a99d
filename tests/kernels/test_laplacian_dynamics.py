"""Exact tabular ascent and descent with the kernels: where it ends, when it fails, how it lags.

The batch is every move from every state of a corridor maze, each once: all means are exact.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loopless.envs.grids.world import make_grid
from loopless.kernels.laplacian.duals import eigenvalues, similarities
from loopless.kernels.laplacian.losses import allo_loss, ggdo_loss

WORLD = make_grid("GridCorridor-12")
VALUES, VECTORS = np.linalg.eigh(np.eye(WORLD.states) - WORLD.transition_matrix())
VECTORS = VECTORS * np.sqrt(WORLD.states)
HERE, AHEAD = np.repeat(np.arange(WORLD.states), 4), WORLD.targets.ravel()
FACTOR = {"half": 2, "full": 4}  # β = −FACTOR λ


@cache
def program(scale, d, steps):
    """(features, duals, barrier, dual rate) → after `steps`, with duals and errors on the way."""
    rate = 0.1 / (1 if scale == "half" else 2)

    def loss(table, duals, barrier):
        drawn = table[HERE]
        return allo_loss(drawn, table[AHEAD], drawn, duals, barrier, scale=scale)

    def run(table, barrier, dual_rate):
        def step(carry, _):
            table, duals = carry
            (by_table, by_duals), parts = jax.grad(loss, (0, 1), has_aux=True)(
                table, duals, barrier
            )
            after = table - rate * WORLD.states * by_table, duals - dual_rate * by_duals
            return after, (duals, parts.errors)

        return jax.lax.scan(step, (table, jnp.zeros((d, d))), None, length=steps)

    return jax.jit(run)


def scores(table):
    return np.asarray(similarities(np.asarray(table), VECTORS, np.arange(WORLD.states)))


def random_table(d):
    return np.random.default_rng(0).standard_normal((WORLD.states, d))


@pytest.mark.parametrize("scale", ["half", "full"])
def test_features_become_eigenvectors_and_duals_their_eigenvalues(scale):
    (table, duals), _ = program(scale, 12, 10_000)(random_table(12), 3.0 * FACTOR[scale] / 2, 0.3)
    assert scores(table).min() > 1 - 1e-6
    np.testing.assert_allclose(np.diag(duals), -FACTOR[scale] * VALUES, atol=1e-6)
    assert np.abs(np.tril(duals, -1)).max() < 1e-6


@pytest.mark.parametrize(("scale", "fine"), [("half", 6), ("full", 4)])
def test_exactly_the_late_components_fail_if_the_barrier_is_too_small(scale, fine):
    """The bound on λ_j − λ_1 is the barrier in "half", and half of it in "full"."""
    bound = 0.42 * 2 / FACTOR[scale]
    assert VALUES[fine - 1] < bound - 0.05 < bound + 0.03 < VALUES[fine]
    (table, _), _ = program(scale, 12, 10_000)(random_table(12), 0.42, 0.03)
    found = scores(table)
    assert found[:fine].min() > 1 - 1e-6
    assert found[fine:].max() < 0.5


@pytest.mark.parametrize("scale", ["half", "full"])
def test_duals_lag_and_the_first_order_multiplier_does_not(scale):
    """From the eigenvectors, β(t) / β* = 1 − exp(−rate t / 2b); β + 2bE is there at once."""
    barrier, rate = 1.5 * FACTOR[scale], 4e-4
    _, (duals, errors) = program(scale, 12, 10_000)(VECTORS, barrier, rate)
    for t in (1000, 3000, 9000):
        share = 1 - np.exp(-rate * t / (2 * barrier))
        found = np.diag(duals[t])[1:] / (-FACTOR[scale] * VALUES[1:])
        np.testing.assert_allclose(found, share, atol=0.002)
        read = eigenvalues(np.asarray(duals[t]), barrier, np.asarray(errors[t]), scale=scale)
        # features follow the duals in 1/(0.4 b) steps, in which those move by rate/2b
        np.testing.assert_allclose(read, VALUES, rtol=2e-4, atol=1e-12)


def test_the_penalty_alone_does_not_find_them():
    """GGDO with a barrier of 2, minimised to the end, on the maze where ALLO is exact."""

    def step(table, _):
        gradient = jax.grad(lambda x: ggdo_loss(x[HERE], x[AHEAD], x[HERE], barrier=2.0)[0])(table)
        return table - 0.02 * gradient, None

    table, _ = jax.jit(lambda x: jax.lax.scan(step, x, None, length=20_000))(random_table(11))
    assert scores(table).mean() < 0.6
