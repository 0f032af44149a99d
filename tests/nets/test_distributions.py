"""Laws of actions: log-probabilities, entropies and gradients against plain loops; masks."""

import jax
import numpy as np
import pytest
from policy_cases import (
    CHOICES,
    HEADS,
    ROWS,
    case,
    compiled,
    finite_differences,
    plain_choices,
    plain_words,
)
from support.compare import assert_close

from loopless.envs.spaces import Box, Discrete
from loopless.nets.distributions import head_of

pytestmark = pytest.mark.slow  # JAX compiles each network


@pytest.mark.parametrize("name", HEADS)
def test_log_probabilities_and_entropies_are_those_of_the_plain_loop(name):
    params, own, raw = case(name)
    expected = [plain_words(name, params[i], own, raw[i]) for i in range(ROWS)]
    words = compiled(name)(params, own, None, raw)
    # tanh² near 1 costs the loop digits, not us
    np.testing.assert_allclose(words.log_prob, [x[0] for x in expected], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(words.entropy, [x[1] for x in expected], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", HEADS)
def test_actions_have_the_shapes_and_dtypes_that_the_head_promises(name):
    head = HEADS[name]

    def words(params, own):
        law = head(params, own)
        raws = law.sample(head.noise(jax.random.key(2), (5, ROWS))), law.mode()
        return raws, head.to_env(raws[0]), (law.log_prob(raws[0]), law.entropy(raws[0]))

    params = jax.ShapeDtypeStruct((5, ROWS, head.outputs), np.float32)
    own = jax.ShapeDtypeStruct((head.own,), np.float32)
    raws, actions, numbers = jax.eval_shape(words, params, own)
    for raw in raws:
        assert (raw.shape, raw.dtype) == ((5, ROWS, *head.raw_shape), head.raw_dtype)
    assert actions.dtype == head.raw_dtype
    assert all((x.shape, x.dtype) == ((5, ROWS), np.float32) for x in numbers)


@pytest.mark.parametrize("name", ["ragged", "squashed_state_std"])
def test_any_leading_axes_are_rows_and_a_law_may_leave_a_compiled_function(name):
    params, own, raw = case(name)
    law = jax.jit(HEADS[name])(params.reshape(2, 3, -1), own)
    shaped = law.log_prob(raw.reshape(2, 3, *raw.shape[1:]))
    assert_close(shaped, np.reshape(compiled(name)(params, own, None, raw).log_prob, (2, 3)))


@pytest.mark.parametrize("name", ["discrete", "multi", "ragged", "gaussian", "state_std"])
def test_nothing_is_likelier_than_the_mode(name):
    params, own, raw = case(name)
    words = compiled(name)(params, own, None, raw)
    best = compiled(name)(params, own, None, np.asarray(words.mode, raw.dtype)).log_prob
    assert np.all(best >= words.log_prob)
    assert np.any(best > words.log_prob)


# --- gradients -----------------------------------------------------------------------------------


def checked_gradient(name, word, params, own, raw, mask=None):
    """The gradient by params, once it and the one by own are found to be finite differences."""

    def total(params, own):
        return float(np.sum(getattr(compiled(name)(params, own, mask, raw), word)))

    ours = getattr(compiled(name)(params, own, mask, raw), f"{word}_gradient")
    assert_gradient(ours[0], finite_differences(lambda x: total(x, own), params))
    assert_gradient(ours[1], finite_differences(lambda x: total(params, x), own))
    return np.asarray(ours[0])


def assert_gradient(ours, expected):
    np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", HEADS)
def test_gradients_of_log_probabilities_are_the_finite_differences(name):
    checked_gradient(name, "log_prob", *case(name))


@pytest.mark.parametrize("name", ["discrete", "multi", "ragged", "gaussian", "state_std"])
def test_gradients_of_entropies_are_the_finite_differences(name):
    """Squashed entropies are estimates: tests/nets/test_distribution_laws.py."""
    checked_gradient(name, "entropy", *case(name))


# --- masks ---------------------------------------------------------------------------------------


MASKS = {
    "discrete": [[1, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]],
    "multi": [[1, 0, 1, 0, 1, 1], [0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 0]],
    "ragged": [[1, 0, 0, 1, 1, 0, 1], [0, 1, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0, 0]],
}
MASKS = {name: np.array(rows * 2, bool) for name, rows in MASKS.items()}


def masked_case(name, dtype=np.float64):
    """As `case`, with actions that are legal."""
    params, own, _ = case(name)
    laws = [plain_choices(HEADS[name].sizes, *row) for row in zip(params, MASKS[name], strict=True)]
    raw = np.array([[np.argmax(law) for law in row] for row in laws], np.int32)
    return params.astype(dtype), own.astype(dtype), raw if HEADS[name].several else raw[:, 0]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, np.float64) for name in CHOICES), ("ragged", np.float32)],
)
def test_masked_laws_are_those_of_the_plain_loop(name, dtype):
    params, own, raw = masked_case(name, dtype)
    words = compiled(name)(params, own, MASKS[name], raw)
    expected = [plain_words(name, params[i], own, raw[i], MASKS[name][i]) for i in range(ROWS)]
    precision = np.dtype(dtype).name
    assert_close(words.log_prob, [x[0] for x in expected], precision)
    assert_close(words.entropy, [x[1] for x in expected], precision)
    np.testing.assert_array_equal(words.mode, raw)
    for part in (*words.log_prob_gradient, *words.entropy_gradient):
        assert np.isfinite(part).all()


