"""The GPT: its sizes, its start, its logits, its gradients, and what it refuses."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.compare import assert_close

from loopless.nets.gpt import model as gpt
from loopless.nets.gpt.model import GPT, SIZES, parameters

pytestmark = pytest.mark.slow  # JAX compiles each network

KEY = jax.random.key(3)
TINY = (2, 2, 8)
TOKENS = np.random.default_rng(0).integers(0, 11, (3, 5))


def tiny(seed=0, **options) -> GPT:
    """A model with numbers large enough that every one matters; NumPy drew them."""
    model = eqx.filter_eval_shape(GPT, 11, 8, TINY, KEY, **options)
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: np.asarray(0.3 * rng.normal(size=x.shape), x.dtype), model)


def in_float64(model):
    return jax.tree.map(lambda x: np.asarray(x, np.float64), model)  # NumPy compiles nothing


def with_options(model, **options):
    """The same weights in a model with other static fields."""
    shell = eqx.filter_eval_shape(GPT, 11, 8, TINY, KEY, **options)
    return jax.tree.unflatten(jax.tree.structure(shell), jax.tree.leaves(model))


TABLE = [line.split() for line in (gpt.__doc__ or "").splitlines() if line.startswith("    ")][1:]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0])
def test_a_size_has_the_parameters_that_the_table_says(row):
    name, *body, vocabulary, block, count = row
    assert tuple(map(int, body)) == SIZES[name]
    model = eqx.filter_eval_shape(GPT, int(vocabulary), int(block), name, KEY)
    assert f"{parameters(model):,}" == count
    assert float(name.removesuffix("M")) == pytest.approx(parameters(model) / 1e6, rel=0.13)


def test_the_table_has_every_size():
    assert [row[0] for row in TABLE] == list(SIZES)


def test_weights_begin_as_the_docstring_says():
    model = jax.jit(lambda: GPT(500, 40, (8, 2, 16), jax.random.key(3, impl="rbg")))()
    small = 0.02 / 16**0.5
    deviations = {
        "tokens": (model.tokens, 0.02),
        "positions": (model.positions, 0.02),
        "qkv": (model.blocks.qkv.weight, 0.02),
        "up": (model.blocks.up.weight, 0.02),
        "out": (model.blocks.out.weight, small),
        "down": (model.blocks.down.weight, small),
    }
    for name, (weight, deviation) in deviations.items():
        assert np.std(weight) == pytest.approx(deviation, rel=0.1), name
        assert abs(np.mean(weight)) < 4 * deviation / weight.size**0.5, name
    leaves = [model.blocks.up.bias, model.blocks.norm_1.bias, model.norm.bias]
    assert not any(np.any(leaf) for leaf in leaves)
    assert np.all(np.asarray(model.blocks.norm_2.scale) == 1)
    assert {leaf.dtype for leaf in jax.tree.leaves(model)} == {jnp.dtype("float32")}
    assert not np.allclose(model.blocks.up.weight[0], model.blocks.up.weight[1])


def test_a_token_changes_no_logits_before_it():
    model = in_float64(tiny())
    before = np.asarray(FORWARD(model, TOKENS))
    changed = TOKENS.copy()
    changed[:, 3] = (changed[:, 3] + 1) % 11
    after = np.asarray(FORWARD(model, changed))
    np.testing.assert_array_equal(after[:, :3], before[:, :3])
    assert (np.abs(after[:, 3:] - before[:, 3:]).max(-1) > 1e-6).all()


@pytest.mark.parametrize("leading", [(), (1,), (3,), (3, 1)], ids=str)
def test_logits_of_a_batch_are_those_of_its_rows(leading):
    model, tokens = in_float64(tiny()), TOKENS[: int(np.prod(leading))].reshape(*leading, 5)
    got = np.asarray(FORWARD(model, tokens))
    assert got.shape == (*leading, 5, 11)
    rows = [np.asarray(FORWARD(model, row)) for row in tokens.reshape(-1, 5)]
    assert_close(got.reshape(-1, 5, 11), rows)


FORWARD = eqx.filter_jit(lambda model, tokens: model(tokens))


def loss(model, tokens):
    return jax.nn.logsumexp(model(tokens), -1).mean()


GRADIENT = jax.jit(jax.value_and_grad(loss))


@pytest.mark.slow
def test_checkpointing_changes_neither_value_nor_gradient():
    plain = in_float64(tiny(checkpoint=False))
    value, gradient = GRADIENT(plain, TOKENS)
    other = with_options(plain, checkpoint=True)
    again, anew = GRADIENT(other, TOKENS)
    assert_close(again, value)
    for ours, theirs in zip(jax.tree.leaves(anew), jax.tree.leaves(gradient), strict=True):
        assert_close(ours, theirs)
        assert np.abs(theirs).max() > 1e-9


@pytest.mark.parametrize(("checkpoint", "anew"), [(None, True), (True, True), (False, False)])
def test_blocks_are_computed_anew_if_told_or_on_the_cpu(checkpoint, anew):
    program = str(jax.make_jaxpr(loss)(tiny(checkpoint=checkpoint), TOKENS))
    assert ("checkpoint" in program or "remat" in program) == anew


def test_gradients_are_those_of_finite_differences():
    model = in_float64(tiny(1, checkpoint=True))
    direction = in_float64(tiny(2, checkpoint=True))
    step = 1e-6
    ahead, _ = GRADIENT(jax.tree.map(lambda x, d: x + step * d, model, direction), TOKENS)
    behind, _ = GRADIENT(jax.tree.map(lambda x, d: x - step * d, model, direction), TOKENS)
    _, gradient = GRADIENT(model, TOKENS)
    slope = sum(
        np.sum(np.asarray(g) * d)
        for g, d in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
    )
    assert slope == pytest.approx(float(ahead - behind) / (2 * step), rel=1e-7)


def test_bfloat16_rounds_the_factors_and_nothing_else():
    model = tiny()
    half = with_options(model, compute="bfloat16")
    logits, near = np.asarray(FORWARD(model, TOKENS)), FORWARD(half, TOKENS)
    assert near.dtype == jnp.float32
    assert {leaf.dtype for leaf in jax.tree.leaves(half)} == {jnp.dtype("float32")}
    difference = np.abs(np.asarray(near) - logits).max() / np.abs(logits).max()
    assert 2**-16 < difference < 2**-5  # 8 bits of mantissa, through a dozen products
    gradient = jax.eval_shape(jax.grad(loss), half, TOKENS)
    assert {leaf.dtype for leaf in jax.tree.leaves(gradient)} == {jnp.dtype("float32")}


def test_large_logits_do_not_overflow_attention():
    model = in_float64(tiny(checkpoint=True))
    loud = eqx.tree_at(lambda m: m.blocks.qkv.weight, model, model.blocks.qkv.weight * 1e6)
    value, gradient = GRADIENT(loud, TOKENS)
    assert np.isfinite(value)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("time", [0, 9])
def test_a_window_that_does_not_fit_is_refused(time):
    with pytest.raises(ValueError, match=f"received {time} tokens in a row.* sees 1 to 8"):
        tiny()(np.zeros((2, time), np.int32))


def test_all_that_makes_no_model_is_said_at_once():
    with pytest.raises(ValueError, match=r"^gpt: ") as error:
        GPT(0, 8, "2M", KEY, gelu="new", compute="int8")
    for part in ("vocabulary must be an integer", "size='2M' is unknown", "gelu='new'", "compute="):
        assert part in str(error.value)
    with pytest.raises(ValueError, match="a width of 8 does not divide among 3 heads"):
        GPT(11, 8, (2, 3, 8), KEY)
