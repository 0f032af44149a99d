"""What students minimise: the kernels on the same logits; nothing goes to the critic."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import loopless as ll
from loopless.train.avatarl import algorithm as avatarl
from loopless.train.avatarl.algorithm import objective
from loopless.train.avatarl.config import AvataRL
from loopless.train.lm.algorithm import network

pytestmark = pytest.mark.slow

CONFIG = AvataRL(
    layers=1, heads=1, width=4, block=5, top_k=2, reality_weight=0.6, critic_weight=0.5,
    label_smoothing=0.2, reward_scale=7.0, reward_clamp=1.2, entropy_coefficient=0.1,
)  # fmt: skip
VOCABULARY = 9
WINDOWS = np.random.default_rng(0).integers(0, VOCABULARY, (3, 6)).astype(np.int32)
TARGETS = WINDOWS[:, 1:]


KINDS = {
    **{name: {"variant": name} for name in ("fixed", "full")},
    **{name: {"loss": name} for name in ("soft", "ce", "distillation")},
}


def all_of_them(key):
    """Losses, statistics and gradients of every kind, and the logits: one program for all."""
    student, critic = (
        jax.tree.map(lambda x: 20 * x, network(CONFIG, VOCABULARY, key))
        for key in jax.random.split(key)
    )
    windows = jnp.asarray(WINDOWS)
    stream = critic.stream(windows[:, :-1])[0]
    told, gradients = {}, {}
    for name, options in KINDS.items():
        config = replace(CONFIG, **options)

        def of(student, critic, stream, config=config):
            return objective(config, student, critic, {"windows": windows, "stream": stream})

        told[name] = of(student, critic, stream)
        if name in ("fixed", "distillation"):
            gradients[name] = jax.grad(of, (0, 1, 2), has_aux=True)(student, critic, stream)[0]
    return told, gradients, student(windows[:, :-1]), critic(windows[:, :-1])


@pytest.fixture(scope="module")
def found():
    return jax.tree.map(np.asarray, jax.jit(all_of_them)(jax.random.key(1)))


NUMBERS = {
    "reality_weight": 0.6, "critic_weight": 0.5, "label_smoothing": 0.2, "reward_scale": 7.0,
    "reward_clamp": 1.2,
}  # fmt: skip


@pytest.mark.parametrize("variant", ["fixed", "full"])
def test_avatarl_is_the_kernel_on_both_logits(found, variant):
    told, _, z, c = found
    loss, stats = told[variant]
    options = NUMBERS | {"variant": variant, "entropy_coefficient": 0.1}
    expected, of_kernel = ll.avatarl_loss(z, c, TARGETS, top_k=2, **options)
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    assert {name: float(x) for name, x in stats.items()} == pytest.approx(
        {name: float(of_kernel[name]) for name in avatarl.LOGGED}, rel=1e-4
    )


@pytest.mark.parametrize("variant", ["fixed", "original", "subset", "full"])
@pytest.mark.parametrize("confidence", [False, True])
def test_every_number_of_the_config_reaches_the_kernel(monkeypatch, variant, confidence):
    asked = {}

    def ask(*_, **options):
        asked.update(options)
        return 0.0, dict.fromkeys(avatarl.LOGGED, 0.0)

    monkeypatch.setattr(avatarl, "avatarl_loss", ask)
    model = SimpleNamespace(logits=lambda stream: np.zeros(1))
    config = replace(CONFIG, variant=variant, confidence=confidence)
    rows = {"windows": WINDOWS, "stream": None}
    objective(config, lambda inputs: None, model, rows)
    weight = "confidence" if confidence else 0.5
    own = {"variant": variant, "critic_weight": weight, "top_k": 2, "entropy_coefficient": 0.1}
    assert asked == NUMBERS | own


def test_soft_is_cross_entropy_to_the_same_target(found):
    told, _, z, c = found
    actions, present = ll.avatarl_actions(z, c, TARGETS, top_k=2)
    rewards = ll.avatarl_rewards(c, actions, present, **NUMBERS)
    loss, stats = told["soft"]
    expected = ll.soft_cross_entropy(z, actions, rewards)
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    for name, value in stats.items():
        assert float(value) == pytest.approx(float(told["fixed"][1][name]), rel=1e-5), name


def test_plain_and_distilled_students(found):
    told, _, z, c = found
    assert float(told["ce"][0]) == pytest.approx(float(ll.cross_entropy(z, TARGETS)), rel=1e-5)
    expected = float(ll.distillation(z, c))
    assert float(told["distillation"][0]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", ["fixed", "distillation"])
def test_no_gradient_reaches_the_critic(found, kind):
    own, *others = found[1][kind]
    assert not any(np.any(x) for x in jax.tree.leaves(others))
    assert any(np.any(x) for x in jax.tree.leaves(own))
