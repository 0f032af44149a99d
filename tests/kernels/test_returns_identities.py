"""Limits and identities that hold between the estimators, and the numbers of hand-worked cases."""

import itertools

import numpy as np
import pytest
from support.backends import BACKENDS, NUMPY
from support.compare import assert_all_close, assert_close
from support.situations import rollout

import loopless as ll
from loopless import reference

every_backend = pytest.mark.parametrize("backend", BACKENDS, ids=str)
SIZES = [(30, 3), (1, 2), (64,)]


def arguments(backend, data, *names):
    return [backend.array(data[name]) for name in names]


def numpy(backend, out):
    return [backend.numpy(x) for x in (out if isinstance(out, tuple) else (out,))]


ENDS = ("terminated", "truncated")


@every_backend
@pytest.mark.parametrize(
    ("terminated", "truncated"), list(itertools.product([False, True], repeat=2))
)
def test_case_01_one_step(backend, terminated, truncated):
    one = [backend.array(np.array([x])) for x in (2.0, 0.5, 3.0, terminated, truncated)]
    advantages, returns = ll.gae(*one, gamma=0.9, lambda_=0.8)
    expected = 2.0 + (0.0 if terminated else 0.9 * 3.0) - 0.5
    assert_all_close(numpy(backend, (advantages, returns)), [[expected], [expected + 0.5]])


@every_backend
@pytest.mark.parametrize("flag", ENDS)
def test_case_02_all_rows_ended_leaves_the_td_error(backend, flag):
    data = rollout((9, 3), 0, terminated=0.0, truncated=0.0)
    data[flag][:] = True
    names = ("rewards", "values", "next_values", *ENDS)
    advantages, _ = ll.gae(*arguments(backend, data, *names), gamma=0.9, lambda_=0.8)
    bootstrap = 0.0 if flag == "terminated" else 0.9 * data["next_values"]
    assert_close(backend.numpy(advantages), data["rewards"] + bootstrap - data["values"])


@every_backend
def test_case_03_an_end_in_the_first_row_isolates_it(backend):
    data = rollout((9, 3), 1, terminated=0.0, truncated=0.0)
    data["terminated"][0] = True
    names = ("rewards", "values", "next_values", *ENDS)
    advantages, _ = ll.gae(*arguments(backend, data, *names), gamma=0.9, lambda_=0.8)
    assert_close(backend.numpy(advantages)[0], (data["rewards"] - data["values"])[0])


@every_backend
def test_case_04_a_window_that_ends_unflagged_bootstraps_like_a_truncation(backend):
    data = rollout((9, 3), 2, terminated=0.0, truncated=0.0)
    names = ("rewards", "values", "next_values", *ENDS)
    unflagged = ll.gae(*arguments(backend, data, *names), gamma=0.9, lambda_=0.8)
    data["truncated"][-1] = True
    flagged = ll.gae(*arguments(backend, data, *names), gamma=0.9, lambda_=0.8)
    assert_all_close(numpy(backend, unflagged), numpy(backend, flagged))
    # esper bootstraps such a window with 0: its last advantage differs by exactly γV′
    esper, _, _ = reference.esper.compute_advantages_and_returns(
        *(data[k].T for k in ("rewards", "values")), np.zeros((3, 9), bool),
        np.zeros((3, 9), bool), data["next_values"].T, np.full(3, 9), gamma=0.9, lambda_=0.8,
    )  # fmt: skip
    difference = backend.numpy(unflagged[0])[-1] - esper.T[-1]
    assert_close(difference, 0.9 * data["next_values"][-1])


@every_backend
@pytest.mark.parametrize("shape", SIZES)
def test_case_06_limits_of_gamma_and_lambda(backend, shape):
    data = rollout(shape, 3)
    r, v, v_next, *ends = arguments(backend, data, "rewards", "values", "next_values", *ENDS)
    advantages, _ = ll.gae(r, v, v_next, *ends, gamma=0.0, lambda_=0.7)
    assert_close(backend.numpy(advantages), data["rewards"] - data["values"])
    advantages, _ = ll.gae(r, v, v_next, *ends, gamma=0.9, lambda_=0.0)
    bootstrap = np.where(data["terminated"], 0.0, data["next_values"])
    assert_close(backend.numpy(advantages), data["rewards"] + 0.9 * bootstrap - data["values"])
    _, returns = ll.gae(r, v, v_next, *ends, gamma=0.9, lambda_=1.0)
    expected = ll.discounted_returns(r, v_next, *ends, gamma=0.9)
    assert_close(backend.numpy(returns), backend.numpy(expected))


