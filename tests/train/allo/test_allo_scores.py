"""Scores of learned features: what is exactly right scores 1, and what is not scores less."""

import numpy as np
import pytest
from allo_cases import tiny

from loopless.envs.grids.laplacian import eigenpairs, episode_pairs
from loopless.envs.grids.world import make_grid
from loopless.train.allo.run import HittingTimes, eigenvalue_error, similarity

GRID = "......\n.XX...\n.....X\n"


@pytest.fixture(scope="module")
def exact():
    world = make_grid(GRID)
    pairs = episode_pairs(world.transition_matrix(), world.starts, 0.7, 20)
    return tiny(grid=GRID), world, eigenpairs(pairs)


def test_the_true_vectors_are_similar_to_themselves_and_not_to_each_other(exact):
    _, _, truth = exact
    vectors = truth.vectors[:, :4]
    found = similarity(np.stack([-2 * vectors, vectors[:, [1, 0, 3, 2]]]), truth)
    np.testing.assert_allclose(found, [[1] * 4, [0] * 4], atol=1e-6)


def test_the_largest_relative_error_of_an_eigenvalue_counts(exact):
    _, _, truth = exact
    found = truth.values[:3] * [[5.0, 1.0, 1.02], [1.0, 0.9, 1.0]]
    np.testing.assert_allclose(eigenvalue_error(found, truth), [0.02, 0.1])
    np.testing.assert_allclose(eigenvalue_error(np.array([[0.01]]), truth), [0.01])


def test_all_exact_eigenpairs_give_the_exact_order_of_hitting_times(exact):
    config, world, truth = exact
    assert HittingTimes.exist(world)
    times = HittingTimes(config, world)
    full = times.correlation(truth.vectors, truth.values, truth.weights)
    few = times.correlation(truth.vectors[:, :3], truth.values[:3], truth.weights)
    wrong = times.correlation(truth.vectors[::-1], truth.values, truth.weights)
    assert full > 0.9999
    assert wrong < few < full


def test_there_are_no_hitting_times_where_a_state_is_never_left_or_reached():
    assert not HittingTimes.exist(make_grid(".,DR,.\n"))
    assert not HittingTimes.exist(make_grid("GridRoom-64"))
