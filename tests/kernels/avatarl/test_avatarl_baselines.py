"""Cross-entropies and distillation against their loops, and against each other and PyTorch's."""

import numpy as np
import pytest
import torch
from support.avatarl import ROADS, positions
from support.backends import BACKENDS, TORCH
from support.compare import assert_close

from loopless.kernels.avatarl import baselines
from loopless.kernels.avatarl.baselines import cross_entropy, distillation, soft_cross_entropy
from loopless.kernels.avatarl.loss import avatarl_actions, avatarl_loss, avatarl_rewards
from loopless.reference import avatarl as loops

every_road = pytest.mark.parametrize("road", ROADS.values(), ids=ROADS)
MASK = np.array([True, True, False, True, False, True])


def close(got, loss, gradient):
    assert_close(got.loss, loss)
    if got.gradient is not None:
        assert_close(got.gradient, gradient)


def spoilt(data: dict) -> dict:
    """What is masked holds anything."""
    data = {name: x.copy() for name, x in data.items()}
    data["student_logits"][~MASK] = np.nan
    data["critic_logits"][~MASK] = -np.inf
    data["targets"][~MASK] = -1
    return data


@every_road
def test_soft_cross_entropy_equals_its_loop(road):
    data = spoilt(positions((6,), 12, 70))
    rng = np.random.default_rng(0)
    tokens, weights = rng.integers(0, 12, (6, 3)), rng.random((6, 3))
    tokens[~MASK] = 99
    weights[0] = 0.5, 0.0, 0.5
    z = data["student_logits"]
    z[0, tokens[0, 1]] = -np.inf if tokens[0, 1] not in tokens[0, ::2] else z[0, tokens[0, 1]]

    def kernel(z, *, tokens, weights, mask):
        return soft_cross_entropy(z, tokens, weights, mask=mask)

    data = {"student_logits": z}
    got = road(data, kernel=kernel, tokens=tokens, weights=weights, mask=MASK)
    close(got, *loops.soft_cross_entropy(z, tokens, weights, mask=MASK))


@every_road
def test_cross_entropy_equals_its_loop_and_pytorchs(road):
    data = spoilt(positions((6,), 12, 71))
    z, y = data["student_logits"], data["targets"]
    got = road({"student_logits": z, "targets": y}, kernel=cross_entropy, mask=MASK)
    close(got, *loops.soft_cross_entropy(z, y[:, None], np.ones((6, 1)), mask=MASK))
    theirs = torch.nn.functional.cross_entropy(torch.from_numpy(z[MASK]), torch.from_numpy(y[MASK]))
    assert_close(got.loss, theirs.item())


@every_road
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_distillation_equals_its_loop(road, temperature):
    data = spoilt(positions((6,), 12, 72))
    data["critic_logits"][0, 3] = -np.inf
    del data["targets"]
    got = road(data, kernel=distillation, temperature=temperature, mask=MASK)
    close(got, *loops.distillation(**data, temperature=temperature, mask=MASK))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_distillation_of_mixed_precision(dtype):
    data = positions((6,), 12, 73)
    z = data["student_logits"].astype(dtype)
    want, _ = loops.distillation(z.astype(float), data["critic_logits"])
    np.testing.assert_allclose(distillation(z, data["critic_logits"]), want, rtol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_soft_cross_entropy_to_the_fixed_target_is_the_loss_without_its_bonus(backend):
    z, c, y = backend.arguments(positions((6,), 12, 74)).values()
    actions, present = avatarl_actions(z, c, y, top_k=3)
    target = avatarl_rewards(c, actions, present)
    soft = soft_cross_entropy(z, actions, target)
    loss, stats = avatarl_loss(z, c, y, top_k=3, entropy_coefficient=0.0)
    assert_close(float(soft), float(loss))
    target = backend.numpy(target)
    held = -np.where(target > 0, target * np.log(np.where(target > 0, target, 1)), 0).sum(-1).mean()
    assert_close(float(stats["kl"]), float(loss) - held)


def test_one_token_of_weight_1_is_cross_entropy():
    z, _, y = positions((6,), 12, 75).values()
    assert cross_entropy(z, y) == soft_cross_entropy(z, y[:, None], np.ones((6, 1)))


def test_a_student_like_its_critic_has_nothing_left_to_learn():
    z = TORCH.arguments(positions((6,), 12, 76))["student_logits"].requires_grad_()
    loss = distillation(z, z.detach().clone(), temperature=3.0)
    loss.backward()
    np.testing.assert_allclose(loss.item(), 0, atol=1e-15)
    np.testing.assert_allclose(z.grad.numpy(), 0, atol=1e-15)


def test_gradchecks():
    data = TORCH.arguments(positions((3,), 6, 77))
    z, c, y = data.values()
    z.requires_grad_()
    weights = torch.rand(3, 2, dtype=torch.float64)
    for loss in (
        lambda z: cross_entropy(z, y),
        lambda z: soft_cross_entropy(z, torch.stack([y, y // 2], -1), weights),
        lambda z: distillation(z, c, temperature=1.7),
    ):
        assert torch.autograd.gradcheck(loss, z)


@pytest.mark.parametrize("temperature", [None, 1.0, 1.7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pytorchs_own_functions_give_what_ours_give(monkeypatch, temperature, dtype):
    z, c = torch.randn(2, 4, 3, 12, dtype=dtype, generator=torch.Generator().manual_seed(3))
    y = torch.arange(12).reshape(4, 3) % 12
    results = []
    for limit in (12, 11):
        monkeypatch.setattr(baselines, "PYTORCH_UP_TO", limit)
        leaf = z.clone().requires_grad_()
        if temperature is None:
            loss = cross_entropy(leaf, y)
        else:
            loss = distillation(leaf, c, temperature=temperature)
        results.append((loss.grad_fn.name(), loss.detach(), *torch.autograd.grad(loss, leaf)))
    (name, *theirs), (other, *ours) = results
    assert name != other  # two ways were taken
    for x, y in zip(theirs, ours, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-12 if dtype == torch.float64 else 1e-5, atol=1e-7)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_rows_that_are_no_distribution_are_refused_at_any_vocabulary(bad):
    z = torch.zeros(3, 5)
    z[1, 2] = bad
    with pytest.raises(ValueError, match=r"logits\[1\]"):
        cross_entropy(z, torch.zeros(3, dtype=torch.int64))
