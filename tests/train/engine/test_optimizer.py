"""Steps of the optimiser are Optax's; one that is not sound leaves every bit where it was."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from loopless.train.engine.optimizer import Optimizer, clip_by_norm

RNG = np.random.default_rng(0)
WEIGHTS = {"a": RNG.normal(size=(3, 2)), "b": RNG.normal(size=4)}
GRADIENTS = [{name: RNG.normal(size=x.shape) for name, x in WEIGHTS.items()} for _ in range(5)]
KINDS = {
    "adam": (Optimizer(epsilon=1e-5), optax.adam(0.1, eps=1e-5)),
    "adamw": (
        Optimizer("adamw", beta_2=0.95, decay=0.3),
        optax.adamw(0.1, b2=0.95, weight_decay=0.3),
    ),
    "no mean": (Optimizer(beta_1=0.0), optax.adam(0.1, b1=0.0)),
    "sgd": (Optimizer("sgd"), optax.sgd(0.1)),
}


def bits(tree):
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(tree)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_step_is_optax_s(kind):
    ours, theirs = KINDS[kind]
    weights = other = jax.tree.map(jnp.asarray, WEIGHTS)
    moments, state = ours.init(weights), theirs.init(other)
    step = jax.jit(ours.step)
    for gradient in GRADIENTS:
        weights, moments = step(weights, moments, gradient, 0.1, True)
        change, state = theirs.update(gradient, state, other)
        other = optax.apply_updates(other, change)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12), weights, other)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_that_is_not_sound_changes_nothing_and_is_not_counted(kind):
    ours, _ = KINDS[kind]
    weights = jax.tree.map(jnp.asarray, WEIGHTS)
    before = ours.step(weights, ours.init(weights), GRADIENTS[0], 0.1, True)
    broken = jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan), WEIGHTS)
    after = jax.jit(ours.step)(*before, broken, 0.1, jnp.asarray(False))
    assert bits(after) == bits(before)
    again = ours.step(*after, GRADIENTS[1], 0.1, True)
    assert bits(again) == bits(ours.step(*before, GRADIENTS[1], 0.1, True))


def test_a_tree_of_decays_pulls_each_array_by_its_own():
    weights = jax.tree.map(jnp.asarray, WEIGHTS)
    still = jax.tree.map(jnp.zeros_like, weights)
    ours = Optimizer("adamw", decay={"a": 0.5, "b": 0.0})
    moved, _ = ours.step(weights, ours.init(weights), still, 0.1, True)
    np.testing.assert_allclose(moved["a"], 0.95 * WEIGHTS["a"], rtol=1e-12)
    np.testing.assert_array_equal(moved["b"], WEIGHTS["b"])


def test_half_types_stay_half():
    weights = jnp.ones(3, jnp.bfloat16)
    ours = Optimizer()
    moved, moments = ours.step(weights, ours.init(weights), weights, jnp.float32(0.1), True)
    assert {x.dtype for x in (moved, moments.mu, moments.nu)} == {jnp.dtype(jnp.bfloat16)}


def copies_in_a_loop(step, moments, size):
    """How often a loop of steps copies an array of that size, within."""

    def many(weights, moments):
        def one(_, carry):
            return step(*carry, jnp.sin(carry[0]), jnp.isfinite(carry[0][0]))

        return jax.lax.fori_loop(0, 10, one, (weights, moments))

    text = jax.jit(many).lower(jnp.ones(size, jnp.float32), moments).compile().as_text()
    inside = text[: text.index("ENTRY")].splitlines()
    return sum(" copy(" in line and f"f32[{size}]" in line for line in inside)


def test_nothing_is_copied_in_a_loop_which_a_gate_behind_would():
    ours, theirs, size = Optimizer(), optax.adam(0.1), 20_011
    first = jnp.ones(size, jnp.float32)

    def behind(weights, state, gradient, sound):
        change, new = theirs.update(gradient, state)
        new = optax.apply_updates(weights, change), new
        return jax.tree.map(lambda x, y: jnp.where(sound, x, y), new, (weights, state))

    def inside(weights, moments, gradient, sound):
        return ours.step(weights, moments, gradient, 0.1, sound)

    assert copies_in_a_loop(inside, ours.init(first), size) <= 1
    assert copies_in_a_loop(behind, theirs.init(first), size) > 1


# --- gradients ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("norm", "most", "scale"),
    [(0.5, 1.0, 1.0), (1.0, 1.0, 1.0), (4.0, 1.0, 0.25), (0.0, 1.0, 1.0), (4.0, None, 1.0),
     (4.0, 0.0, 1.0)],
)  # fmt: skip
def test_e32_a_gradient_is_shortened_only_if_it_is_longer(norm, most, scale):
    gradient = norm * jnp.array([0.6, -0.8])
    found = clip_by_norm(gradient, jnp.linalg.norm(gradient), most)
    np.testing.assert_allclose(found, scale * gradient, rtol=1e-12)
    assert np.isfinite(found).all()
