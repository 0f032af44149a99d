"""One update of a language model beside AdamW written out; chunks; validation; the guard."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loopless.nets.gpt.model import GPT
from loopless.train.lm.algorithm import (
    Algorithm,
    language_loss,
    load_model,
    network,
    validation_loss,
    weight_decays,
)
from loopless.train.lm.config import LM

pytestmark = pytest.mark.slow

VOCABULARY = 11
# The bias of the keys has a gradient of rounding errors only; a large epsilon keeps them small.
CONFIG = LM(
    layers=2, heads=2, width=8, block=6, batch=4, steps=10, warmup=2, learning_rate=0.01,
    learning_rate_end=0.001, max_gradient_norm=0.5, weight_decay=0.3, adam_epsilon=1e-3,
)  # fmt: skip


def algorithm_of(**options) -> Algorithm:
    return Algorithm(replace(CONFIG, **options), VOCABULARY, language_loss)


ALGORITHM = algorithm_of()
UPDATE = jax.jit(ALGORITHM.update)


@pytest.fixture(scope="module")
def learner():
    return jax.jit(ALGORITHM.init)(jax.random.key(3))


def rows(accumulate: int = 1, batch: int = 4, updates: tuple = (), seed: int = 0):
    shape = *updates, accumulate, batch, CONFIG.block + 1
    draws = np.random.default_rng(seed).integers(0, VOCABULARY, shape)
    return {"windows": draws.astype(np.int32)}


def plain_loss(model: GPT, windows) -> jax.Array:
    """Cross-entropy by log_softmax, none of our kernels."""
    logs = jax.nn.log_softmax(model(windows[:, :-1]))
    return -jnp.take_along_axis(logs, windows[:, 1:, None], -1).mean()


plain_gradient = jax.jit(jax.value_and_grad(plain_loss))


def leaves(tree) -> dict[str, np.ndarray]:
    pairs = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path): np.asarray(x, np.float64) for path, x in pairs}


def test_two_updates_are_those_of_adamw_written_out(learner):
    weights = leaves(learner.weights)
    first, second = ({name: 0 * x for name, x in weights.items()} for _ in range(2))
    own, model = learner, learner.weights
    for number in range(2):
        windows = rows(seed=number)["windows"][0]
        loss, gradient = plain_gradient(model, windows)
        gradient = leaves(gradient)
        norm = np.sqrt(sum((x * x).sum() for x in gradient.values()))
        assert norm > CONFIG.max_gradient_norm
        rate = CONFIG.learning_rate * (number + 1) / (CONFIG.warmup + 1)
        for name, g in gradient.items():
            g = g * CONFIG.max_gradient_norm / norm
            first[name] = 0.9 * first[name] + 0.1 * g
            second[name] = 0.95 * second[name] + 0.05 * g * g
            mean, square = first[name] / (1 - 0.9 ** (number + 1)), second[name]
            square = square / (1 - 0.95 ** (number + 1))
            pull = 0.3 * weights[name] if decay_of(name) else 0
            weights[name] = weights[name] - rate * (mean / (np.sqrt(square) + 1e-3) + pull)
        own, told = UPDATE(own, (), rows(seed=number), np.int32(number))
        model = own.weights
        assert told["gradient_norm"] == pytest.approx(norm, rel=1e-5)
        assert told["loss"] == pytest.approx(float(loss), rel=1e-5)
        found = leaves(model)
        for name, expected in weights.items():
            np.testing.assert_allclose(found[name], expected, atol=1e-6, err_msg=name)
    assert int(own.updates) == 2


def decay_of(name: str) -> bool:
    return "weight" in name or name in (".tokens", ".positions")


def test_matrices_and_embeddings_decay_and_nothing_else():
    shapes = jax.eval_shape(lambda: network(CONFIG, VOCABULARY, jax.random.key(0)))
    found = leaves(weight_decays(shapes, 0.1))
    assert set(map(float, found.values())) == {0.0, 0.1}
    kept = {name for name, decay in found.items() if decay}
    assert kept == {
        ".tokens", ".positions", ".blocks.qkv.weight", ".blocks.out.weight", ".blocks.up.weight",
        ".blocks.down.weight",
    }  # fmt: skip


def test_the_step_size_rises_in_a_line_and_falls_by_a_cosine():
    algorithm = algorithm_of(warmup=4, steps=12, learning_rate=1.0, learning_rate_end=0.2)
    found = [float(algorithm.learning_rate(update, np)) for update in range(13)]
    assert found[:4] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    falling = [0.2 + 0.4 * (1 + np.cos(np.pi * n / 8)) for n in range(9)]
    assert found[4:] == pytest.approx(falling)
    traced = [float(algorithm.learning_rate(jnp.int32(update))) for update in (0, 3, 4, 7, 12)]
    assert traced == pytest.approx([found[i] for i in (0, 3, 4, 7, 12)])


def test_accumulated_gradients_are_those_of_the_whole_batch(learner):
    whole = rows(1, 4)
    parts = {"windows": whole["windows"].reshape(2, 2, -1)}
    apart, told = jax.jit(algorithm_of(accumulate=2, batch=2).update)(
        learner, (), parts, np.int32(5)
    )
    together, all_told = UPDATE(learner, (), whole, np.int32(5))
    for name, expected in leaves(together.weights).items():
        np.testing.assert_allclose(leaves(apart.weights)[name], expected, atol=1e-6, err_msg=name)
    assert told["loss"] == pytest.approx(float(all_told["loss"]), rel=1e-6)


def test_a_chunk_is_its_updates_one_after_the_other_however_long_it_is(learner):
    many = rows(updates=(4,))
    chunk = jax.jit(ALGORITHM.chunk)
    found, sums = chunk(learner, (), many, np.int32(2), np.int32(3))
    own, total = learner, 0.0
    for i in range(3):
        part = {"windows": many["windows"][i]}
        own, told = UPDATE(own, (), part, np.int32(2 + i))
        total += float(told["loss"])
    for name, expected in leaves(own.weights).items():
        np.testing.assert_allclose(leaves(found.weights)[name], expected, atol=1e-6, err_msg=name)
    assert float(sums["loss"]) == pytest.approx(total, rel=1e-6)
    assert int(found.updates) == 3


@pytest.mark.parametrize("on_nan", ["stop", "skip"])
def test_an_update_that_is_not_finite_changes_nothing(learner, on_nan):
    def poisoned(config, model, fixed, rows):
        loss, stats = language_loss(config, model, fixed, rows)
        return jnp.where(rows["bad"], jnp.nan, 1) * loss, stats

    algorithm = Algorithm(replace(CONFIG, on_nan=on_nan), VOCABULARY, poisoned)
    update = jax.jit(algorithm.update)
    bad, good = (rows() | {"bad": np.array([flag])} for flag in (True, False))
    after, _ = update(learner, (), bad, np.int32(0))
    same = {**leaves(after.weights), **leaves(after.moments)}
    for name, expected in {**leaves(learner.weights), **leaves(learner.moments)}.items():
        np.testing.assert_array_equal(same[name], expected)
    assert (int(after.updates), int(after.skipped)) == (0, 1)
    assert bool(after.failed) is (on_nan == "stop")
    later, _ = update(after, (), good, np.int32(1))
    assert int(later.updates) == (0 if on_nan == "stop" else 1)
    assert np.array_equal(later.weights.tokens, learner.weights.tokens) is (on_nan == "stop")


def test_validation_counts_real_windows_only(learner):
    windows = rows(batch=5)["windows"][0]
    padded = np.zeros((2, 3, windows.shape[-1]), np.int32)
    padded.reshape(6, -1)[:5] = windows
    counted = np.arange(6).reshape(2, 3) < 5
    found = jax.jit(validation_loss)(learner.weights, padded, counted)
    expected, _ = plain_gradient(learner.weights, windows)
    assert float(found) == pytest.approx(float(expected), rel=1e-6)


def test_a_model_comes_back_from_its_arrays_by_name(learner):
    pairs = jax.tree_util.tree_flatten_with_path(learner.weights)[0]
    name = partial(jax.tree_util.keystr, simple=True, separator="/")
    found = load_model(CONFIG, {name(path): np.asarray(x) for path, x in pairs})
    assert jax.tree.structure(found) == jax.tree.structure(learner.weights)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(learner.weights), strict=True):
        np.testing.assert_array_equal(one, other)