@every_backend
def test_case_06_gamma_and_lambda_one_give_suffix_sums(backend):
    data = rollout((20, 3), 4, terminated=0.0, truncated=0.0)
    data["terminated"][-1] = True
    r, v, v_next, *ends = arguments(backend, data, "rewards", "values", "next_values", *ENDS)
    _, returns = ll.gae(r, v, v_next, *ends, gamma=1.0, lambda_=1.0)
    assert_close(backend.numpy(returns), np.cumsum(data["rewards"][::-1], axis=0)[::-1])


@every_backend
@pytest.mark.parametrize("decay", [1e-8, 0.9999, 1.0])
def test_case_07_extreme_decays_have_no_artefacts(backend, decay):
    data = rollout((300, 2), 5, terminated=0.01, truncated=0.01)
    names = ("rewards", "values", "next_values", *ENDS)
    got = ll.gae(*arguments(backend, data, *names), gamma=1.0, lambda_=decay)
    expected = reference.gae(*(data[k] for k in names), gamma=1.0, lambda_=decay)
    assert_all_close(numpy(backend, got), expected)


@every_backend
@pytest.mark.parametrize("shape", SIZES)
def test_case_18_returns_are_advantages_plus_values(backend, shape):
    data = rollout(shape, 6)
    names = ("rewards", "values", "next_values", *ENDS)
    arrays = arguments(backend, data, *names)
    advantages, returns = numpy(backend, ll.gae(*arrays, gamma=0.9, lambda_=0.8))
    assert_close(returns - data["values"], advantages)
    r, _, v_next, *ends = arrays
    by_lambda = ll.lambda_returns(r, v_next, *ends, gamma=0.9, lambda_=0.8)
    # with V′ of an inner row equal to the next row's V, the two are the same estimator
    assert_close(backend.numpy(by_lambda), returns)


@every_backend
@pytest.mark.parametrize("shape", SIZES)
def test_case_18_vtrace_on_policy_is_gae(backend, shape):
    data = rollout(shape, 7)
    data["log_ratios"] = np.zeros(shape)
    names = ("rewards", "values", "next_values", *ENDS)
    (ratios,) = arguments(backend, data, "log_ratios")
    arrays = arguments(backend, data, *names)
    _, returns = ll.vtrace(ratios, *arrays, gamma=0.9, lambda_=0.8)
    _, expected = ll.gae(*arrays, gamma=0.9, lambda_=0.8)
    assert_close(backend.numpy(returns), backend.numpy(expected))


@every_backend
@pytest.mark.parametrize("shape", SIZES)
def test_case_18_q_lambda_with_q_equal_v_is_the_lambda_return(backend, shape):
    data = rollout(shape, 8)
    r, v, v_next, *ends = arguments(backend, data, "rewards", "values", "next_values", *ENDS)
    got = ll.retrace(r, v, v_next, *ends, gamma=0.9, lambda_=0.8, trace="q_lambda")
    expected = ll.lambda_returns(r, v_next, *ends, gamma=0.9, lambda_=0.8)
    assert_close(backend.numpy(got), backend.numpy(expected))


@every_backend
@pytest.mark.parametrize("shape", SIZES)
def test_case_18_upgo_that_always_wins_is_the_bootstrapped_return(backend, shape):
    data = rollout(shape, 9)
    data["values"] = np.full(shape, -1e3)
    r, v, v_next, *ends = arguments(backend, data, "rewards", "values", "next_values", *ENDS)
    _, got = ll.upgo(r, v, v_next, *ends, gamma=0.9)
    expected = ll.discounted_returns(r, v_next, *ends, gamma=0.9)
    assert_close(backend.numpy(got), backend.numpy(expected))


@every_backend
@pytest.mark.parametrize("n", [30, 31, 10_000])
def test_case_18_n_step_beyond_the_window_is_the_bootstrapped_return(backend, n):
    data = rollout((30, 3), 10)
    r, v_next, *ends = arguments(backend, data, "rewards", "next_values", *ENDS)
    got = ll.n_step_returns(r, v_next, *ends, gamma=0.9, n=n)
    expected = ll.discounted_returns(r, v_next, *ends, gamma=0.9)
    assert_close(backend.numpy(got), backend.numpy(expected))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 16, 17, 33])
@pytest.mark.parametrize("steps", [1, 2, 7, 16, 17])
def test_n_step_windows_of_every_length_equal_the_loop(n, steps):
    data = rollout((steps, 3), 11, terminated=0.05, truncated=0.05)
    names = ("rewards", "next_values", *ENDS)
    got = ll.n_step_returns(*(data[k] for k in names), gamma=0.97, n=n)
    assert_close(got, reference.n_step_returns(*(data[k] for k in names), gamma=0.97, n=n))