@pytest.mark.parametrize("name", CHOICES)
def test_what_is_masked_has_probability_exactly_zero(name):
    head, (params, own, _) = HEADS[name], case(name)
    logits = jax.jit(head)(params, own, MASKS[name]).logits
    ours = np.exp(np.asarray(jax.nn.log_softmax(logits)))
    for row in range(ROWS):
        laws = plain_choices(head.sizes, params[row], MASKS[name][row])
        for one, law in zip(ours[row], laws, strict=True):
            padded = np.pad(law, (0, len(one) - len(law)))
            np.testing.assert_array_equal(one == 0, padded == 0)
            np.testing.assert_allclose(one, padded, rtol=1e-12)


@pytest.mark.parametrize("word", ["log_prob", "entropy"])
@pytest.mark.parametrize("name", CHOICES)
def test_masked_gradients_are_the_finite_differences_and_zero_where_masked(name, word):
    ours = checked_gradient(name, word, *masked_case(name), MASKS[name])
    some = np.arange(ROWS) % 3 < 2  # in the other rows something has nothing legal, so all is
    assert not ours[some][~MASKS[name][some]].any()


def test_masked_gradients_are_finite_in_float32_however_large_the_logits():
    params = np.float32([[1e4, -1e4, 3, 0]] * ROWS)
    mask = np.array([[0, 1, 1, 0], [0, 0, 0, 0]] * 3, bool)
    words = compiled("discrete")(params, np.zeros(0, np.float32), mask, np.int32([2, 1] * 3))
    for part in (words.log_prob_gradient[0], words.entropy_gradient[0], words.entropy):
        assert np.isfinite(part).all()


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bounds", [(-np.inf, np.inf), (0.0, np.inf), (1.0, 1.0)], ids=["free", "half", "empty"]
)
def test_squashing_needs_finite_bounds(bounds):
    with pytest.raises(ValueError, match="squash needs finite bounds"):
        head_of(Box((2,), "float32", *bounds), squash=True)


def test_what_makes_no_sense_for_choices_is_refused_all_at_once():
    with pytest.raises(ValueError, match=r"squash is for Box.*state_std is for Box"):
        head_of(Discrete(3), squash=True, state_std=True)


def test_numbers_have_no_mask():
    with pytest.raises(ValueError, match="Masks belong to discrete actions"):
        HEADS["gaussian"](np.zeros((2, 3)), np.zeros(3), np.ones((2, 3), bool))


def test_scales_must_be_given():
    with pytest.raises(ValueError, match=r"log-scales \[3\] are missing"):
        HEADS["gaussian"](np.zeros((2, 3)))


def test_heads_are_static():
    assert head_of(Box((3,), "float32", -1.0, 1.0)) == HEADS["gaussian"]
    assert len({hash(head) for head in HEADS.values()}) == len(HEADS)
