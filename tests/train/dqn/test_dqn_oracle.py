"""Updates against plain Python, written from the formulae: forward, backward, clip, optimiser."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from dqn_cases import algorithm_of, small
from dqn_checks import updates_are_plain_python_s
from plain_update import Adam, flat, gradients, loss_of, shaped, target_of, values_of

pytestmark = pytest.mark.slow

VARIANTS = {
    "vanilla": {"target": "off"},
    "dqn": {},
    "double": {"double": True},
    "sarsa": {"sarsa": True, "target": "off"},
}
LOSSES = {"mse": {}, "huber": {"loss": "huber", "huber_delta": 0.7}}
OPTIMIZERS = ("adam", "adamw", "sgd")


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_four_updates_are_those_of_plain_python(variant, loss):
    options = VARIANTS[variant] | LOSSES[loss]
    updates_are_plain_python_s(variant, **options, max_gradient_norm=0.8)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimiser_is_that_of_plain_python(optimizer):
    rates = {"optimizer": optimizer, "learning_rate": 0.05, "weight_decay": 0.1}
    updates_are_plain_python_s("dqn", **rates)


@pytest.mark.parametrize("options", [{"prioritized": "block"}, {"n_step": 3}], ids=str)
def test_weights_and_discounts_of_rows_are_those_of_plain_python(options):
    updates_are_plain_python_s("dqn", **options)


def test_the_learning_rate_falls_in_a_line_over_the_updates_of_the_run():
    config = small(
        optimizer="sgd", learning_rate=1.0, learning_rate_end=0.0,
        steps=640, train_every=64, updates=2,
    )  # fmt: skip
    rates = algorithm_of(config).learning_rate(jnp.arange(22))
    np.testing.assert_allclose(rates, [*np.linspace(1, 0, 21), 0], atol=1e-6)


def test_the_oracle_itself_agrees_with_a_numerical_derivative():
    rng = np.random.default_rng(0)
    rows = [
        {"obs": rng.normal(size=3).tolist(), "next_obs": rng.normal(size=3).tolist(),
         "action": i % 3, "reward": float(rng.normal()), "terminated": i == 1, "weight": 1.0 + i}
        for i in range(4)
    ]  # fmt: skip
    theta, target = rng.normal(size=38), shaped(rng.normal(size=38), 3, 5, 3)

    def loss(numbers):
        # Targets are constants: those of the weights that the derivative is taken at.
        fixed = shaped(theta, 3, 5, 3)
        total = 0.0
        for row in rows:
            y = target_of(row, fixed, target, "double", 0.9)
            _, values = values_of(shaped(numbers, 3, 5, 3), row["obs"])
            total += row["weight"] * loss_of(values[row["action"]] - y, "huber", 0.7)[0] / 4
        return total

    found = flat(
        gradients(rows, shaped(theta, 3, 5, 3), target, "double", gamma=0.9, kind="huber",
                  delta=0.7)[1]
    )  # fmt: skip
    for i in range(38):
        step = np.zeros(38)
        step[i] = 1e-6
        assert found[i] == pytest.approx((loss(theta + step) - loss(theta - step)) / 2e-6, abs=1e-7)


def test_adam_of_the_oracle_is_optax_s():
    optimizer, gradient = optax.adam(0.01), jnp.array([0.3, -2.0, 0.0], jnp.float64)
    state, theta, ours = optimizer.init(gradient), jnp.ones(3, jnp.float64), Adam(3, 0.01)
    plain = [1.0] * 3
    for _ in range(3):
        change, state = optimizer.update(gradient, state)
        theta = optax.apply_updates(theta, change)
        plain = ours.step(plain, np.asarray(gradient).tolist())
    np.testing.assert_allclose(theta, plain, rtol=1e-12)
    assert jax.tree.leaves(state)[0] == 3
