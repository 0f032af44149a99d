"""`reference.returns` against numbers worked out by hand: γ = λ = ½ wherever not said."""

import math

import numpy as np
import pytest

from loopless import reference

NAN = math.nan
HALF = {"gamma": 0.5, "lambda_": 0.5}

# One column of three steps, and what happens in it: terminated, truncated, next_values.
REWARDS = [1.0, 2.0, 4.0]
VALUES = [1.0, 1.0, 2.0]
ENDINGS = {
    "none": ([0, 0, 0], [0, 0, 0], [1.0, 2.0, 8.0]),
    "truncated last": ([0, 0, 0], [0, 0, 1], [1.0, 2.0, 8.0]),
    "terminated last": ([0, 0, 1], [0, 0, 0], [1.0, 2.0, NAN]),
    "terminated": ([0, 1, 0], [0, 0, 0], [1.0, NAN, 8.0]),
    "both": ([0, 1, 0], [0, 1, 0], [1.0, NAN, 8.0]),
    "truncated": ([0, 0, 0], [0, 1, 0], [1.0, 10.0, 8.0]),
}


def step_data(ending):
    terminated, truncated, next_values = ENDINGS[ending]
    return {
        "rewards": REWARDS,
        "next_values": next_values,
        "terminated": np.array(terminated, dtype=bool),
        "truncated": np.array(truncated, dtype=bool),
    }


@pytest.mark.parametrize("estimate", [reference.gae, reference.gae_forward])
@pytest.mark.parametrize(
    ("ending", "advantages", "returns"),
    [
        ("none", [1.375, 3.5, 6.0], [2.375, 4.5, 8.0]),
        ("truncated last", [1.375, 3.5, 6.0], [2.375, 4.5, 8.0]),
        ("terminated last", [1.125, 2.5, 2.0], [2.125, 3.5, 4.0]),
        ("terminated", [0.75, 1.0, 6.0], [1.75, 2.0, 8.0]),
        ("both", [0.75, 1.0, 6.0], [1.75, 2.0, 8.0]),
        ("truncated", [2.0, 6.0, 6.0], [3.0, 7.0, 8.0]),
    ],
)
def test_gae_of_three_steps(estimate, ending, advantages, returns):
    result = estimate(values=VALUES, **step_data(ending), **HALF)
    np.testing.assert_array_equal(result, [advantages, returns])


@pytest.mark.parametrize("estimate", [reference.gae, reference.gae_forward])
@pytest.mark.parametrize(
    ("terminated", "truncated", "advantage"),
    [(False, False, 5.0), (False, True, 5.0), (True, False, 1.0), (True, True, 1.0)],
)
def test_gae_of_one_step(estimate, terminated, truncated, advantage):
    result = estimate([3.0], [2.0], [8.0], [terminated], [truncated], **HALF)
    np.testing.assert_array_equal(result, [[advantage], [advantage + 2.0]])


@pytest.mark.parametrize("estimate", [reference.gae, reference.gae_forward])
def test_gae_of_two_steps_with_a_gamma_and_a_lambda_per_step(estimate):
    advantages, returns = estimate(
        [1.0, 1.0], [0.0, 2.0], [2.0, 4.0], [0, 0], [0, 0], gamma=[0.5, 0.25], lambda_=[0.5, NAN]
    )
    np.testing.assert_array_equal(advantages, [2.0, 0.0])
    np.testing.assert_array_equal(returns, [2.0, 2.0])


@pytest.mark.parametrize("estimate", [reference.gae, reference.gae_forward])
def test_gae_takes_padding_anywhere_for_the_end_of_a_piece(estimate):
    # Pieces: [1, 2] bootstrapping from 10 at its end, and [4] from 8.
    advantages, returns = estimate(
        [NAN, 1.0, 2.0, NAN, 4.0, NAN],
        [NAN, 1.0, 1.0, NAN, 2.0, NAN],
        [NAN, 1.0, 10.0, NAN, 8.0, NAN],
        [True, False, False, True, False, True],
        [True, False, False, True, False, False],
        gamma=[NAN, 0.5, 0.5, NAN, 0.5, NAN],
        lambda_=0.5,
        valid=[False, True, True, False, True, False],
    )
    np.testing.assert_array_equal(advantages, [0.0, 2.0, 6.0, 0.0, 6.0, 0.0])
    np.testing.assert_array_equal(returns, [0.0, 3.0, 7.0, 0.0, 8.0, 0.0])


