"""Steps of the optimiser are Optax's; one that is not sound leaves every bit where it was."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import export

from loopless.arrays.xla_cpu.adam import NAME
from loopless.train.engine import optimizer
from loopless.train.engine.optimizer import Optimizer, clip_by_norm

RNG = np.random.default_rng(0)
WEIGHTS = {"a": RNG.normal(size=(3, 2)), "b": RNG.normal(size=4)}
GRADIENTS = [{name: RNG.normal(size=x.shape) for name, x in WEIGHTS.items()} for _ in range(5)]
KINDS = {
    "adam": (Optimizer(epsilon=1e-5), optax.adam(0.1, eps=1e-5)),
    "adamw": (Optimizer(beta_2=0.95, decay=0.3), optax.adamw(0.1, b2=0.95, weight_decay=0.3)),
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
    ours = Optimizer(decay={"a": 0.5, "b": 0.0})
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


# --- in one pass -------------------------------------------------------------------------------


@pytest.fixture
def one_core(monkeypatch):
    monkeypatch.setattr(optimizer, "threads", lambda: 1)


SIZES = {"a": (300, 110), "b": (7,), "c": (1,)}  # more than NATIVE_SIZE together, one by one not


def large(seed, dtype=jnp.float32, *more):
    random = np.random.default_rng(seed)
    return {k: jnp.asarray(random.normal(size=(*more, *x)), dtype) for k, x in SIZES.items()}


def calls(function, *arguments) -> int:
    return jax.jit(function).lower(*arguments).as_text().count(f"@{NAME}")


@pytest.mark.usefixtures("one_core")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "sgd"])
def test_in_one_pass_every_step_is_optax_s_too(kind):
    ours, theirs = KINDS[kind]
    weights, other = large(0), large(0, jnp.float64)
    moments, state = ours.init(weights), theirs.init(other)
    step = jax.jit(ours.step)
    assert calls(ours.step, weights, moments, weights, 0.1, True) == 3
    for i in range(1, 6):
        weights, moments = step(weights, moments, large(i), 0.1, True)
        change, state = theirs.update(large(i, jnp.float64), state, other)
        other = optax.apply_updates(other, change)
    few = 16 * 2.0**-24  # roundings of float32
    for one, exact in zip(jax.tree.leaves(weights), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(one, exact, rtol=few, atol=few)
    for one, exact in ((moments.mu, state[0].mu), (moments.nu, state[0].nu)):
        np.testing.assert_allclose(one["a"], exact["a"], rtol=few, atol=few)


@pytest.mark.usefixtures("one_core")
def test_in_one_pass_a_step_that_is_not_sound_changes_no_bit():
    ours, weights = Optimizer(decay=0.1), large(0)
    before = ours.step(weights, ours.init(weights), large(1), 0.1, True)
    broken = jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), weights)
    assert bits(jax.jit(ours.step)(*before, broken, 0.1, jnp.asarray(False))) == bits(before)
    moved, _ = jax.jit(ours.step)(*before, broken, 0.1, jnp.asarray(True))
    assert all(np.isnan(x).all() for x in jax.tree.leaves(moved))


@pytest.mark.usefixtures("one_core")
def test_in_one_pass_agents_have_numbers_of_their_own():
    ours, weights, gradient = Optimizer(), large(0, jnp.float32, 3), large(1, jnp.float32, 3)
    rates, sound = jnp.array([0.1, 0.2, 0.3], jnp.float32), jnp.array([True, False, True])
    all_of_them = jax.vmap(lambda w, g, rate, on: ours.step(w, ours.init(w), g, rate, on))
    assert calls(all_of_them, weights, gradient, rates, sound) == 3
    found = all_of_them(weights, gradient, rates, sound)
    for i in range(3):
        w, g = (jax.tree.map(lambda x, i=i: x[i], tree) for tree in (weights, gradient))
        alone = ours.step(w, ours.init(w), g, rates[i], sound[i])
        assert bits(jax.tree.map(lambda x, i=i: x[i], found)) == bits(alone)


@pytest.mark.usefixtures("one_core")
def test_in_one_pass_nothing_is_copied_in_a_loop():
    ours, size = Optimizer(), optimizer.NATIVE_SIZE + 3
    first = jnp.ones(size, jnp.float32)

    def step(weights, moments, gradient, sound):
        return ours.step(weights, moments, gradient, 0.1, sound)

    assert calls(step, first, ours.init(first), first, True) == 1
    assert copies_in_a_loop(step, ours.init(first), size) == 0


@pytest.mark.parametrize("why", ["several cores", "few weights", "another type", "an accelerator"])
def test_other_steps_are_xla_s(monkeypatch, why):
    monkeypatch.setattr(optimizer, "threads", lambda: 2 if why == "several cores" else 1)
    weights = large(0, jnp.float64 if why == "another type" else jnp.float32)
    if why == "few weights":
        weights["a"] = weights["a"][:, :100]
    if why == "an accelerator":
        monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    ours = Optimizer()
    assert calls(ours.step, weights, ours.init(weights), weights, 0.1, True) == 0


@pytest.mark.usefixtures("one_core")
def test_programs_for_accelerators_are_of_jax_operations_alone():
    ours, weights = Optimizer(), large(0)
    for platform, there in (("cuda", False), ("tpu", False), ("cpu", True)):
        lowered = export.export(
            jax.jit(lambda w: ours.step(w, ours.init(w), w, 0.1, True)[0]),
            platforms=[platform],
            disabled_checks=[export.DisabledSafetyCheck.custom_call(NAME)],
        )
        assert (NAME in lowered(weights).mlir_module()) == there


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
