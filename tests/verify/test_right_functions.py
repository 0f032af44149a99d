"""Ours, the references, and right functions in unusual layouts are all called equal."""

import numpy as np
import pytest
import right_functions as right
import torch

import loopless as ll
from loopless import reference
from loopless.verify import Options, assert_matches
from loopless.verify.contracts import CONTRACTS
from loopless.verify.judge import judge

NAMES = sorted(CONTRACTS)
TWINS = {
    "avatarl_loss": lambda student_logits, critic_logits, targets, top_k: (
        reference.avatarl.avatarl_loss(student_logits, critic_logits, targets, top_k=top_k)
    ),
    "allo_loss": reference.laplacian.allo_loss,
}


@pytest.fixture(scope="module", autouse=True)
def avatarl_is_compiled():
    """Compile AvataRL's kernel, which may take longer than a call that is judged may take."""
    logits, targets = np.zeros((2, 5)), np.zeros(2, np.int64)
    ll.avatarl_loss(logits, logits, targets, top_k=2)
    student = torch.zeros(2, 5, dtype=torch.float64, requires_grad=True)
    critic = student.detach()
    ll.avatarl_loss(student, critic, torch.from_numpy(targets), top_k=2)[0].backward()


def quick_report(function, claim, **more):
    options = {"cases": 30, "timing": False, "smallest": False} | more
    return judge(function, claim, Options(**options))


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("name", NAMES)
def test_ours_is_equal(name, library):
    report = quick_report(getattr(ll, name), name, library=library, strict=True)
    assert report.equal
    assert not report.diagnosis


@pytest.mark.slow
def test_ours_is_equal_in_jax():
    report = quick_report(ll.gae, "gae", library="jax", strict=True, cases=10)
    assert report.equal
    assert report.how.startswith("JAX")


@pytest.mark.parametrize("name", NAMES)
def test_the_loop_twin_is_equal(name):
    twin = TWINS.get(name) or getattr(reference, name)
    assert quick_report(twin, name, strict=True).equal


@pytest.mark.parametrize(
    ("function", "claim", "options", "how"),
    [
        (right.batch_major, "gae", {}, "PyTorch, [B, T] arrays"),
        (right.trailing_axis, "gae", {}, "PyTorch, [B, T, 1] arrays"),
        (right.lists_of_one_episode, "gae", {"truncation": False}, "NumPy, lists, one"),
        (right.episode_starts, "gae", {"truncation": False}, "NumPy, [T, B] arrays"),
        (right.from_attributes, "gae", {}, "NumPy, [T, B] arrays"),
        (right.compiled, "gae", {}, "NumPy, [T, B] arrays"),
        (right.in_float32, "gae", {}, "NumPy, [T, B] arrays"),
        (right.float32_only, "gae", {}, "PyTorch, [T, B] arrays, float32"),
        (right.bound, "gae", {}, "NumPy, [T, B] arrays"),
        (right.one_step_td, "q_targets", {"truncation": False}, "NumPy, one sample at a time"),
        (right.column_targets, "q_targets", {}, "PyTorch, [B, 1] arrays"),
        (right.whole_loss, "q_loss", {}, "PyTorch, [B] arrays"),
        (right.policy_part, "ppo_loss", {}, "PyTorch, [B] arrays"),
        (right.tokens, "token_gae", {}, "PyTorch, [B, T] arrays"),
    ],
)
def test_a_right_function_in_another_layout_is_equal(function, claim, options, how):
    report = quick_report(function, claim, **options)
    assert report.equal, report
    assert report.how.startswith(how)


@pytest.mark.slow
def test_a_right_function_in_jax_is_equal():
    report = quick_report(right.discount_vector, "gae", truncation=False, cases=10)
    assert report.equal
    assert report.how.startswith("JAX")


def test_numbers_that_are_built_in_can_be_named():
    numbers = {"gamma": 0.9, "lambda_": 0.8}
    assert quick_report(right.built_in_numbers, "gae", fixed=numbers).equal
    assert not quick_report(right.built_in_numbers, "gae", fixed=numbers | {"lambda_": 0.7}).equal


def test_what_is_exact_to_float32_only_is_told_so():
    report = quick_report(right.rounded_inside, "gae")
    assert report.equal
    assert "It is exact to float32 only, for what it is given in float64." in report.notes


def test_an_object_that_can_be_called_is_judged_like_a_function():
    assert quick_report(right.Estimator(0.5), "gae", fixed={"lambda_": 0.5}).equal


def test_assert_matches_passes_a_right_function():
    assert_matches(right.compiled, "gae", cases=30)


def test_assert_matches_raises_with_the_report():
    from loopless.verify.wrong.gae import lagged_flags

    with pytest.raises(AssertionError) as failure:
        assert_matches(lagged_flags, "gae", cases=30)
    text = str(failure.value)
    assert "Reads the flag one step late" in text
    assert "your advantages" in text
    assert "right advantages" in text


def test_assert_matches_takes_a_map():
    def mine(a, b, c, d, e, f, g):
        return reference.gae(a, b, c, d, e, gamma=f, lambda_=g)

    names = ("rewards", "values", "next_values", "terminated", "truncated", "gamma", "lambda_")
    assert_matches(mine, "gae", map=dict(zip("abcdefg", names, strict=True)), cases=30)