@pytest.mark.parametrize("estimate", [reference.gae, reference.gae_forward])
def test_a_nan_reward_stays_in_its_episode(estimate):
    advantages, _ = estimate(
        [1.0, 1.0, 1.0, NAN, 1.0],
        np.zeros(5),
        np.zeros(5),
        [False, True, False, False, False],
        np.zeros(5, dtype=bool),
        **HALF,
    )
    np.testing.assert_array_equal(np.isnan(advantages), [False, False, True, True, False])


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        ("none", [2.375, 4.5, 8.0]),
        ("terminated last", [2.125, 3.5, 4.0]),
        ("terminated", [1.75, 2.0, 8.0]),
        ("both", [1.75, 2.0, 8.0]),
        ("truncated", [3.0, 7.0, 8.0]),
    ],
)
def test_lambda_returns_of_three_steps(ending, expected):
    np.testing.assert_array_equal(reference.lambda_returns(**step_data(ending), **HALF), expected)


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        ("none", [4.0, 6.0, 8.0]),
        ("terminated last", [3.0, 4.0, 4.0]),
        ("terminated", [2.0, 2.0, 8.0]),
        ("both", [2.0, 2.0, 8.0]),
        ("truncated", [4.5, 7.0, 8.0]),
    ],
)
def test_discounted_returns_of_three_steps(ending, expected):
    result = reference.discounted_returns(**step_data(ending), gamma=0.5)
    np.testing.assert_array_equal(result, expected)


def test_discounted_returns_read_next_values_only_at_ends():
    result = reference.discounted_returns(
        [1.0, 1.0, 1.0, 1.0],
        [NAN, 4.0, NAN, NAN],
        [0, 0, 0, 1],
        [0, 1, 0, 0],
        gamma=0.5,
    )
    np.testing.assert_array_equal(result, [2.5, 3.0, 1.5, 1.0])


@pytest.mark.parametrize(
    ("ending", "n", "expected"),
    [
        ("none", 1, [1.5, 3.0, 8.0]),
        ("none", 2, [2.5, 6.0, 8.0]),
        ("none", 3, [4.0, 6.0, 8.0]),
        ("none", 9, [4.0, 6.0, 8.0]),
        ("terminated last", 2, [2.5, 4.0, 4.0]),
        ("terminated", 1, [1.5, 2.0, 8.0]),
        ("terminated", 2, [2.0, 2.0, 8.0]),
        ("both", 2, [2.0, 2.0, 8.0]),
        ("truncated", 2, [4.5, 7.0, 8.0]),
        ("truncated", 3, [4.5, 7.0, 8.0]),
    ],
)
def test_n_step_returns_of_three_steps(ending, n, expected):
    result = reference.n_step_returns(**step_data(ending), gamma=0.5, n=n)
    np.testing.assert_array_equal(result, expected)


