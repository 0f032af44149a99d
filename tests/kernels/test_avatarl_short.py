"""AvataRL over a short vocabulary in JAX: what the loop says, whatever the rows hold."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from support.avatarl import ROADS, VARIANTS, assert_same, positions, twin
from support.backends import JAX

from loopless.arrays import jax_top_k, jax_vocabulary
from loopless.kernels import avatarl_short
from loopless.kernels.avatarl import avatarl_loss

K, SIZE = 8, 20
ROAD = ROADS["jax"]


def test_it_is_taken_for_many_actions_of_a_short_vocabulary():
    assert avatarl_short.applies(SIZE, K)
    assert not avatarl_short.applies(SIZE, 7)
    assert not avatarl_short.applies(513, K)


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_is_the_loop(variant):
    for seed in range(3):
        data = positions((5,), SIZE, seed) | {"mask": np.arange(5) != seed}
        settings = {"top_k": K, "variant": variant, "entropy_coefficient": 0.2}
        assert_same(ROAD(data, **settings), twin(data, **settings))


def test_forbidden_tokens_and_masked_rows_of_anything():
    data = positions((5,), SIZE, 3)
    data["student_logits"][:, ::2] = -np.inf
    data["critic_logits"][:, 1::3] = -np.inf
    data["targets"][:] = 5
    data["mask"] = np.array([True, True, False, True, True])
    want = twin(data, top_k=K)
    for name in ("student_logits", "critic_logits"):
        data[name][2] = np.nan
    data["targets"][2] = -100
    assert_same(ROAD(data, top_k=K), want)


def test_equal_logits_give_the_first_tokens():
    data = positions((5,), SIZE, 4)
    data["student_logits"] = np.round(data["student_logits"])
    data["critic_logits"][:] = 0.0
    assert_same(ROAD(data, top_k=K), twin(data, top_k=K))


def test_weights_by_position_and_by_confidence():
    data = positions((5,), SIZE, 5)
    weights = np.linspace(0, 1, 5)
    settings = {"top_k": K, "reality_weight": 1 - weights, "critic_weight": weights}
    assert_same(ROAD(data, **settings), twin(data, **settings))
    settings = {"top_k": K, "critic_weight": "confidence"}
    assert_same(ROAD(data, **settings), twin(data, **settings))


def test_chunks_leading_axes_and_vmap_change_nothing(monkeypatch):
    data = positions((3, 5), SIZE, 6)
    want = twin(data, top_k=K)
    monkeypatch.setattr(jax_vocabulary, "SHORT_CHUNK", 4 * SIZE)
    jax.clear_caches()
    assert_same(ROAD(data, top_k=K), want)

    def loss(z, c, y):
        return avatarl_loss(z, c, y, top_k=K)[0]

    found = jax.jit(jax.vmap(jax.grad(loss)))(*JAX.arguments(data).values())
    np.testing.assert_allclose(found / 3, want.gradient, rtol=1e-9, atol=1e-15)
    jax.clear_caches()


def test_a_token_out_of_range_is_nan_and_an_empty_batch_is_zero():
    z, c, y = JAX.arguments(positions((5,), SIZE, 7)).values()
    for wrong in (-1, SIZE):
        assert np.isnan(avatarl_loss(z, c, y.at[2].set(wrong), top_k=K)[0])
    assert avatarl_loss(z, c, y, top_k=K, mask=jnp.zeros(5, bool))[0] == 0


def test_half_precision_has_its_gradient_in_half_precision():
    z, c, y = JAX.arguments(positions((5,), SIZE, 8), "float32").values()
    z, c = z.astype(jnp.bfloat16), c.astype(jnp.bfloat16)
    gradient = jax.grad(lambda z: avatarl_loss(z, c, y, top_k=K)[0])(z)
    assert gradient.dtype == jnp.bfloat16
    wide = jax.grad(lambda z: avatarl_loss(z, c.astype(z.dtype), y, top_k=K)[0])(
        z.astype(jnp.float32)
    )
    np.testing.assert_allclose(gradient.astype(jnp.float32), wide, rtol=2**-8, atol=1e-9)


@pytest.mark.parametrize("kind", ["plain", "ties", "equal", "forbidden"])
def test_the_largest_are_those_of_the_librarys_top_k(kind):
    x = np.random.default_rng(0).standard_normal((5, SIZE)).astype(np.float32)
    if kind == "ties":
        x = np.round(x) + 0.0  # the library tells −0 from 0; nobody else does
    elif kind == "equal":
        x[:] = 0
    elif kind == "forbidden":
        x[:, 3:] = -np.inf
    peak, among = jax.jit(jax_top_k.among, static_argnums=1)(jnp.asarray(x.T), K)
    values, tokens = lax.top_k(x, K)
    expected = (np.asarray(tokens)[:, :, None] == np.arange(SIZE)).any(1)
    np.testing.assert_array_equal(among.T, expected)
    np.testing.assert_array_equal(peak, values[:, 0])
