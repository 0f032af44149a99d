"""AvataRL against its loop: losses, statistics, gradients, action sets and rewards, everywhere."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.avatarl import ROADS, VARIANTS, assert_same, dense, positions, twin
from support.backends import BACKENDS, HALVES, TORCH
from support.compare import assert_close

from loopless.kernels.avatarl.loss import avatarl_actions, avatarl_loss, avatarl_rewards
from loopless.reference import avatarl as loops

every_road = pytest.mark.parametrize("road", ROADS.values(), ids=ROADS)
every_variant = pytest.mark.parametrize("variant", VARIANTS)
every_backend = pytest.mark.parametrize("backend", BACKENDS, ids=str)
WEIGHTS = {"reality_weight": 0.4, "critic_weight": 0.9, "label_smoothing": 0.3}


def masked(data: dict, seed: int) -> dict:
    """Some positions out, and what no code should look at in them."""
    rng = np.random.default_rng(seed)
    mask = rng.random(data["targets"].shape) < 0.6
    data = {name: x.copy() for name, x in data.items()}
    data["student_logits"][~mask] = np.nan
    data["critic_logits"][~mask] = np.inf
    data["targets"][~mask] = -100
    return data | {"mask": mask}


@st.composite
def batches(draw):
    data = positions((6,), 12, draw(st.integers(0, 2**16)), draw(st.sampled_from((0.3, 2.0, 8.0))))
    if draw(st.booleans()):  # a student that has learned, gold often among the best
        data["student_logits"] = data["critic_logits"] + 0.1 * data["student_logits"]
        data["targets"] = np.where(data["targets"] % 2, data["critic_logits"].argmax(-1), 0)
    mask = np.random.default_rng(draw(st.integers(0, 99))).random(6) < draw(
        st.sampled_from((0.5, 1.0))
    )
    data["mask"] = mask
    options = {
        "reality_weight": draw(st.sampled_from((0.0, 0.7, 1.0))),
        "critic_weight": draw(st.sampled_from((0.3, 1.0))),
        "label_smoothing": draw(st.sampled_from((0.0, 0.1, 0.8))),
        "reward_scale": draw(st.sampled_from((1.0, 100.0))),
        "entropy_coefficient": draw(st.sampled_from((0.0, 0.01, 0.5))),
    }
    return data, options


@every_road
@every_variant
@settings(max_examples=12)
@given(case=batches())
def test_loss_statistics_and_gradient_equal_the_loop(road, variant, case):
    data, options = case
    options |= {"top_k": 2, "variant": variant}
    assert_same(road(data, **options), twin(data, **options))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("road", "variant"),
    [(ROADS[x], v) for x in ROADS for v in ("fixed", "original") if (x, v) != ("jax", "original")],
)
def test_float32_stays_within_its_precision(road, variant):
    data = positions((6,), 12, 7)
    data = {
        k: x.astype(np.float32).astype(float) if x.dtype.kind == "f" else x for k, x in data.items()
    }
    want = twin(data, top_k=2, variant=variant)
    got = road(data, "float32", top_k=2, variant=variant)
    np.testing.assert_allclose(got.loss, want.loss, atol=1e-6)
    if got.gradient is not None:
        np.testing.assert_allclose(got.gradient, want.gradient, atol=1e-7)


@pytest.mark.parametrize("vocabulary", [1023, 1024, 4100, 9001])
@pytest.mark.parametrize("k", [1, 7])
@pytest.mark.parametrize("road", ["numpy", "torch"])
def test_vocabularies_around_the_sizes_of_blocks(road, vocabulary, k):
    data = positions((2,), vocabulary, k)
    assert_same(ROADS[road](data, top_k=k), twin(data, top_k=k))


@every_road
def test_per_row_weights_equal_the_loop(road):
    data = positions((6,), 12, 8)
    rng = np.random.default_rng(0)
    weights = {name: rng.random(6) for name in ("reality_weight", "critic_weight")}
    weights["critic_weight"][0] = 0.0
    assert_same(road(data, top_k=2, **weights), twin(data, top_k=2, **weights))


@every_road
@pytest.mark.parametrize("variant", ["fixed"])
def test_confidence_sets_both_weights(road, variant):
    data = positions((6,), 12, 9)
    data["critic_logits"][0] *= 9  # sure of itself
    data["targets"][1] = data["critic_logits"][1].argmax()
    options = {"top_k": 2, "variant": variant, "critic_weight": "confidence"}
    assert_same(road(data, **options), twin(data, **options))


@every_road
@every_variant
def test_masked_positions_hold_anything_and_count_for_nothing(road, variant):
    data = masked(positions((6,), 12, 10), 1)
    want = twin(data, top_k=2, variant=variant)
    got = road(data, top_k=2, variant=variant)
    assert_same(got, want)
    if got.gradient is not None:
        assert not got.gradient[~data["mask"]].any()


@every_backend
@every_variant
def test_actions_and_rewards_scattered_over_the_vocabulary_equal_the_loop(backend, variant):
    data = positions((6,), 12, 11)
    z, c, y = backend.arguments(data).values()
    actions, present = avatarl_actions(z, c, y, top_k=2)
    assert actions.shape == present.shape == (6, 5)
    np.testing.assert_array_equal(backend.numpy(actions)[:, 0], data["targets"])
    inside = dense(backend, present, actions, present, 12)
    np.testing.assert_array_equal(inside, loops.avatarl_actions(**data, top_k=2))
    rewards = avatarl_rewards(c, actions, present, variant=variant, **WEIGHTS)
    want = loops.avatarl_rewards(**data, top_k=2, variant=variant, **WEIGHTS)
    assert_close(dense(backend, rewards, actions, present, 12), want)
    assert not backend.numpy(rewards)[~backend.numpy(present)].any()


HALF = [(b, d) for b in BACKENDS for d in HALVES[b.name]]


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "dtype"), HALF, ids=str)
def test_half_precision_is_computed_in_float32(backend, dtype):
    data = positions((6,), 12, 12)
    rounded = data | {
        name: backend.numpy(backend.array(data[name], dtype))
        for name in ("student_logits", "critic_logits")
    }
    want = twin(rounded, top_k=2)
    z, c, y = backend.arguments(data, dtype).values()
    loss, stats = avatarl_loss(z, c, y, top_k=2)
    assert backend.dtype(loss) == backend.dtype(stats["kl"]) == "float32"
    np.testing.assert_allclose(float(loss), want.loss, atol=1e-5)
    if backend is TORCH:
        z.requires_grad_()
        avatarl_loss(z, c, y, top_k=2)[0].backward()
        assert z.grad.dtype == z.dtype
        np.testing.assert_allclose(z.grad.double().numpy(), want.gradient, atol=1e-2 * 0.2)


@pytest.mark.slow
def test_autocast_changes_nothing():
    z, c, y = TORCH.arguments(positions((6,), 12, 13), "float32").values()
    plain, _ = avatarl_loss(z, c, y, top_k=2)
    with torch.autocast("cpu", torch.bfloat16):
        under, _ = avatarl_loss(z, c, y, top_k=2)
    assert plain.item() == under.item()


@pytest.mark.parametrize(
    "layout", ["transposed", "without the last step", "every other", "read-only"]
)
@pytest.mark.parametrize("backend", [BACKENDS[0], TORCH], ids=str)
def test_slices_of_larger_arrays_are_read_where_they_lie(backend, layout):
    data = positions((4, 6), 12, 14)
    cut = {
        "transposed": lambda x: np.swapaxes(x, 0, 1),
        "without the last step": lambda x: x[:, :-1],
        "every other": lambda x: x[::2],
        "read-only": lambda x: x,
    }[layout]
    want = twin({name: cut(x) for name, x in data.items()}, top_k=2)
    arrays = [cut(x) for x in data.values()]
    if layout == "read-only" and backend is TORCH:
        pytest.skip("tensors are writable")
    if layout == "read-only":
        for x in arrays:
            x.flags.writeable = False
    if backend is TORCH:
        arrays = [torch.from_numpy(x) for x in arrays]
        arrays[0].requires_grad_()
    loss, _ = avatarl_loss(*arrays, top_k=2)
    assert_close(loss.item(), want.loss)
    if backend is TORCH:
        loss.backward()
        assert_close(arrays[0].grad.numpy(), want.gradient)


def test_columns_that_are_not_neighbours_are_read_too():
    data = positions((6,), 12, 15)
    wide = {k: np.repeat(x, 2, -1)[..., ::2] if x.ndim == 2 else x for k, x in data.items()}
    assert wide["student_logits"].strides[-1] == 16
    loss, _ = avatarl_loss(*wide.values(), top_k=2)
    assert_close(loss, twin(data, top_k=2).loss)


@every_road
def test_leading_axes_are_positions(road):
    data = positions((6,), 12, 16)
    shaped = {k: x.reshape(2, 3, *x.shape[1:]) for k, x in data.items()}
    got, want = road(shaped, top_k=2), twin(data, top_k=2)
    assert_close(got.loss, want.loss)
    if got.gradient is not None:
        assert_close(got.gradient.reshape(6, 12), want.gradient)


@every_road
def test_inputs_are_not_written_to(road):
    data = positions((6,), 12, 17)
    kept = {name: x.copy() for name, x in data.items()}
    road(data, top_k=2)
    for name, x in data.items():
        np.testing.assert_array_equal(x, kept[name])