def test_n_step_returns_multiply_the_gammas_of_the_steps_they_pass():
    result = reference.n_step_returns(
        [1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [0, 0, 0], [0, 0, 0], gamma=[0.5, 0.25, 2.0], n=2
    )
    np.testing.assert_array_equal(result, [1.0 + 0.5 + 0.125, 1.0 + 0.25 + 0.5, 3.0])


@pytest.mark.parametrize("n", [0, -1])
def test_n_step_returns_refuse_empty_windows(n):
    with pytest.raises(ValueError, match="at least 1"):
        reference.n_step_returns(**step_data("none"), gamma=0.5, n=n)


@pytest.mark.parametrize(
    ("ending", "options", "advantages", "returns"),
    [
        ("none", {}, [1.75, 2.5, 6.0], [2.75, 3.5, 8.0]),
        ("terminated", {}, [0.75, 0.5, 6.0], [1.75, 1.5, 8.0]),
        ("both", {}, [0.75, 0.5, 6.0], [1.75, 1.5, 8.0]),
        ("truncated", {}, [2.0, 3.0, 6.0], [3.0, 4.0, 8.0]),
        ("none", {"mix": 0.5}, [2.625, 2.5, 6.0], [3.625, 3.5, 8.0]),
        (
            "none",
            {"lambda_": 0.5, "clip_c": 0.25, "clip_pg_rho": 2.0},
            [2.375, 2.5, 6.0],
            [1.5859375, 2.375, 8.0],
        ),
    ],
)
def test_vtrace_of_three_steps(ending, options, advantages, returns):
    log_ratios = [math.log(2.0), math.log(0.5), 0.0]
    result = reference.vtrace(log_ratios, values=VALUES, **step_data(ending), gamma=0.5, **options)
    np.testing.assert_allclose(result, [advantages, returns], rtol=1e-15)


@pytest.mark.parametrize(("log_ratio", "weight"), [(1000.0, 1.0), (-1000.0, 0.0), (NAN, NAN)])
def test_vtrace_of_one_step_with_an_extreme_ratio(log_ratio, weight):
    advantages, returns = reference.vtrace([log_ratio], [3.0], [2.0], [8.0], [0], [0], gamma=0.5)
    np.testing.assert_array_equal(advantages, [weight * 5.0])
    np.testing.assert_array_equal(returns, [weight * 5.0 + 2.0])


@pytest.mark.parametrize(
    ("trace", "ending", "lambda_", "expected"),
    [
        ("q_lambda", "none", 0.5, [2.375, 4.5, 8.0]),
        ("q_lambda", "truncated", 0.5, [3.0, 7.0, 8.0]),
        ("retrace", "none", 1.0, [2.75, 6.0, 8.0]),
        ("retrace", "terminated", 1.0, [1.75, 2.0, 8.0]),
        ("retrace", "both", 1.0, [1.75, 2.0, 8.0]),
        ("retrace", "truncated", 1.0, [3.0, 7.0, 8.0]),
        ("retrace", "none", [NAN, 0.5, 0.5], [1.9375, 4.5, 8.0]),
        ("importance_sampling", "none", 1.0, [3.5, 9.0, 8.0]),
        ("tree_backup", "none", 1.0, [1.9375, 4.5, 8.0]),
    ],
)
def test_retrace_of_three_steps(trace, ending, lambda_, expected):
    result = reference.retrace(
        q_values=VALUES,
        **step_data(ending),
        gamma=0.5,
        lambda_=lambda_,
        trace=trace,
        log_ratios=[NAN, math.log(0.5), math.log(2.0)],  # no trace leads into the first step
        log_policy=[NAN, math.log(0.25), math.log(0.5)],
    )
    np.testing.assert_allclose(result, expected, rtol=1e-15)


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        ("retrace", "needs log_ratios"),
        ("importance_sampling", "needs log_ratios"),
        ("tree_backup", "needs log_policy"),
        ("watkins", "unknown trace 'watkins'"),
    ],
)
def test_retrace_says_what_a_trace_needs(trace, message):
    with pytest.raises(ValueError, match=message):
        reference.retrace(q_values=VALUES, **step_data("none"), gamma=0.5, trace=trace)


@pytest.mark.parametrize(
    ("ending", "advantages", "returns"),
    [
        ("none", [3.0, 5.0, 6.0], [4.0, 6.0, 8.0]),
        ("terminated", [1.0, 1.0, 6.0], [2.0, 2.0, 8.0]),
        ("both", [1.0, 1.0, 6.0], [2.0, 2.0, 8.0]),
        ("truncated", [3.5, 6.0, 6.0], [4.5, 7.0, 8.0]),
    ],
)
def test_upgo_of_three_good_steps(ending, advantages, returns):
    result = reference.upgo(values=VALUES, **step_data(ending), gamma=0.5)
    np.testing.assert_array_equal(result, [advantages, returns])


