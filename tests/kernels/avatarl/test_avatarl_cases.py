"""The eighteen edge cases of the study, each by its number, and what must not change the answer."""

import numpy as np
import pytest
from support.avatarl import ROADS, VARIANTS, assert_same, positions, twin
from support.backends import BACKENDS, JAX, NUMPY, TORCH
from support.compare import assert_close

from loopless.kernels.avatarl.loss import avatarl_actions, avatarl_loss, avatarl_rewards
from loopless.reference import avatarl as loops

every_road = pytest.mark.parametrize("road", ROADS.values(), ids=ROADS)
every_variant = pytest.mark.parametrize("variant", VARIANTS)
PUBLISHED = ("original", "subset", "full")
V = 12  # every case has six positions of twelve tokens, so that JAX compiles a variant once


def agreeing(margin: float = 3.0) -> dict:
    """Student, critic and gold all mean the same token; token 0 among them."""
    data = positions((6,), V, 20, 0.3)
    data["targets"] = np.arange(6)
    for name in ("student_logits", "critic_logits"):
        data[name][np.arange(6), data["targets"]] = margin
    return data


def rewards_of(data, **options):
    """Dense rewards by the kernels on NumPy arrays."""
    z, c, y = (data[name] for name in ("student_logits", "critic_logits", "targets"))
    k = options.pop("top_k")
    actions, present = avatarl_actions(z, c, y, top_k=k)
    values = avatarl_rewards(c, actions, present, **options)
    out = np.zeros_like(z)
    for t, i in zip(*np.nonzero(present), strict=True):
        out[t, actions[t, i]] = values[t, i]
    return out


@every_road
def test_01_one_action_of_which_all_are_agreed(road):
    data = agreeing()
    logs = loops._log_softmax
    gold = np.mean([logs(z.tolist())[y] for z, y in zip(*list(data.values())[::2], strict=True)])
    for variant in VARIANTS if road.backend is not JAX else ("subset", "fixed"):
        got = road(data, top_k=1, variant=variant, entropy_coefficient=0.0)
        assert got.stats["actions"] == 1
        expected = {"subset": 0.0, "fixed": -gold}.get(variant, -1.5 * gold)
        np.testing.assert_allclose(got.loss, expected, rtol=1e-6, atol=1e-9)
        if variant == "subset" and got.gradient is not None:
            np.testing.assert_allclose(got.gradient, 0, atol=1e-9)


@pytest.mark.parametrize(("variant", "reward"), [("original", 0), ("subset", 1.5), ("full", 1.5)])
@pytest.mark.parametrize("road", [x for x in ROADS.values() if x.backend is not JAX], ids=str)
def test_02_one_action_of_a_certain_critic(road, variant, reward):
    data = agreeing()
    data["critic_logits"] = np.where(np.eye(6, V, dtype=bool), 0.0, -np.inf)
    got = road(data, top_k=1, variant=variant)
    np.testing.assert_allclose(got.stats["gold_reward"], reward, rtol=1e-6)


@every_road
@every_variant
def test_03_sets_of_all_sizes_in_one_batch_with_token_0_everywhere(road, variant):
    data = agreeing()
    data["student_logits"][3:, 1:3] += 9
    data["critic_logits"][3:, 7:9] += 9
    data["targets"][3:] = 0, 11, 0
    sizes = loops.avatarl_actions(**data, top_k=2).sum(-1)
    assert sizes.min() <= 3
    assert sizes.max() == 5
    assert_same(road(data, top_k=2, variant=variant), twin(data, top_k=2, variant=variant))


def test_04_gold_in_both_or_in_neither():
    data = positions((6,), V, 21)
    best = data["critic_logits"].argmax(-1)
    data["student_logits"][np.arange(6), best] = 9
    worst = data["critic_logits"].argmin(-1)
    data["student_logits"][np.arange(6), worst] = -9
    arrays = data["student_logits"], data["critic_logits"]
    inside, outside = (avatarl_actions(*arrays, y, top_k=2)[1].sum(-1) for y in (best, worst))
    np.testing.assert_array_equal(outside, inside + 1)
    # All smoothing goes to the others, once each: with one expert the products are reality itself
    options = {"variant": "full", "reality_weight": 1.0, "critic_weight": 0.0, "reward_scale": 1.0}
    for y in (best, worst):
        actions, present = avatarl_actions(*arrays, y, top_k=2)
        found = avatarl_rewards(arrays[1], actions, present, label_smoothing=0.8, **options)
        np.testing.assert_allclose(found.sum(-1) <= 1, True)


