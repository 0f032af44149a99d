"""Laws of actions: samples have them, densities integrate to 1, squashing changes variables."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from policy_cases import (
    CHOICES,
    HEADS,
    HIGH,
    LOW,
    case,
    compiled,
    finite_differences,
    fits,
    plain_choices,
)
from scipy import integrate, stats

from loopless.envs.spaces import Box
from loopless.nets.distributions import SquashedGaussian, head_of

pytestmark = pytest.mark.slow  # JAX compiles each network

LOW_1, HIGH_1 = -0.5, 1.5
HEADS_1 = {
    "gaussian": head_of(Box((1,))),
    "squashed": head_of(Box((1,), "float32", LOW_1, HIGH_1), squash=True),
}


# --- frequencies and densities -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "law"),
    [("discrete", stats.gumbel_r), ("gaussian", stats.norm)],
    ids=["choice", "number"],
)
def test_noise_is_gumbels_or_gausss(name, law):
    noise = HEADS[name].noise(jax.random.key(1), (1500,))
    assert noise.dtype == np.float32
    assert stats.kstest(np.asarray(noise).ravel(), law.cdf).pvalue > 1e-3
    assert stats.kstest(np.asarray(noise).ravel() + 0.1, law.cdf).pvalue < 1e-3


def noise_of(head, shape):
    """As `head.noise`, but by NumPy: JAX would compile a generator for every shape."""
    shape = jax.eval_shape(lambda: head.noise(jax.random.key(0), shape)).shape
    rng = np.random.default_rng(2)
    return rng.gumbel(size=shape) if head.raw_dtype == "int32" else rng.normal(size=shape)


@pytest.mark.parametrize("masked", [False, True], ids=["all legal", "masked"])
@pytest.mark.parametrize("name", CHOICES)
def test_choices_have_their_frequencies(name, masked):
    head, params = HEADS[name], case(name)[0][0]
    mask = np.arange(head.outputs) % 3 != 1 if masked else None
    draw = jax.jit(lambda params, mask, noise: head(params, None, mask).sample(noise))
    raw = np.asarray(draw(params, mask, noise_of(head, (8000,)))).reshape(8000, -1)
    for column, law in zip(raw.T, plain_choices(head.sizes, params, mask), strict=True):
        assert fits(np.bincount(column, minlength=len(law)), np.array(law))


def test_the_check_of_frequencies_can_fail():
    law = np.array(plain_choices((4,), case("discrete")[0][0])[0])
    counts = np.random.default_rng(0).multinomial(8000, law)
    assert fits(counts, law)
    assert not fits(counts, np.full(4, 0.25))


@pytest.mark.parametrize("name", ["gaussian", "state_std", "squashed"])
def test_samples_are_mean_plus_scale_times_noise(name):
    head, (params, own, _) = HEADS[name], case(name)
    noise = noise_of(head, params.shape[:1])
    scale = np.exp(params[:, 3:] if head.state_std else own)
    ours = jax.jit(lambda *x: head(*x[:2]).sample(x[2]))(params, own, noise)
    np.testing.assert_allclose(ours, params[:, :3] + scale * noise, rtol=1e-12)


def density(name, actions, mean, log_std):
    """The density of environment actions [n]."""
    if name == "squashed":
        raw = np.arctanh((actions - LOW_1) / (HIGH_1 - LOW_1) * 2 - 1)
    else:
        raw = actions
    law = HEADS_1[name](jnp.full((1,), mean), jnp.full((1,), log_std))
    return np.exp(np.asarray(law.log_prob(raw[:, None])))


@pytest.mark.parametrize("name", HEADS_1)
def test_densities_integrate_to_one_and_match_samples(name):
    mean, log_std, head = 0.4, -0.3, HEADS_1[name]
    ends = (LOW_1, HIGH_1) if name == "squashed" else (mean - 9, mean + 9)
    grid = np.linspace(*ends, 40_001)[1:-1]
    cumulative = integrate.cumulative_simpson(density(name, grid, mean, log_std), x=grid, initial=0)
    assert cumulative[-1] == pytest.approx(1, abs=1e-6)
    law = head(jnp.full((1,), mean), jnp.full((1,), log_std))
    raw = law.sample(noise_of(head, (10_000,)))
    seen = np.asarray(head.to_env(raw))[:, 0]
    shares = np.linspace(0, 1, 21)
    edges = np.interp(shares[1:-1], cumulative, grid)
    counts = np.bincount(np.digitize(seen, edges), minlength=20)
    assert stats.chisquare(counts).pvalue > 1e-3
    moved = np.bincount(np.digitize(seen + 0.1, edges), minlength=20)
    assert stats.chisquare(moved).pvalue < 1e-3  # the check can fail


# --- squashing -----------------------------------------------------------------------------------


def test_squashed_log_probability_is_the_change_of_variables():
    head, (params, own, raw) = HEADS["squashed"], case("squashed")
    raw = np.clip(raw, -2, 2)
    actions, low, high = np.asarray(head.to_env(raw)), np.array(LOW), np.array(HIGH)

    def inverse(a):
        return np.arctanh((a - low) / (high - low) * 2 - 1)

    np.testing.assert_allclose(inverse(actions), raw, atol=1e-12)
    step = 1e-6
    slope = (inverse(actions + step) - inverse(actions - step)) / (2 * step)
    normal = stats.norm.logpdf(inverse(actions), params, np.exp(own))
    expected = (normal + np.log(slope)).sum(-1)
    log_probs = compiled("squashed")(params, own, None, raw).log_prob
    np.testing.assert_allclose(log_probs, expected, rtol=1e-7)
    assert np.abs(normal.sum(-1) - expected).min() > 0.1  # without the correction it would be seen


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_squashed_log_probability_is_stable_far_out(dtype):
    u, mean = dtype([20, -20])[:, None], dtype([19, -19])

    @jax.jit
    def words(mean):
        law = one_squashed(mean, dtype(0))
        return law.log_prob(u), law.entropy(u)

    # log(1 − tanh² u) = log 4 − 2|u| − 2 log(1 + exp(−2|u|)), and the last term is 0 here
    expected = -0.5 - np.log(2 * np.pi) / 2 - (np.log(4) - 40) - np.log((HIGH_1 - LOW_1) / 2)
    log_prob, entropy = words(mean)
    np.testing.assert_allclose(log_prob, [expected] * 2, rtol=1e-6)
    np.testing.assert_allclose(entropy, [-expected] * 2, rtol=1e-6)
    slopes = jax.jit(jax.jacobian(words))(mean)
    np.testing.assert_allclose(np.diagonal(slopes[0]), [1, -1], rtol=1e-6)
    np.testing.assert_allclose(np.diagonal(slopes[1]), [-2, 2], rtol=1e-6)


@pytest.mark.parametrize("name", ["gaussian", "squashed"])
def test_the_environment_gets_nothing_out_of_bounds(name):
    head = HEADS[name]
    raw = np.float32([[-1e9, 0, 1e9], [-20, 0.3, 20], [1, -1, 0.2]])
    actions = np.asarray(head.to_env(raw))
    assert np.all((actions >= np.float32(head.low)) & (actions <= np.float32(head.high)))
    assert actions.dtype == np.float32
    if name == "gaussian":
        np.testing.assert_array_equal(actions, np.clip(raw, -1, 1))
    else:
        np.testing.assert_array_equal(actions[0, ::2], [LOW[0], HIGH[2]])


@pytest.mark.parametrize("shape", [(), (2, 3)], ids=str)
def test_boxes_of_any_shape_are_flat_numbers(shape):
    head = head_of(Box(shape, "float32", -1.0, 1.0))
    size = int(np.prod(shape))
    assert (head.outputs, head.own, head.raw_shape) == (size, size, (size,))
    assert head.to_env(np.zeros((5, size), np.float32)).shape == (5, *shape)


def test_without_bounds_nothing_is_clipped():
    raw = np.float32([[-1e9], [3]])
    np.testing.assert_array_equal(HEADS_1["gaussian"].to_env(raw), raw)


def test_scales_never_overflow():
    law = HEADS_1["gaussian"](jnp.zeros((2, 1), jnp.float32), jnp.full(1, 500, jnp.float32))
    assert np.isfinite(law.log_prob(jnp.ones((2, 1), jnp.float32))).all()


# --- the entropy of squashed numbers -------------------------------------------------------------


def one_squashed(mean, log_std):
    return HEADS_1["squashed"](jnp.asarray(mean)[..., None], jnp.asarray(log_std)[None])


def exact_entropy(mean, log_std):
    """∫ −p log p du of one squashed number, by quadrature over u."""
    u = np.linspace(-14, 14, 20_001)
    log_normal = stats.norm.logpdf(u, mean, np.exp(log_std))
    slope = 2 * np.log(1 / np.cosh(u)) + np.log((HIGH_1 - LOW_1) / 2)
    return integrate.simpson(np.exp(log_normal) * (slope - log_normal), x=u)


def score_entropy(law: SquashedGaussian, raw):
    """The mutant: −log p of a constant action. Its value is right, its gradient is 0 on average."""
    return -law.log_prob(jax.lax.stop_gradient(raw))


@functools.partial(jax.jit, static_argnums=2)
def estimate(at, noise, entropy):
    """The mean entropy of at = mean, log_std over samples by `noise`, and its gradient."""

    def mean(at):
        law = one_squashed(at[0] + jnp.zeros(noise.shape), at[1])
        return entropy(law, jax.lax.stop_gradient(law.sample(noise[:, None]))).mean()

    return jax.value_and_grad(mean)(at)


@pytest.mark.parametrize("at", [(0.3, -0.2), (1.1, 0.4)], ids=str)
def test_squashed_entropy_has_the_right_gradient_on_average_and_its_mutant_none(at):
    noise = np.random.default_rng(3).normal(size=100_000)
    noise = np.concatenate((noise, -noise))

    at = np.array(at)
    value, gradient = estimate(at, noise, SquashedGaussian.entropy)
    expected = finite_differences(lambda x: exact_entropy(*x), at, 1e-4)
    np.testing.assert_allclose(value, exact_entropy(*at), atol=0.01)
    np.testing.assert_allclose(gradient, expected, atol=0.01)
    value, gradient = estimate(at, noise, score_entropy)
    np.testing.assert_allclose(value, exact_entropy(*at), atol=0.01)
    assert np.abs(gradient - expected).max() > 0.1


def test_squashed_entropy_without_actions_is_refused():
    params, own, _ = case("squashed")
    with pytest.raises(ValueError, match="Pass raw="):
        HEADS["squashed"](params, own).entropy()