@pytest.mark.parametrize(
    ("values", "next_values", "returns"),
    [
        ([1.0, 1.0, 9.0], [1.0, 9.0, 8.0], [4.25, 6.5, 8.0]),  # the last step does badly
        ([1.0, 3.0, 2.0], [3.0, 2.0, 8.0], [4.0, 6.0, 8.0]),  # a tie is followed
        ([1.0, 3.1, 2.0], [3.1, 2.0, 8.0], [2.55, 6.0, 8.0]),
    ],
)
def test_upgo_bootstraps_where_the_next_step_does_badly(values, next_values, returns):
    result = reference.upgo(REWARDS, values, next_values, [0, 0, 0], [0, 0, 0], gamma=0.5)
    np.testing.assert_array_equal(result[1], returns)
    np.testing.assert_array_equal(result[0], np.subtract(returns, values))


@pytest.mark.parametrize(
    ("gaps", "advantages", "returns"),
    [
        ("skip", [1.125, 0.0, 2.5, 2.0, 0.0], [2.125, 0.0, 3.5, 4.0, 0.0]),
        ("reset", [0.0, 0.0, 2.5, 2.0, 0.0], [1.0, 0.0, 3.5, 4.0, 0.0]),
    ],
)
def test_token_gae_of_two_runs(gaps, advantages, returns):
    result = reference.token_gae(
        [1.0, NAN, 2.0, 4.0, NAN],
        [1.0, NAN, 1.0, 2.0, NAN],
        [True, False, True, True, False],
        **HALF,
        gaps=gaps,
    )
    np.testing.assert_array_equal(result, [advantages, returns])


def test_token_gae_refuses_unknown_gaps():
    with pytest.raises(ValueError, match="unknown gaps 'drop'"):
        reference.token_gae([1.0], [1.0], [True], **HALF, gaps="drop")


@pytest.mark.parametrize(
    ("x", "valid", "expected"),
    [
        ([0.0, 2.0], None, [-1.0, 1.0]),
        ([[1.0, 3.0], [3.0, 1.0]], None, [[-1.0, 1.0], [1.0, -1.0]]),
        ([NAN, 0.0, 2.0, math.inf], [False, True, True, False], [0.0, -1.0, 1.0, 0.0]),
        ([5.0], None, [0.0]),
        ([NAN, NAN], [False, False], [0.0, 0.0]),
        ([], None, []),
        ([1.0, NAN, 3.0], [True, True, False], [NAN, NAN, 0.0]),
        ([math.inf, -math.inf], None, [NAN, NAN]),
        ([0.0, 1e-9], None, [-0.05, 0.05]),
    ],
)
def test_normalize_of_a_few_numbers(x, valid, expected):
    np.testing.assert_allclose(reference.normalize(x, valid), expected, rtol=1e-15)


@pytest.mark.parametrize("count", [1, 3, 10, 49, 1000])
@pytest.mark.parametrize("constant", [0.1, 1e16 / 3.0, -7.3])
def test_normalize_gives_exact_zeros_for_a_constant(constant, count):
    np.testing.assert_array_equal(reference.normalize([constant] * count), np.zeros(count))


def test_normalize_divides_by_the_least_std():
    np.testing.assert_array_equal(reference.normalize([0.0, 2.0], min_std=4.0), [-0.25, 0.25])


@pytest.mark.parametrize("name", ["values", "next_values", "terminated", "truncated", "valid"])
def test_a_shape_unlike_the_rewards_is_refused(name):
    data = {"values": VALUES, **step_data("none"), "valid": [True] * 3}
    data[name] = data[name][:2]
    with pytest.raises(ValueError, match=r"shape \(3,\) like the rewards, got \(2,\)"):
        reference.gae(**data, **HALF)


def test_a_gamma_with_too_few_axes_is_refused():
    flags = np.zeros((2, 3), dtype=bool)
    with pytest.raises(ValueError, match="as many axes"):
        reference.gae(
            flags, flags, flags, flags, flags, gamma=np.array([0.5, 0.5, 0.5]), lambda_=0.5
        )