@every_road
@pytest.mark.parametrize("same", [True, False])
def test_05_the_same_and_disjoint_choices(road, same):
    data = positions((6,), V, 22)
    order = np.arange(V, dtype=float)
    data["student_logits"][:] = order
    data["critic_logits"][:] = order if same else -order
    data["targets"][:] = 11, 10, 5, 5, 5, 5
    want = twin(data, top_k=2)
    sizes = loops.avatarl_actions(**data, top_k=2).sum(-1)
    assert sizes.tolist() == ([2, 2, 3, 3, 3, 3] if same else [4, 4, 5, 5, 5, 5])
    assert_same(road(data, top_k=2), want)


@pytest.mark.parametrize("road", ["numpy", "torch"])
def test_06_gold_is_kept_with_many_actions(road):
    data = {
        "student_logits": np.linspace(3, 0, 60)[None].repeat(2, 0),
        "critic_logits": np.linspace(0, 3, 60)[None].repeat(2, 0),
        "targets": np.array([30, 31]),
    }
    got = ROADS[road](data, top_k=20, variant="full")
    assert got.stats["actions"] == 41
    assert got.stats["gold_rewarded"] == 1
    cut = {"top_k": 20, "variant": "original", "cap": 33}
    by_cut = loops.avatarl_gradients(**data, **cut)[np.arange(2), data["targets"]]
    assert (by_cut >= 0).all()
    if got.gradient is not None:
        assert (got.gradient[np.arange(2), data["targets"]] < 0).all()


@every_road
@every_variant
def test_07_all_logits_equal(road, variant):
    data = positions((6,), V, 23)
    data["student_logits"][:] = 0.5
    data["critic_logits"][:] = -0.5
    got = road(data, top_k=2, variant=variant)
    assert np.isfinite(got.loss)
    assert 2 <= got.stats["actions"] <= 5
    if got.gradient is not None:
        np.testing.assert_allclose(got.gradient.sum(-1), 0, atol=1e-12)


@pytest.mark.parametrize(("size", "kept"), [(105, 1), (106, 9)])
def test_07_a_flat_critic_and_the_published_threshold(size, kept):
    c = np.zeros((1, size))
    actions = np.arange(9)[None]
    found = avatarl_rewards(c, actions, np.ones((1, 9), bool), variant="full")
    assert (found > 0).sum() == kept
    assert (avatarl_rewards(c, actions, np.ones((1, 9), bool)) > 0).sum() == 1


@every_road
def test_08_extreme_logits(road):
    data = positions((6,), V, 24)
    for name in ("student_logits", "critic_logits"):
        data[name][0, :2] = 1e4, -1e4
    data["targets"][:] = data["student_logits"].argmin(-1)
    data["student_logits"][1, data["targets"][1]] = data["student_logits"][1].max() - 60
    full = road(data, top_k=2, variant="full")
    assert np.isfinite(full.loss)
    assert_same(full, twin(data, top_k=2, variant="full"))
    if full.gradient is not None:
        gold = 1, data["targets"][1]
        reward = loops.avatarl_rewards(**data, top_k=2, variant="full")[gold]
        n = loops.avatarl_actions(**data, top_k=2)[1].sum()
        np.testing.assert_allclose(full.gradient[gold], -reward / (n * 1.01 * 6), rtol=1e-6)
        floored = road(data, top_k=2, variant="original", entropy_coefficient=0.0)
        assert abs(floored.gradient[gold]) < 1e-15


@every_road
@every_variant
@pytest.mark.parametrize("where", ["token 0", "an unrewarded action", "gold"])
def test_09_a_forbidden_token(road, variant, where):
    data = positions((6,), V, 25)
    data["targets"][:] = 3
    data["student_logits"][:, 0] = -9
    data["critic_logits"][:, 0] = -9
    if where == "token 0":
        data["student_logits"][:, 0] = -np.inf
    elif where == "gold":
        data["student_logits"][0, 3] = -np.inf
    else:
        data["critic_logits"][:, 5] = 4.0
        data["student_logits"][:, 5] = -np.inf
        data["critic_logits"][:, 3] = 9.0
        assert loops.avatarl_actions(**data, top_k=2)[:, 5].all()
        if variant == "fixed":
            assert not loops.avatarl_rewards(**data, top_k=2)[:, 5].any()
    got = road(data, top_k=2, variant=variant)
    rewarded = loops.avatarl_rewards(**data, top_k=2, variant=variant) > 0
    infinite = (rewarded & np.isinf(data["student_logits"])).any() and variant != "original"
    assert np.isfinite(got.loss) != infinite
    assert not np.isnan(got.loss)
    if got.gradient is not None:
        assert np.isfinite(got.gradient).all()
        if where == "token 0":
            assert not got.gradient[:, 0].any()


