"""What the kernels of AvataRL refuse, and what they say: all that is wrong at once."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from support.avatarl import positions
from support.backends import BACKENDS, NUMPY, TORCH

from loopless.kernels.avatarl.baselines import cross_entropy, distillation, soft_cross_entropy
from loopless.kernels.avatarl.loss import avatarl_actions, avatarl_loss, avatarl_rewards

every_backend = pytest.mark.parametrize("backend", BACKENDS, ids=str)
in_sight = pytest.mark.parametrize("backend", [NUMPY, TORCH], ids=str)


def call(backend, changed=(), **options):
    """The loss of good arguments but for what is changed."""
    data = positions((2, 3), 7, 0) | dict(changed)
    mask = data.pop("mask", None)
    options = {"top_k": 2} | options
    return avatarl_loss(*backend.arguments(data).values(), mask=backend.array(mask), **options)


def refused(error, *parts, function="avatarl_loss"):
    held = "".join(f"(?=.*{re.escape(str(part))})" for part in parts)
    return pytest.raises(error, match=rf"(?s)\A{function}: {held}")


@every_backend
def test_the_arguments_that_these_tests_spoil_are_good(backend):
    call(backend, {"mask": np.ones((2, 3), np.int64)})


@every_backend
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"top_k": 0}, "top_k must be at least 1; received 0"),
        ({"reality_weight": -0.1}, "reality_weight must be at least 0; received -0.1"),
        ({"critic_weight": float("nan")}, "critic_weight must be at least 0; received nan"),
        ({"reality_weight": 0, "critic_weight": 0.0}, "both 0"),
        ({"label_smoothing": 1.0}, "label_smoothing must be at least 0 and below 1; received 1.0"),
        ({"label_smoothing": -0.01}, "label_smoothing must be at least 0"),
        ({"entropy_coefficient": -1.0}, "entropy_coefficient must be at least 0"),
        ({"reward_scale": 0.0}, "reward_scale must be above 0"),
        ({"reward_clamp": float("inf")}, "reward_clamp must be above 0 and finite"),
        ({"variant": "best"}, "variant='best' is unknown; choose one of fixed, original"),
        ({"critic_weight": "sure"}, "choose one of confidence"),
    ],
    ids=str,
)
def test_wrong_numbers(backend, options, said):
    with refused(ValueError, said):
        call(backend, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"top_k": 2.0}, "top_k must be a whole number"),
        ({"label_smoothing": "0.1"}, "label_smoothing is a str"),
        ({"entropy_coefficient": True}, "entropy_coefficient is a bool"),
    ],
    ids=str,
)
def test_wrong_types(options, said):
    with refused(TypeError, said):
        call(NUMPY, **options)


def test_all_problems_are_said_at_once():
    changed = {"targets": np.zeros((2, 3)), "mask": np.ones(3, bool)}
    with refused(ValueError, "targets has dtype float64", "mask has shape (3,)", "top_k", "label"):
        call(NUMPY, changed, top_k=-3, label_smoothing=2.0)


@every_backend
@pytest.mark.parametrize("name", ["targets", "mask"])
def test_what_belongs_to_a_position_must_have_their_shape(backend, name):
    wrong = np.zeros((2, 3, 1), bool if name == "mask" else np.int64)
    with refused(ValueError, f"{name} has shape (2, 3, 1)", "it must be (2, 3)"):
        call(backend, {name: wrong})


@every_backend
def test_another_vocabulary_is_refused(backend):
    with refused(ValueError, "(2, 3, 9)", "(2, 3, 7)", "share one vocabulary"):
        call(backend, {"critic_logits": np.zeros((2, 3, 9))})
    with refused(ValueError, "(2, 2, 7)", "one row for each position"):
        call(backend, {"critic_logits": np.zeros((2, 2, 7))})


@every_backend
@pytest.mark.parametrize("shape", [(7,), (2, 3, 0)], ids=str)
def test_logits_without_positions_or_tokens_are_refused(backend, shape):
    with refused(ValueError, f"student_logits has shape {shape}", "[..., V]"):
        call(backend, {"student_logits": np.zeros(shape), "critic_logits": np.zeros(shape)})


@every_backend
def test_what_is_not_floating_or_not_whole_is_refused(backend):
    with refused(TypeError, "critic_logits has dtype"):
        call(backend, {"critic_logits": np.zeros((2, 3, 7), np.int64)})
    with refused(TypeError, "targets has dtype", "tokens are integers"):
        call(backend, {"targets": np.zeros((2, 3))})
    with refused(TypeError, "mask has dtype", "flags are booleans"):
        call(backend, {"mask": np.ones((2, 3), np.complex64)})


@pytest.mark.parametrize("backend", [NUMPY, TORCH], ids=str)
def test_masks_of_floats_are_0_or_1(backend):
    call(backend, {"mask": np.ones((2, 3))})
    with refused(ValueError, "mask holds 0.5"):
        call(backend, {"mask": np.full((2, 3), 0.5)})


def test_mixed_libraries_are_refused():
    z, c, y = positions((2, 3), 7, 0).values()
    with refused(TypeError, "critic_logits is a numpy array", "torch array"):
        avatarl_loss(torch.from_numpy(z), c, torch.from_numpy(y), top_k=2)
    with refused(TypeError, "student_logits is a list"):
        avatarl_loss(z.tolist(), c, y, top_k=2)


@in_sight
@pytest.mark.parametrize("name", ["student_logits", "critic_logits"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("size", [7, 3000])
def test_logits_that_are_no_distribution_are_refused_where_seen(backend, name, value, size):
    data = positions((2, 3), size, 0)
    data[name][1, 2, size // 2] = value
    with refused(ValueError, f"{name}[1, 2] holds NaN or +inf"):
        call(backend, data)
    call(backend, data | {"mask": np.arange(6).reshape(2, 3) < 5})


@in_sight
def test_a_row_of_nothing_is_refused(backend):
    data = positions((2, 3), 7, 0)
    data["critic_logits"][0, 1] = -np.inf
    with refused(ValueError, "critic_logits[0, 1] holds"):
        call(backend, data)


@in_sight
@pytest.mark.parametrize("wrong", [-100, 7])
def test_tokens_out_of_range_are_refused_where_seen(backend, wrong):
    data = positions((2, 3), 7, 0)
    data["targets"][0, 2] = wrong
    with refused(ValueError, f"targets holds {wrong} at 0, 2", "the last 6", "masked"):
        call(backend, data)
    call(backend, data | {"mask": data["targets"] != wrong})


@in_sight
def test_negative_weights_of_a_row_are_refused_where_seen(backend):
    weight = backend.array(np.array([[0.1, 0.2, -0.3]]))
    with refused(ValueError, "critic_weight"):
        call(backend, critic_weight=weight)


def test_weights_that_do_not_spread_are_refused():
    with refused(ValueError, "critic_weight has shape (3,)"):
        call(NUMPY, critic_weight=np.ones(3))


def test_the_pieces_refuse_what_does_not_fit():
    z, c, y = positions((4,), 7, 0).values()
    with refused(ValueError, "top_k", function="avatarl_actions"):
        avatarl_actions(z, c, y, top_k=0)
    actions, present = avatarl_actions(z, c, y, top_k=2)
    with refused(ValueError, "present has shape (4, 4)", function="avatarl_rewards"):
        avatarl_rewards(c, actions, present[:, 1:])
    with refused(ValueError, "actions holds 7 at 0, 1", function="avatarl_rewards"):
        avatarl_rewards(c, np.full((4, 5), [y[0], 7, 0, 0, 0]), present)
    with refused(ValueError, "weights has shape (4, 2)", function="soft_cross_entropy"):
        soft_cross_entropy(z, actions, np.ones((4, 2)))
    with refused(TypeError, "weights has dtype int64", function="soft_cross_entropy"):
        soft_cross_entropy(z, actions, np.ones((4, 5), np.int64))
    with refused(ValueError, "targets holds -1", function="cross_entropy"):
        cross_entropy(z, np.full(4, -1))
    with refused(ValueError, "temperature must be above 0", function="distillation"):
        distillation(z, c, temperature=0.0)
    with refused(ValueError, "logits[2] holds NaN", function="cross_entropy"):
        cross_entropy(np.where(np.arange(4)[:, None] == 2, np.nan, z), y)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rewards_of_a_row_that_is_no_distribution_are_nan_in_jax(value):
    critic = jnp.zeros((2, 6)).at[0].set(value)
    actions = jnp.array([[1, 2, 2]] * 2)
    present = jnp.array([[True, True, False]] * 2)
    rewards = np.asarray(avatarl_rewards(critic, actions, present))
    np.testing.assert_array_equal(rewards, [[np.nan, np.nan, 0], [1, 0, 0]])
    masked = avatarl_rewards(critic, actions, present, mask=jnp.array([False, True]))
    np.testing.assert_array_equal(masked, [[0, 0, 0], [1, 0, 0]])


def test_actions_of_a_row_of_nan_are_tokens_in_jax():
    """What is looked up by them must not be out of range."""
    nan, zeros = jnp.full((1, 6), jnp.nan), jnp.zeros((1, 6))
    actions, _ = avatarl_actions(nan, zeros, jnp.array([0]), top_k=3)
    assert (actions >= 0).all()
    assert (actions < 6).all()
