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


@pytest.mark.parametrize("name", HEADS)
def test_log_probabilities_and_entropies_are_those_of_the_plain_loop(name):
    params, own, raw = case(name)
    expected = [plain_words(name, params[i], own, raw[i]) for i in range(ROWS)]
    log_probs, entropies, _ = compiled(name)(params, own, None, raw)
    # tanh² near 1 costs the loop digits, not us
    np.testing.assert_allclose(log_probs, [pair[0] for pair in expected], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(entropies, [pair[1] for pair in expected], rtol=1e-10, atol=1e-12)


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


@pytest.mark.parametrize("name", HEADS)
def test_any_leading_axes_are_rows(name):
    params, own, raw = case(name)
    flat = compiled(name)(params, own, None, raw)
    shaped = compiled(name)(params.reshape(2, 3, -1), own, None, raw.reshape(2, 3, *raw.shape[1:]))
    for one, other in zip(flat, shaped, strict=True):
        np.testing.assert_array_equal(one.reshape(other.shape), other)


@pytest.mark.parametrize("name", HEADS)
def test_a_law_passes_through_compiled_functions(name):
    params, own, raw = case(name)
    law = jax.jit(HEADS[name])(params, own)
    assert_close(law.log_prob(raw), compiled(name)(params, own, None, raw)[0])


@pytest.mark.parametrize("name", ["discrete", "ragged", "gaussian", "squashed"])
def test_nothing_is_likelier_than_the_mode(name):
    params, own, raw = case(name)
    law = HEADS[name](params, own)
    before = getattr(
        law, "before", law
    )  # of u: the density of the squashed action may peak elsewhere
    assert np.all(before.log_prob(law.mode()) >= before.log_prob(raw))


# --- gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1], ids=["log_prob", "entropy"])
@pytest.mark.parametrize("name", ["discrete", "ragged", "gaussian", "state_std"])
def test_gradients_are_the_finite_differences(name, which):
    params, own, raw = case(name)

    def total(params, own):
        return compiled(name)(params, own, None, raw)[which].sum()

    ours = jax.grad(total, (0, 1))(params, own)
    assert_gradient(ours[0], finite_differences(lambda x: float(total(x, own)), params))
    assert_gradient(ours[1], finite_differences(lambda x: float(total(params, x)), own))


@pytest.mark.parametrize("name", ["squashed", "squashed_state_std"])
def test_gradients_of_squashed_log_probabilities_are_the_finite_differences(name):
    params, own, raw = case(name)
    ours = jax.grad(lambda x: compiled(name)(x, own, None, raw)[0].sum())(params)
    expected = finite_differences(
        lambda x: float(compiled(name)(x, own, None, raw)[0].sum()), params
    )
    assert_gradient(ours, expected)


def assert_gradient(ours, expected):
    np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-7)


# --- masks ---------------------------------------------------------------------------------------


MASKS = {
    "discrete": [[1, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]],
    "multi": [[1, 0, 1, 0, 1, 1], [0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 0]],
    "ragged": [[1, 0, 0, 1, 1, 0, 1], [0, 1, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0, 0]],
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CHOICES)
def test_masked_laws_are_those_of_the_plain_loop(name, dtype):
    head, mask = HEADS[name], np.array(MASKS[name], bool)
    params = case(name)[0][:3].astype(dtype)
    law = head(params, None, mask)
    raw = np.asarray(law.mode())
    log_probs, entropies, modes = compiled(name)(params, None, mask, raw)
    np.testing.assert_array_equal(modes, raw)
    expected = [plain_words(name, params[i], None, raw[i], mask[i]) for i in range(3)]
    dtype = np.dtype(dtype).name
    assert_close(log_probs, [pair[0] for pair in expected], dtype)
    assert_close(entropies, [pair[1] for pair in expected], dtype)
    probabilities = np.exp(jax.nn.log_softmax(law.logits))
    for row in range(3):
        laws = plain_choices(head.sizes, params[row], mask[row])
        for ours, theirs in zip(probabilities[row], laws, strict=True):
            assert np.all(ours[: len(theirs)][np.array(theirs) == 0] == 0)
            assert np.all(ours[len(theirs) :] == 0)


@pytest.mark.parametrize("which", [0, 1], ids=["log_prob", "entropy"])
@pytest.mark.parametrize("name", CHOICES)
def test_what_is_masked_has_gradient_zero_and_the_rest_the_finite_differences(name, which):
    mask, params = np.array(MASKS[name], bool), case(name)[0][:3]
    raw = np.asarray(HEADS[name](params, None, mask).mode())

    def total(params):
        return compiled(name)(params, None, mask, raw)[which].sum()

    ours = np.asarray(jax.grad(total)(params))
    assert_gradient(ours, finite_differences(lambda x: float(total(x)), params))
    assert not ours[:2][~mask[:2]].any()


def test_masked_gradients_are_finite_in_float32_however_large_the_logits():
    params = np.float32([[1e4, -1e4, 3, 0], [0, 0, 0, 0]])
    mask = np.array([[0, 1, 1, 0], [0, 0, 0, 0]], bool)
    raw = np.int32([2, 1])
    for which in (0, 1):
        gradient = jax.grad(lambda x, w=which: compiled("discrete")(x, None, mask, raw)[w].sum())
        assert np.isfinite(gradient(params)).all()


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
    with pytest.raises(ValueError, match="Masks go with choices"):
        HEADS["gaussian"](np.zeros((2, 3)), np.zeros(3), np.ones((2, 3), bool))


def test_heads_are_static():
    assert head_of(Box((3,), "float32", -1.0, 1.0)) == HEADS["gaussian"]
    assert len({hash(head) for head in HEADS.values()}) == len(HEADS)