@every_road
@every_variant
@pytest.mark.parametrize("smoothing", [0.1, 0.0])
def test_10_a_critic_without_any_mass_on_gold(road, variant, smoothing):
    data = positions((6,), V, 26)
    data["critic_logits"][np.arange(6), data["targets"]] = -np.inf
    options = {"top_k": 2, "variant": variant, "label_smoothing": smoothing}
    got = road(data, **options)
    assert_same(got, twin(data, **options))
    if variant == "fixed":
        assert got.stats["gold_rewarded"] == 1
    else:
        assert got.stats["gold_reward"] == 0
        assert (got.stats["kept"] == 0) == (smoothing == 0)
    if smoothing == 0 and variant in ("subset", "full"):
        assert got.loss == 0
    if smoothing == 0 and variant == "original":
        np.testing.assert_allclose(got.loss, -0.01 * got.stats["entropy"], rtol=1e-6)


@pytest.mark.parametrize("variant", PUBLISHED)
def test_11_one_expert_alone_and_no_smoothing(variant):
    data = positions((6,), V, 27)
    gold = np.eye(V, dtype=bool)[data["targets"]]
    for options in (
        {"label_smoothing": 0.0},
        {"reality_weight": 1.0, "critic_weight": 0.0},
    ):
        found = rewards_of(data, top_k=2, variant=variant, **options)
        np.testing.assert_array_equal(found > 0, gold)
    critic = rewards_of(data, top_k=2, variant=variant, reality_weight=0.0, critic_weight=1.0)
    kept = critic > 0
    mass = np.exp(data["critic_logits"])
    ratio = np.where(kept, critic / mass, np.nan)
    assert kept.any(-1).all()
    spread = np.nanmax(ratio, -1) - np.nanmin(ratio, -1)
    np.testing.assert_allclose(spread, 0, atol=1e-12)


def test_11_with_all_smoothed_away_gold_has_nothing():
    """The loop alone goes there: the kernels refuse it."""
    found = loops.avatarl_rewards(
        **positions((6,), V, 28), top_k=2, variant="full", label_smoothing=1.0
    )
    assert not found[np.arange(6), positions((6,), V, 28)["targets"]].any()


@pytest.mark.parametrize("variant", PUBLISHED)
def test_12_a_scale_below_the_clamp_leaves_products_as_they_are(variant):
    data = positions((6,), V, 29)
    small = rewards_of(data, top_k=2, variant=variant, reward_scale=1.0)
    assert (small.sum(-1) <= 1).all()
    assert_close(small, loops.avatarl_rewards(**data, top_k=2, variant=variant, reward_scale=1.0))
    large, larger = (
        rewards_of(data, top_k=2, variant=variant, reward_scale=x) for x in (100.0, 1000.0)
    )
    np.testing.assert_allclose(large, larger, rtol=1e-8)
    np.testing.assert_allclose(large.max(-1), 1.5, rtol=1e-8)


@pytest.mark.parametrize(
    ("shape", "vocabulary", "k"), [((3,), 4, 4), ((3,), 4, 9), ((2,), 1, 2), ((1,), 5, 2)], ids=str
)
@every_variant
@pytest.mark.parametrize("road", ["numpy", "torch", "torch, operations"])
def test_13_small_vocabularies_and_single_positions(road, variant, shape, vocabulary, k):
    data = positions(shape, vocabulary, 30)
    options = {"top_k": k, "variant": variant}
    assert_same(ROADS[road](data, **options), twin(data, **options))


def test_13_a_vocabulary_smaller_than_k_in_jax():
    data = positions((3,), 4, 30)
    assert_same(ROADS["jax"](data, top_k=9), twin(data, top_k=9))


@every_road
def test_13_no_position_at_all_is_0(road):
    got = road(positions((0,), V, 0), top_k=2)
    assert got.loss == 0
    assert not any(got.stats.values())
    assert got.gradient is None or got.gradient.shape == (0, V)


@every_road
@every_variant
def test_15_all_masked_is_0_with_a_gradient_of_0(road, variant):
    data = positions((6,), V, 31) | {"mask": np.zeros(6, bool)}
    data["student_logits"][:] = np.nan
    got = road(data, top_k=2, variant=variant)
    assert got.loss == 0
    assert not any(got.stats.values())
    assert got.gradient is None or not got.gradient.any()


def test_16_the_threshold_in_force():
    """A flat critic, a gold mass of 1e-5: the published threshold passes all, 1/n gold alone."""
    c = np.zeros((1, 50304))
    c[0, 8] = np.log(1e-5 * 50303 / (1 - 1e-5))
    actions = np.array([[8, *range(8)]])
    kept = {
        variant: int(
            (avatarl_rewards(c, actions, np.ones((1, 9), bool), variant=variant) > 0).sum()
        )
        for variant in VARIANTS
    }
    assert kept == {"original": 9, "subset": 9, "full": 9, "fixed": 1}


