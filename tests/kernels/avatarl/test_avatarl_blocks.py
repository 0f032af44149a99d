"""AvataRL over many positions of a short vocabulary, in blocks: the loop's answer on every road."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax import export
from support.avatarl import ROADS, VARIANTS, assert_same, positions, twin
from support.backends import JAX, TORCH

from loopless.compiled import logits
from loopless.kernels.avatarl import compiled, xla
from loopless.kernels.avatarl.loss import avatarl_loss

K, SIZE, COUNT = 3, 20, 150  # more than one block, and no whole number of blocks
NATIVE = {name: ROADS[name] for name in ("numpy", "torch", "jax")}
every_road = pytest.mark.parametrize("road", NATIVE.values(), ids=NATIVE)


def batch(seed=0, **changes):
    return positions((COUNT,), SIZE, seed) | changes


def test_these_cases_take_several_blocks_of_short_rows():
    assert SIZE <= logits.SHORT
    assert compiled.LANES < COUNT < 2 * compiled.LANES
    assert compiled.CACHED // SIZE >= compiled.LANES


@every_road
@pytest.mark.parametrize("variant", VARIANTS)
def test_it_is_the_loop(road, variant):
    for seed, k in ((0, 1), (1, K), (2, SIZE)):
        data = batch(seed, mask=np.arange(COUNT) % 7 != seed)
        settings = {"top_k": k, "variant": variant, "entropy_coefficient": 0.2}
        assert_same(road(data, **settings), twin(data, **settings))


@pytest.mark.slow
@every_road
@pytest.mark.parametrize("variant", VARIANTS)
def test_float32_stays_within_its_precision(road, variant):
    data = batch(3)
    for name in ("student_logits", "critic_logits"):
        data[name] = data[name].astype(np.float32).astype(float)
    settings = {"top_k": K, "variant": variant}
    assert_same(road(data, "float32", **settings), twin(data, **settings), "float32")


@every_road
@pytest.mark.parametrize("variant", VARIANTS)
def test_forbidden_tokens_and_masked_rows_of_anything(road, variant):
    data = batch(4)
    data["student_logits"][:, ::2] = -np.inf
    data["critic_logits"][:, 1::3] = -np.inf
    data["targets"][:] = 5
    data["mask"] = np.arange(COUNT) % 3 > 0
    settings = {"top_k": K, "variant": variant}
    want = twin(data, **settings)
    masked = ~data["mask"]
    for name in ("student_logits", "critic_logits"):
        data[name][masked] = np.nan
    data["targets"][masked] = -100
    assert_same(road(data, **settings), want)


@pytest.mark.slow
@every_road
def test_logits_far_apart_are_told_exactly(road):
    data = batch(5)
    data["student_logits"] *= 200.0  # e to them is 0 in float32, and their logarithm is not
    for name in ("student_logits", "critic_logits"):
        data[name] = data[name].astype(np.float32).astype(float)
    assert_same(road(data, "float32", top_k=K), twin(data, top_k=K), "float32")


@every_road
def test_equal_logits_give_the_first_tokens(road):
    data = batch(6)
    data["student_logits"] = np.round(data["student_logits"])
    data["critic_logits"][:] = 0.0
    assert_same(road(data, top_k=K), twin(data, top_k=K))


@every_road
@pytest.mark.parametrize("smoothing", [0.0, 0.8])
def test_weights_by_position_by_confidence_and_of_nothing(road, smoothing):
    data = batch(7)
    weights = np.linspace(0, 1, COUNT)
    settings = {"top_k": K, "label_smoothing": smoothing}
    by_position = settings | {"reality_weight": 1 - weights, "critic_weight": weights}
    assert_same(road(data, **by_position), twin(data, **by_position))
    for variant in VARIANTS:
        confident = settings | {"critic_weight": "confidence", "variant": variant}
        assert_same(road(data, **confident), twin(data, **confident))


@every_road
def test_one_action_alone(road):
    data = batch(8)
    data["critic_logits"] = data["student_logits"].copy()
    data["targets"] = data["student_logits"].argmax(-1)
    for variant in VARIANTS:
        for weight in (0.3, "confidence"):
            settings = {"top_k": 1, "variant": variant, "critic_weight": weight}
            assert_same(road(data, **settings), twin(data, **settings))


def test_leading_axes_slices_and_turned_arrays_change_nothing():
    data = positions((3, 60), SIZE, 9)
    want = twin({name: x[:, 1:] for name, x in data.items()}, top_k=K)
    z, c, y = TORCH.arguments(data).values()
    z.requires_grad_()
    avatarl_loss(z[:, 1:], c[:, 1:], y[:, 1:], top_k=K)[0].backward()
    np.testing.assert_allclose(z.grad[:, 1:], want.gradient, rtol=1e-9, atol=1e-15)
    turned = np.asfortranarray(data["student_logits"][:, 1:])
    value, _ = avatarl_loss(turned, c[:, 1:].numpy(), y[:, 1:].numpy(), top_k=K)
    np.testing.assert_allclose(value, want.loss, rtol=1e-12)


@pytest.mark.parametrize("side", ["student_logits", "critic_logits"])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_rows_that_are_no_distribution_are_refused_by_their_place(side, wrong):
    data = positions((2, 75), SIZE, 10)
    data[side][1, 74] = wrong if wrong < 0 else np.where(np.arange(SIZE) == 3, wrong, 0)
    with pytest.raises(ValueError, match=rf"{side}.*\b1, 74"):
        avatarl_loss(**data, top_k=K)


def test_mixed_and_half_precision():
    data = positions((COUNT,), SIZE, 11)
    z = torch.tensor(data["student_logits"], dtype=torch.float16)
    c, y = torch.tensor(data["critic_logits"]), torch.tensor(data["targets"])
    exact = data | {"student_logits": z.double().numpy()}
    want = twin(exact, top_k=K)
    loss, _ = avatarl_loss(z.requires_grad_(), c, y, top_k=K)
    loss.backward()
    assert z.grad.dtype == torch.float16
    assert loss.dtype == torch.float64
    np.testing.assert_allclose(loss.item(), want.loss, rtol=1e-12)
    np.testing.assert_allclose(z.grad.double(), want.gradient, rtol=2**-11, atol=2**-25)


class TestInsideJax:
    """What compiled programs and transforms make of it."""

    @pytest.mark.parametrize("side", ["student_logits", "critic_logits"])
    @pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
    def test_rows_that_are_no_distribution_make_the_loss_nan(self, side, wrong):
        data = positions((2, 75), SIZE, 10)
        data[side][1, 74] = wrong if wrong < 0 else np.where(np.arange(SIZE) == 3, wrong, 0)
        loss, stats = avatarl_loss(**JAX.arguments(data), top_k=K)
        assert np.isnan(loss)
        assert np.isnan(stats["kl"])

    def test_no_python_and_no_array_of_the_logits_size(self):
        z, c, y = JAX.arguments(batch(12)).values()
        compiled = jax.jit(jax.grad(loss_of)).lower(z, c, y).compile()
        assert compiled.as_text().count("loopless_avatarl_float64") == 1
        assert "callback" not in compiled.as_text()
        few = 20 * COUNT * 8  # some numbers of each position
        assert compiled.memory_analysis().temp_size_in_bytes < few

    def test_vmap_is_the_call_of_each(self):
        data = positions((3, 60), SIZE, 13)
        found = jax.jit(jax.vmap(jax.grad(loss_of)))(*JAX.arguments(data).values())
        for i in range(3):
            want = twin({name: x[i] for name, x in data.items()}, top_k=K)
            np.testing.assert_allclose(found[i], want.gradient, rtol=1e-9, atol=1e-15)

    def test_vmap_over_a_number_of_the_method(self):
        data = batch(14)
        z, c, y = JAX.arguments(data).values()
        weights = jnp.array([0.0, 0.1, 0.7])
        found = jax.vmap(lambda w: loss_of(z, c, y, critic_weight=w))(weights)
        want = [twin(data, top_k=K, critic_weight=float(w)).loss for w in weights]
        np.testing.assert_allclose(found, want, rtol=1e-9)

    def test_the_cotangent_counts(self):
        z, c, y = JAX.arguments(batch(15)).values()
        twice = jax.grad(lambda z: 2 * loss_of(z, c, y))(z)
        np.testing.assert_array_equal(twice, 2 * jax.grad(loss_of)(z, c, y))

    def test_a_token_out_of_range_is_nan_and_an_empty_batch_is_zero(self):
        z, c, y = JAX.arguments(batch(16)).values()
        for wrong in (-1, SIZE):
            assert np.isnan(loss_of(z, c, y.at[2].set(wrong)))
        assert loss_of(z, c, y, mask=jnp.zeros(COUNT, bool)) == 0
        assert loss_of(z[:0], c[:0], y[:0]) == 0

    def test_programs_for_accelerators_are_of_jax_operations_alone(self):
        z, c, y = JAX.arguments(batch(18)).values()
        for platform in ("cuda", "tpu"):
            program = export.export(jax.jit(jax.grad(loss_of)), platforms=[platform])(z, c, y)
            assert "custom_call @loopless" not in program.mlir_module()
        check = export.DisabledSafetyCheck.custom_call(xla.target("float64"))
        program = export.export(jax.jit(jax.grad(loss_of)), disabled_checks=[check])(z, c, y)
        assert "custom_call @loopless" in program.mlir_module()
        np.testing.assert_array_equal(program.call(z, c, y), jax.grad(loss_of)(z, c, y))

    def test_beside_an_accelerator_nothing_is_compiled_for_the_cpu(self, monkeypatch):
        z, c, y = JAX.arguments(positions((COUNT, 1), SIZE, 19)).values()
        ours = str(jax.make_jaxpr(loss_of)(z, c, y))
        monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
        monkeypatch.setattr(xla, "target", None)
        z, c, y = z[1:], c[1:], y[1:]  # of another shape, for which nothing is traced yet
        theirs = str(jax.make_jaxpr(loss_of)(z, c, y))
        assert "ffi_call" in ours
        assert "ffi_call" not in theirs

    def test_it_runs_inside_a_scan(self):
        z, c, y = JAX.arguments(batch(17)).values()

        def descend(z, _):
            loss, slope = jax.value_and_grad(loss_of)(z, c, y)
            return z - 5.0 * slope, loss

        _, losses = jax.jit(lambda z: jax.lax.scan(descend, z, None, 5))(z)
        assert np.all(np.diff(losses) < 0)


def loss_of(z, c, y, **options):
    return avatarl_loss(z, c, y, top_k=K, **options)[0]
