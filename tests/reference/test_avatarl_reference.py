"""The loops of AvataRL, checked without the kernels: by differences, by hand, by what they say."""

import numpy as np
import pytest
from support.avatarl import VARIANTS, positions

from loopless.reference import avatarl as loops

every_variant = pytest.mark.parametrize("variant", VARIANTS)


def differences(function, x, step=1e-6):
    out = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        around = []
        for sign in (step, -step):
            moved = x.copy()
            moved[place] += sign
            around.append(function(moved))
        out[place] = (around[0] - around[1]) / (2 * step)
    return out


@every_variant
@pytest.mark.parametrize("k", [1, 3])
def test_gradients_are_those_of_differences(variant, k):
    data = positions((2, 2), 9, 3)
    mask = np.array([[True, False], [True, True]])
    options = {"top_k": k, "variant": variant, "entropy_coefficient": 0.2, "mask": mask}

    def loss(z):
        return loops.avatarl_loss(**data | {"student_logits": z}, **options)[0]

    found = loops.avatarl_gradients(**data, **options)
    np.testing.assert_allclose(found, differences(loss, data["student_logits"]), atol=1e-8)
    assert not found[0, 1].any()


def test_gradients_of_the_baselines_are_those_of_differences():
    z, c = positions((3,), 7, 4)["student_logits"], positions((3,), 7, 5)["student_logits"]
    tokens = np.array([[1, 2], [0, 0], [6, 3]])
    weights = np.array([[0.7, 0.3], [0.5, 0.5], [1.0, 0.0]])
    for function in (
        lambda x: loops.soft_cross_entropy(x, tokens, weights),
        lambda x: loops.distillation(x, c, temperature=2.0),
    ):
        expected = differences(lambda x, function=function: function(x)[0], z)
        np.testing.assert_allclose(function(z)[1], expected, atol=1e-8)


def test_a_position_of_three_tokens_by_hand():
    """𝒜 = {0, 1}, r = (.9, .1), m = (.5, .25): u = r^.5 m^.5 = (.6708, .1581)."""
    settings = loops.Settings(1, "full", 0.5, 0.5, entropy_coefficient=0.0)
    z, c = np.log([0.2, 0.5, 0.3]).tolist(), np.log([0.5, 0.25, 0.25]).tolist()
    found = loops.position(z, c, 0, settings)
    assert found.actions == [1, 0]
    u = np.sqrt([0.9 * 0.5, 0.1 * 0.25])
    p = u / u.sum()  # (.809, .191), and the published threshold is Σu/2 = .414
    assert p[0] > u.sum() / 2 > p[1]
    assert found.rewards == {0: pytest.approx(1.5), 1: 0.0}
    assert found.loss == pytest.approx(-1.5 * np.log(0.2) / 2)
    fixed = loops.position(z, c, 0, settings._replace(variant="fixed"))
    assert fixed.rewards == {0: 1.0, 1: 0.0}
    assert fixed.loss == pytest.approx(-np.log(0.2))


def test_gold_is_raised_to_the_largest_in_the_fixed_form():
    c = [0.0, 30.0, 29.0, 0.0]  # gold has a mass of 1e-13 and the first expert does not help
    found = loops.position(
        [0.0, 0, 0, 0], c, 3, loops.Settings(2, reality_weight=0.1, critic_weight=0.9)
    )
    assert found.rewards[3] == max(found.rewards.values()) > 0
    assert sum(found.rewards.values()) == pytest.approx(1)
    published = loops.position([0.0, 0, 0, 0], c, 3, loops.Settings(2, "full", 0.1, 0.9))
    assert published.rewards[3] == 0


def test_the_confidence_of_a_certain_critic_is_1_and_of_a_flat_one_0():
    settings = loops.Settings(2, critic_weight="confidence")
    assert loops._weights({0: 1.0, 1: 0.0}, settings) == (0.0, 1.0)
    assert loops._weights({0: 0.1, 1: 0.1, 2: 0.1}, settings) == pytest.approx((1.0, 0.0))
    assert loops._weights({4: 0.3}, settings) == (0.0, 1.0)


def test_sums_of_gradients_are_0_and_off_the_set_the_subset_has_none():
    data = positions((5,), 11, 6)
    for variant in ("subset", "full", "fixed"):
        found = loops.avatarl_gradients(**data, top_k=2, variant=variant)
        np.testing.assert_allclose(found.sum(-1), 0, atol=1e-15)
    inside = loops.avatarl_actions(**data, top_k=2)
    assert not loops.avatarl_gradients(**data, top_k=2, variant="subset")[~inside].any()


def test_all_masked_is_0():
    loss, stats = loops.avatarl_loss(**positions((3,), 5, 0), top_k=2, mask=np.zeros(3, bool))
    assert loss == 0
    assert set(stats.values()) == {0.0}


@pytest.mark.parametrize("wrong", [-1, 7])
def test_what_is_no_token_is_refused(wrong):
    data = positions((3,), 7, 0)
    data["targets"][1] = wrong
    with pytest.raises(ValueError, match="from 0 to 6"):
        loops.avatarl_loss(**data, top_k=2)


def test_what_does_not_fit_and_an_unknown_variant_are_refused():
    data = positions((3,), 7, 0)
    with pytest.raises(ValueError, match="one shape"):
        loops.avatarl_loss(**data | {"critic_logits": np.zeros((3, 6))}, top_k=2)
    with pytest.raises(ValueError, match="unknown variant"):
        loops.avatarl_loss(**data, top_k=2, variant="best")