def test_n_step_windows_lose_no_digits_near_gamma_one():
    data = rollout((20_000, 1), 12, terminated=0.0, truncated=0.0)
    data["rewards"] += 1e3  # sums that a difference of rewards-to-go would have to cancel
    names = ("rewards", "next_values", *ENDS)
    got = ll.n_step_returns(*(data[k] for k in names), gamma=1.0, n=5)
    expected = reference.n_step_returns(*(data[k] for k in names), gamma=1.0, n=5)
    np.testing.assert_allclose(got, expected, rtol=1e-14)


@pytest.mark.parametrize("gaps", ["skip", "reset"])
@every_backend
def test_case_24_all_masks_of_eight_tokens(backend, gaps):
    masks = np.array(list(itertools.product([False, True], repeat=8))).T
    rng = np.random.default_rng(13)
    rewards, values = rng.standard_normal((2, *masks.shape))
    rewards[~masks], values[~masks] = np.nan, np.inf
    arrays = [backend.array(x) for x in (rewards, values, masks)]
    got = ll.token_gae(*arrays, gamma=0.9, lambda_=0.8, gaps=gaps)
    expected = reference.token_gae(rewards, values, masks, gamma=0.9, lambda_=0.8, gaps=gaps)
    assert_all_close(numpy(backend, got), expected)


@every_backend
def test_case_24_skipping_equals_gae_on_the_compressed_tokens(backend):
    rng = np.random.default_rng(14)
    mask = rng.random(40) < 0.6
    rewards, values = rng.standard_normal((2, 40))
    got, _ = ll.token_gae(
        *(backend.array(x) for x in (rewards, values, mask)), gamma=0.9, lambda_=0.8
    )
    kept = rewards[mask], values[mask]
    ends = np.zeros((2, mask.sum()), bool)
    ends[0, -1] = True
    following = np.append(kept[1][1:], 0.0)
    expected, _ = reference.gae(*kept, following, *ends, gamma=0.9, lambda_=0.8)
    assert_close(backend.numpy(got)[mask], expected)


@every_backend
def test_case_30_esper_fixture(backend):
    rewards, values = np.array([1.0, 1, 10, 2]), np.array([0.5, 0.25, 1, 0.75])
    next_values = np.array([0.25, np.nan, 0.75, 4.0])
    terminated = np.array([False, True, False, False])
    truncated = np.array([False, False, False, True])
    one = [backend.array(x) for x in (rewards, values, next_values, terminated, truncated)]
    advantages, _ = ll.gae(*one, gamma=0.9, lambda_=0.5)
    assert_close(backend.numpy(advantages), [1.0625, 0.75, 11.8575, 4.85])


@every_backend
def test_case_30_interior_truncation_fixture(backend):
    rewards, values = np.array([1.0, 1, 10, 2]), np.array([0.5, 0.25, 1, 0.75])
    next_values = np.array([0.25, 7.0, 0.75, 4.0])
    terminated = np.zeros(4, bool)
    truncated = np.array([False, True, False, True])
    one = [backend.array(x) for x in (rewards, values, next_values, terminated, truncated)]
    advantages, _ = ll.gae(*one, gamma=0.9, lambda_=0.5)
    assert_close(backend.numpy(advantages)[:2], [3.8975, 7.05])


@every_backend
def test_case_11_a_nan_reward_stays_in_its_episode(backend):
    data = rollout((10, 2), 15, terminated=0.0, truncated=0.0)
    data["truncated"][3] = data["terminated"][7] = True
    data["rewards"][5, 0] = np.nan
    names = ("rewards", "values", "next_values", *ENDS)
    advantages, returns = ll.gae(*arguments(backend, data, *names), gamma=0.9, lambda_=0.8)
    touched = np.zeros((10, 2), bool)
    touched[4:6, 0] = True
    np.testing.assert_array_equal(np.isnan(backend.numpy(advantages)), touched)
    np.testing.assert_array_equal(np.isnan(backend.numpy(returns)), touched)


def test_gae_equals_the_forward_definition():
    data = rollout((40, 3), 16)
    names = ("rewards", "values", "next_values", *ENDS)
    got = ll.gae(*arguments(NUMPY, data, *names), gamma=0.9, lambda_=0.8)
    expected = reference.gae_forward(*(data[k] for k in names), gamma=0.9, lambda_=0.8)
    assert_all_close(got, expected)


@every_backend
def test_vtrace_with_huge_ratios_is_clipped_and_finite(backend):
    data = rollout((6, 2), 17)
    data["log_ratios"] = np.full((6, 2), 1000.0)
    names = ("log_ratios", "rewards", "values", "next_values", *ENDS)
    for dtype in ("float32", "float64"):
        arrays = [backend.array(data[k], dtype) for k in names]
        got = ll.vtrace(*arrays, gamma=0.9)
        data0 = dict(data, log_ratios=np.zeros((6, 2)))
        expected = reference.vtrace(*(data0[k] for k in names), gamma=0.9)
        assert_all_close(numpy(backend, got), expected, dtype)