@every_road
def test_17_without_a_bonus_full_is_original(road):
    data = positions((6,), V, 32, 1.0)
    full, original = (
        road(data, top_k=2, variant=x, entropy_coefficient=0.0) for x in ("full", "original")
    )
    np.testing.assert_allclose(full.loss, original.loss, atol=1e-6)
    if full.gradient is not None:
        np.testing.assert_allclose(full.gradient, original.gradient, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_18_ties_give_the_same_answer_every_time(backend):
    dtype = "float16" if backend is NUMPY else "bfloat16"
    data = positions((6,), V, 33, 0.5)
    data["student_logits"] = np.round(data["student_logits"])
    z, c, y = backend.arguments(data, dtype).values()
    first, second = (avatarl_actions(z, c, y, top_k=3) for _ in range(2))
    for x, y in zip(first, second, strict=True):
        np.testing.assert_array_equal(backend.numpy(x), backend.numpy(y))


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
@pytest.mark.parametrize("vocabulary", [V, 5000])
def test_18_of_equals_the_first_are_taken(backend, vocabulary):
    data = positions((6,), vocabulary, 34)
    data["student_logits"] = np.round(data["student_logits"])
    actions, present = avatarl_actions(*backend.arguments(data).values(), top_k=3)
    order = np.argsort(-data["student_logits"], -1, kind="stable")[:, :3]
    np.testing.assert_array_equal(backend.numpy(actions)[:, 1:4], order)
    assert backend.numpy(present)[:, 0].all()


# What must not change the answer


@every_road
@every_variant
def test_a_constant_added_to_a_row_changes_nothing(road, variant):
    data = positions((6,), V, 35)
    moved = dict(data)
    for name, sign in (("student_logits", 1.0), ("critic_logits", -1.0)):
        moved[name] = data[name] + sign * np.linspace(-50, 50, 6)[:, None]
    assert_same(road(moved, top_k=2, variant=variant), twin(data, top_k=2, variant=variant))


@every_road
@every_variant
def test_other_names_for_the_tokens_change_nothing(road, variant):
    data = positions((6,), V, 36)
    order = np.random.default_rng(0).permutation(V)
    named = {name: data[name][:, order] for name in ("student_logits", "critic_logits")}
    named["targets"] = np.argsort(order)[data["targets"]]
    want = twin(data, top_k=2, variant=variant)
    want = want._replace(gradient=want.gradient[:, order])
    assert_same(road(named, top_k=2, variant=variant), want)


@every_road
def test_the_order_of_positions_changes_nothing(road):
    data = positions((6,), V, 37)
    want = twin(data, top_k=2)
    turned = {name: x[::-1].copy() for name, x in data.items()}
    assert_same(road(turned, top_k=2), want._replace(gradient=want.gradient[::-1]))


@pytest.mark.parametrize("road", ["numpy", "torch"])
def test_halves_of_a_batch_average_to_the_whole(road):
    data = positions((6,), V, 38)
    halves = [ROADS[road]({k: x[part] for k, x in data.items()}, top_k=2)
              for part in (slice(0, 2), slice(2, 6))]  # fmt: skip
    whole = ROADS[road](data, top_k=2)
    assert_close((2 * halves[0].loss + 4 * halves[1].loss) / 6, whole.loss)


@every_road
@every_variant
def test_gradients_of_a_row_sum_to_0(road, variant):
    got = road(positions((6,), V, 39), top_k=2, variant=variant)
    if got.gradient is not None:
        np.testing.assert_allclose(got.gradient.sum(-1), 0, atol=1e-9)


@every_road
def test_the_subset_leaves_the_rest_of_the_vocabulary_alone(road):
    data = positions((6,), V, 40)
    got = road(data, top_k=2, variant="subset")
    if got.gradient is not None:
        outside = ~loops.avatarl_actions(**data, top_k=2)
        assert outside.any()
        assert not got.gradient[outside].any()


def test_the_fixed_target_always_holds_gold_on_top():
    for seed in range(20):
        data = positions((6,), V, seed, 8.0)
        found = rewards_of(data, top_k=2)
        np.testing.assert_allclose(found.sum(-1), 1)
        gold = found[np.arange(6), data["targets"]]
        np.testing.assert_array_equal(gold, found.max(-1))


def test_scale_and_clamp_do_not_enter_the_fixed_form():
    z, c, y = positions((6,), V, 41).values()
    one, _ = avatarl_loss(z, c, y, top_k=2)
    other, _ = avatarl_loss(z, c, y, top_k=2, reward_scale=0.1, reward_clamp=77.0)
    assert one == other


def test_the_default_variant_is_the_fixed_one():
    z, c, y = positions((6,), V, 42).values()
    assert avatarl_loss(z, c, y, top_k=2)[0] == avatarl_loss(z, c, y, top_k=2, variant="fixed")[0]
    assert {TORCH, JAX} < set(BACKENDS)
