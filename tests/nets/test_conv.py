"""Convolutions as products of patches: the same numbers, forwards and backwards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loopless.nets.conv import Convolutions, PatchConvolutions


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_patches_give_the_features_and_gradients_of_convolutions(dtype):
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.integers(0, 255, (2, 3, 9, 8, 2)), dtype)
    usual = Convolutions((9, 8, 2), ((4, 3, 2), (5, 2, 1)), "relu", jax.random.key(0))
    mine = PatchConvolutions.of(usual)

    def both(net):
        return net(x), jax.grad(lambda net: (net(x) ** 2).sum())(net)

    (features, slopes), (expected, wanted) = both(mine), both(usual)
    assert features.shape == expected.shape
    np.testing.assert_allclose(features, expected, rtol=1e-5, atol=1e-5)
    for one, other in zip(jax.tree.leaves(slopes), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * np.abs(other).max())
