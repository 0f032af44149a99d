"""The references against each other, on random rollouts with flags, padding and NaN poison."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopless import reference

SHAPES = [(1,), (9,), (6, 5), (5, 2, 3)]


def seeds(test):
    """Run a test with several seeds."""
    return settings(max_examples=5)(given(seed=st.integers(0, 2**32 - 1))(test))


def make_rollout(shape, seed, *, consistent=False):
    """Random steps along axis 0; what must not be read is NaN.

    With `consistent`, the next value of a step that is no end is the value of the next row.
    """
    rng = np.random.default_rng(seed)
    rewards, values, next_values = rng.normal(size=(3, *shape))
    terminated, truncated = rng.random(size=(2, *shape)) < 0.15
    valid = rng.random(size=shape) > 0.2
    followed = np.zeros(shape, dtype=bool)
    followed[:-1] = valid[1:]
    if consistent:
        goes_on = followed & ~truncated
        next_values[:-1][goes_on[:-1]] = values[1:][goes_on[:-1]]
    for x in (rewards, values, next_values):
        x[~valid] = math.nan
    next_values[terminated] = math.nan
    return {
        "rewards": rewards,
        "values": values,
        "next_values": next_values,
        "terminated": terminated,
        "truncated": truncated,
        "valid": valid,
    }


def without(rollout, *names):
    return {name: x for name, x in rollout.items() if name not in names}


def per_step(shape, seed):
    gamma, lambda_ = np.random.default_rng([seed, 1]).uniform(size=(2, *shape))
    return {"gamma": gamma, "lambda_": lambda_}


def assert_close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


COEFFICIENTS = [
    {"gamma": gamma, "lambda_": lambda_}
    for gamma, lambda_ in [(0.9, 0.7), (1.0, 1.0), (0.0, 0.9), (0.9, 0.0), (1e-4, 1e-4)]
]


@pytest.mark.parametrize("coefficients", [*COEFFICIENTS, "per step"])
@pytest.mark.parametrize("shape", SHAPES)
@seeds
def test_gae_equals_its_forward_definition(seed, shape, coefficients):
    rollout = make_rollout(shape, seed)
    if coefficients == "per step":
        coefficients = per_step(shape, seed)
    backward = reference.gae(**rollout, **coefficients)
    assert_close(backward, reference.gae_forward(**rollout, **coefficients))
    assert np.isfinite(backward).all()
    assert not np.any(np.array(backward)[:, ~rollout["valid"]])


@pytest.mark.parametrize("shape", SHAPES)
@seeds
def test_gae_returns_are_lambda_returns(seed, shape):
    rollout, coefficients = make_rollout(shape, seed, consistent=True), per_step(shape, seed)
    _, returns = reference.gae(**rollout, **coefficients)
    assert_close(returns, reference.lambda_returns(**without(rollout, "values"), **coefficients))


@pytest.mark.parametrize("shape", SHAPES)
@seeds
def test_vtrace_on_policy_is_gae(seed, shape):
    rollout, coefficients = make_rollout(shape, seed), per_step(shape, seed)
    log_ratios = np.where(rollout["valid"], 0.0, math.nan)
    _, returns = reference.vtrace(log_ratios, **rollout, **coefficients)
    assert_close(returns, reference.gae(**rollout, **coefficients)[1])


@pytest.mark.parametrize("shape", SHAPES)
@seeds
def test_vtrace_advantages_on_policy_with_lambda_1_are_those_of_gae(seed, shape):
    rollout = make_rollout(shape, seed, consistent=True)
    log_ratios = np.where(rollout["valid"], 0.0, math.nan)
    result = reference.vtrace(log_ratios, **rollout, gamma=0.9)
    assert_close(result, reference.gae(**rollout, gamma=0.9, lambda_=1.0))


@pytest.mark.parametrize("shape", SHAPES)
@seeds
def test_vtrace_without_clips_is_leaky_vtrace_without_mix(seed, shape):
    rollout = make_rollout(shape, seed)
    log_ratios = np.random.default_rng(seed).normal(size=shape)
    log_ratios[~rollout["valid"]] = math.nan
    clips = {"clip_rho": math.inf, "clip_c": math.inf, "clip_pg_rho": math.inf}
    unclipped = reference.vtrace(log_ratios, **rollout, gamma=0.9, **clips)
    assert_close(reference.vtrace(log_ratios, **rollout, gamma=0.9, mix=0.0), unclipped)


@pytest.mark.parametrize("trace", ["retrace", "q_lambda", "importance_sampling", "tree_backup"])
@pytest.mark.parametrize("shape", SHAPES)
@seeds
def test_every_trace_of_a_sure_policy_gives_lambda_returns(seed, shape, trace):
    rollout = make_rollout(shape, seed, consistent=True)
    rollout["q_values"] = rollout.pop("values")
    zeros = np.where(rollout["valid"], 0.0, math.nan)
    result = reference.retrace(
        **rollout, gamma=0.9, lambda_=0.7, trace=trace, log_ratios=zeros, log_policy=zeros
    )
    expected = reference.lambda_returns(**without(rollout, "q_values"), gamma=0.9, lambda_=0.7)
    assert_close(result, expected)


@pytest.mark.parametrize("shape", SHAPES)
@seeds
def test_upgo_that_always_follows_is_the_discounted_return(seed, shape):
    rollout = make_rollout(shape, seed)
    rollout["values"] = np.where(rollout["valid"], -1e3, math.nan)
    _, returns = reference.upgo(**rollout, gamma=0.9)
    assert_close(returns, reference.discounted_returns(**without(rollout, "values"), gamma=0.9))


@pytest.mark.parametrize("shape", SHAPES)
@seeds
def test_upgo_that_never_follows_is_the_one_step_return(seed, shape):
    rollout = make_rollout(shape, seed)
    rollout["values"] = np.where(rollout["valid"], 1e3, math.nan)
    _, returns = reference.upgo(**rollout, gamma=0.9)
    one_step = reference.n_step_returns(**without(rollout, "values"), gamma=0.9, n=1)
    assert_close(returns, one_step)


@pytest.mark.parametrize("shape", SHAPES)
@seeds
def test_long_windows_and_lambda_1_both_give_discounted_returns(seed, shape):
    rollout = without(make_rollout(shape, seed), "values")
    gamma = per_step(shape, seed)["gamma"]
    discounted = reference.discounted_returns(**rollout, gamma=gamma)
    windows = reference.n_step_returns(**rollout, gamma=gamma, n=shape[0])
    assert_close(windows, discounted)
    assert_close(reference.lambda_returns(**rollout, gamma=gamma, lambda_=1.0), discounted)


@pytest.mark.parametrize("shape", SHAPES)
@seeds
def test_windows_of_one_step_and_lambda_0_agree(seed, shape):
    rollout = without(make_rollout(shape, seed), "values")
    one_step = reference.n_step_returns(**rollout, gamma=0.9, n=1)
    assert_close(reference.lambda_returns(**rollout, gamma=0.9, lambda_=0.0), one_step)


@pytest.mark.parametrize("shape", SHAPES)
@seeds
def test_gae_is_an_affine_scan(seed, shape):
    rollout, coefficients = make_rollout(shape, seed), per_step(shape, seed)
    gamma, lambda_ = coefficients["gamma"], coefficients["lambda_"]
    valid, terminated = rollout["valid"], rollout["terminated"]
    next_is_valid = np.concatenate([valid[1:], np.zeros_like(valid[:1])])
    end = terminated | rollout["truncated"] | ~next_is_valid
    bootstrap = np.where(terminated, 0.0, gamma * rollout["next_values"])
    a = np.where(valid & ~end, gamma * lambda_, 0.0)
    b = np.where(valid, rollout["rewards"] + bootstrap - rollout["values"], 0.0)
    assert_close(reference.affine_scan(a, b), reference.gae(**rollout, **coefficients)[0])


ESTIMATORS = {
    "gae": lambda r, **o: reference.gae(**r, lambda_=0.7, **o),
    "gae_forward": lambda r, **o: reference.gae_forward(**r, lambda_=0.7, **o),
    "lambda_returns": lambda r, **o: reference.lambda_returns(
        **without(r, "values"), lambda_=0.7, **o
    ),
    "discounted_returns": lambda r, **o: reference.discounted_returns(**without(r, "values"), **o),
    "n_step_returns": lambda r, **o: reference.n_step_returns(**without(r, "values"), n=3, **o),
    "vtrace": lambda r, **o: reference.vtrace(0.3 * r["rewards"], **r, **o),
    "retrace": lambda r, **o: reference.retrace(
        **without(r, "values"), q_values=r["values"], log_ratios=0.3 * r["rewards"], **o
    ),
    "upgo": lambda r, **o: reference.upgo(**r, **o),
}


@pytest.mark.parametrize("name", ESTIMATORS)
@seeds
def test_every_estimator_equals_its_pieces_split_at_the_ends(seed, name):
    rollout = make_rollout((12,), seed)
    valid = rollout["valid"]
    pieces, piece = [], []
    for t in range(12):
        if valid[t]:
            piece.append(t)
        if piece and (
            not valid[t] or t == 11 or rollout["terminated"][t] | rollout["truncated"][t]
        ):
            pieces.append(piece)
            piece = []
    expected = np.zeros_like(ESTIMATORS[name](rollout, gamma=0.9))
    for piece in pieces:
        alone = {key: x[piece] for key, x in without(rollout, "valid").items()}
        expected[..., piece] = ESTIMATORS[name](alone, gamma=0.9)
    assert_close(ESTIMATORS[name](rollout, gamma=0.9), expected)


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("time_axis", [0, 1, 2, -1, -2, -3])
def test_every_estimator_works_along_every_axis(time_axis, name):
    rollout = make_rollout((5, 2, 3), 0)
    expected = np.array(ESTIMATORS[name](rollout, gamma=0.9))
    moved = {key: np.moveaxis(x, 0, time_axis) for key, x in rollout.items()}
    result = np.array(ESTIMATORS[name](moved, gamma=0.9, time_axis=time_axis))
    extra = result.ndim - 3  # estimators that give two arrays have them stacked in front
    axis = range(3)[time_axis]
    np.testing.assert_array_equal(np.moveaxis(result, axis + extra, extra), expected)
    assert result.dtype == np.float64


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_every_estimator_gives_nothing_for_nothing(shape, name):
    result = np.array(ESTIMATORS[name](make_rollout_of_nothing(shape), gamma=0.9))
    assert result.shape[-len(shape) :] == shape


def make_rollout_of_nothing(shape):
    floats, flags = np.zeros(shape), np.zeros(shape, dtype=bool)
    data = dict.fromkeys(("rewards", "values", "next_values"), floats)
    return data | dict.fromkeys(("terminated", "truncated", "valid"), flags)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_broadcasts_gamma(name):
    rollout = make_rollout((4, 3), 2)
    gamma = np.array([[0.5, 0.8, 1.0]])
    result = ESTIMATORS[name](rollout, gamma=gamma)
    full = ESTIMATORS[name](rollout, gamma=np.repeat(gamma, 4, axis=0))
    np.testing.assert_array_equal(result, full)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_leaves_its_inputs_alone(name):
    rollout = make_rollout((4, 3), 3)
    copies = {key: x.copy() for key, x in rollout.items()}
    ESTIMATORS[name](rollout, gamma=0.9)
    assert all(np.array_equal(rollout[key], copies[key], equal_nan=key[0] != "t") for key in copies)


@pytest.mark.parametrize("bits", range(32))
def test_token_gae_that_skips_gaps_is_gae_of_the_compressed_tokens(bits):
    mask = np.array([bits >> t & 1 for t in range(5)], dtype=bool)
    rewards, values = np.random.default_rng(bits).normal(size=(2, 5))
    rewards[~mask] = values[~mask] = math.nan
    kept = values[mask]
    flags = np.zeros(len(kept), dtype=bool)
    terminated = flags.copy()
    terminated[-1:] = True
    next_values = np.append(kept[1:], math.nan)[: len(kept)]
    expected = np.zeros((2, 5))
    expected[:, mask] = reference.gae_forward(
        rewards[mask], kept, next_values, terminated, flags, gamma=0.9, lambda_=0.7
    )
    assert_close(reference.token_gae(rewards, values, mask, gamma=0.9, lambda_=0.7), expected)


@pytest.mark.parametrize("bits", range(32))
def test_token_gae_that_resets_at_gaps_is_gae_terminated_before_them(bits):
    mask = np.array([bits >> t & 1 for t in range(5)], dtype=bool)
    rewards, values = np.random.default_rng(bits).normal(size=(2, 5))
    rewards[~mask] = values[~mask] = math.nan
    next_values = np.append(values[1:], math.nan)
    terminated = ~np.append(mask[1:], False)
    expected = reference.gae_forward(
        rewards,
        values,
        next_values,
        terminated,
        np.zeros(5, dtype=bool),
        gamma=0.9,
        lambda_=0.7,
        valid=mask,
    )
    result = reference.token_gae(rewards, values, mask, gamma=0.9, lambda_=0.7, gaps="reset")
    assert_close(result, expected)


@pytest.mark.parametrize("gaps", ["skip", "reset"])
@pytest.mark.parametrize("time_axis", [0, 1, -1])
def test_token_gae_works_along_every_axis(time_axis, gaps):
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=(2, 6, 3))
    mask = rng.random((6, 3)) < 0.6
    expected = [
        reference.token_gae(
            rewards[:, b], values[:, b], mask[:, b], gamma=0.9, lambda_=0.7, gaps=gaps
        )
        for b in range(3)
    ]
    moved = [np.moveaxis(x, 0, time_axis) for x in (rewards, values, mask)]
    result = reference.token_gae(*moved, gamma=0.9, lambda_=0.7, gaps=gaps, time_axis=time_axis)
    for position in range(2):
        columns = np.stack([pair[position] for pair in expected], axis=1)
        np.testing.assert_array_equal(np.moveaxis(result[position], time_axis, 0), columns)


@seeds
def test_normalized_entries_have_mean_0_and_std_1(seed):
    rng = np.random.default_rng(seed)
    x, valid = rng.normal(3.0, 5.0, size=(6, 4)), rng.random((6, 4)) < 0.7
    x[~valid] = math.nan
    result = reference.normalize(x, valid)
    assert_close([result[valid].mean(), result[valid].std()], [0.0, 1.0])
    assert not result[~valid].any()
    assert_close(reference.normalize(result, valid), result)
