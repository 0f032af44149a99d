"""Eigenvalues from multipliers, and similarity to eigenspaces, degenerate ones included."""

import jax
import numpy as np
import pytest
from support.backends import BACKENDS
from support.compare import assert_close

from loopless.kernels.laplacian.duals import eigenvalues, similarities
from loopless.reference import laplacian as reference

every_backend = pytest.mark.parametrize("backend", BACKENDS, ids=str)
SPACES = np.array([0, 1, 1, 2, 3, 3])


def basis(weights):
    """Six vectors orthonormal under `weights` [8]."""
    drawn = np.random.default_rng(0).standard_normal((8, 6))
    return np.linalg.qr(drawn)[0] / np.sqrt(weights)[:, None]


UNIFORM = np.full(8, 1 / 8)
UNEVEN = np.arange(1, 9) / 36


@every_backend
@pytest.mark.parametrize("scale", ["half", "full"])
def test_eigenvalues_equal_the_loop(backend, scale):
    duals, errors = np.random.default_rng(1).standard_normal((2, 4, 4))
    found = eigenvalues(backend.array(duals), 0.7, backend.array(errors), scale=scale)
    assert_close(backend.numpy(found), reference.eigenvalues(duals, 0.7, errors, scale=scale))


@every_backend
def test_eigenvalues_of_several_problems(backend):
    duals, errors = np.random.default_rng(2).standard_normal((2, 3, 4, 4))
    barrier = np.array([0.5, 1.0, 2.0])
    found = backend.numpy(eigenvalues(*map(backend.array, (duals, barrier, errors))))
    for i in range(3):
        assert_close(found[i], reference.eigenvalues(duals[i], barrier[i], errors[i]))


@every_backend
@pytest.mark.parametrize("weights", [None, UNEVEN], ids=["uniform", "uneven"])
def test_similarities_equal_the_loop(backend, weights):
    vectors = basis(UNIFORM if weights is None else weights)
    features = np.random.default_rng(3).standard_normal((8, 4))
    arrays = [None if x is None else backend.array(x) for x in (features, vectors, SPACES, weights)]
    found = backend.numpy(similarities(*arrays))
    assert_close(found, reference.similarities(features, vectors, SPACES, weights))
    assert ((found >= 0) & (found <= 1)).all()


def test_signs_and_scales_do_not_matter():
    vectors = basis(UNEVEN)
    turned = vectors[:, :4] * np.array([-1.0, 3.0, -1e-3, 1e3])
    assert_close(similarities(turned, vectors, SPACES, UNEVEN), np.ones(4))


@pytest.mark.parametrize("angle", [0.3, 0.8, 2.0])
def test_rotations_within_an_eigenspace_do_not_matter(angle):
    vectors = basis(UNIFORM)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    turned = vectors[:, :4].copy()
    turned[:, 1:3] = turned[:, 1:3] @ turn
    assert_close(similarities(turned, vectors, SPACES), np.ones(4))
    apart = similarities(turned, vectors, np.arange(6))
    assert_close(apart, np.abs([1, np.cos(angle), np.cos(angle), 1]))


def test_an_eigenspace_that_goes_on_past_the_last_feature_counts_whole():
    vectors = basis(UNIFORM)
    features = np.concatenate([vectors[:, :4], vectors[:, 5:6]], 1)
    assert_close(similarities(features, vectors, SPACES), np.ones(5))


def test_features_in_the_wrong_order_score_nothing():
    vectors = basis(UNIFORM)
    assert_close(similarities(vectors[:, [3, 0]], vectors, SPACES), np.zeros(2))


@every_backend
def test_a_feature_of_zeros_scores_zero(backend):
    features = basis(UNIFORM)[:, :4]
    features[:, 2] = 0
    arrays = [backend.array(x) for x in (features, basis(UNIFORM), SPACES)]
    assert_close(backend.numpy(similarities(*arrays)), [1, 1, 0, 1])


def test_similarities_compile():
    vectors = basis(UNIFORM)
    assert_close(jax.jit(similarities)(vectors[:, :4], vectors, SPACES), np.ones(4))


def test_fewer_vectors_than_features_are_refused():
    vectors = basis(UNIFORM)
    with pytest.raises(ValueError, match=r"vectors \(8, 3\) and spaces \(3,\).*k at least d"):
        similarities(vectors[:, :4], vectors[:, :3], SPACES[:3])
