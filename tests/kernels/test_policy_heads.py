"""`ppo_loss` with weights for rows and with several heads equals its loop, gradients included."""

import jax
import numpy as np
import pytest
import torch
from support.backends import BACKENDS, JAX, NUMPY, TORCH
from support.compare import assert_close

import loopless as ll
from loopless import reference

HEADS = ("op", "slot", "tempo")
SHAPE = (3, 4)
BY_HEAD = ("log_probs", "old_log_probs", "entropies")


def case(seed=0, heads=HEADS):
    rng = np.random.default_rng(seed)

    def numbers(scale=1.0):
        return scale * rng.standard_normal(SHAPE)

    data = {name: {h: numbers(0.3) for h in heads} for name in BY_HEAD}
    data |= {name: numbers() for name in ("advantages", "values", "returns", "old_values")}
    data["masks"] = {h: rng.random(SHAPE) < 0.6 for h in heads}
    data["valid"] = rng.random(SHAPE) < 0.8
    data["weights"] = rng.random(SHAPE) * (rng.random(SHAPE) < 0.8)
    data["clip"] = {h: 0.1 + 0.1 * k for k, h in enumerate(heads)}
    data["entropy_coefficient"] = dict(zip(reversed(heads), (0.3, 0.02, 0.1), strict=False))
    data["entropy_floor"] = dict(zip(heads, (0.5, 0.0, 0.2), strict=False))
    return data | {"value_coefficient": 0.7, "value_clip": 0.4, "floor_coefficient": 2.0}


def alone(data):
    """The same with the first head only, not in dicts."""
    head = HEADS[0]
    single = {k: x[head] if isinstance(x, dict) else x for k, x in data.items()}
    single.pop("masks", None)
    return single


def arguments(backend, data):
    def convert(x):
        if isinstance(x, dict):
            return {k: convert(y) for k, y in x.items()}
        return backend.array(x) if isinstance(x, np.ndarray) else x

    return {name: convert(x) for name, x in data.items()}


def leaves(result):
    loss, parts = result
    return [loss, *(y for x in parts for y in (x.values() if isinstance(x, dict) else (x,)))]


def assert_same(backend, data):
    got = leaves(ll.ppo_loss(**arguments(backend, data)))
    expected = leaves(reference.ppo_loss(**data))
    for x, y in zip(got, expected, strict=True):
        assert backend.owns(x)
        assert_close(backend.numpy(x), y)


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
@pytest.mark.parametrize("left_out", ["", "weights", "valid", "masks", "value_clip", "floors"])
@pytest.mark.parametrize("single", [False, True], ids=["heads", "one"])
def test_weights_and_heads_equal_the_loop(backend, left_out, single):
    data = case()
    if left_out == "value_clip":
        del data["old_values"]
    if left_out == "floors":
        data |= {"floor_coefficient": 0.0}
    else:
        data.pop(left_out, None)
    assert_same(backend, alone(data) if single else data)


def test_one_head_without_weights_is_the_plain_loss():
    data = alone(case()) | {"weights": None, "floor_coefficient": 0.0}
    plain = leaves(ll.ppo_loss(**data))
    weighed = leaves(ll.ppo_loss(**data | {"weights": np.ones(SHAPE)}))
    for x, y in zip(weighed, plain, strict=True):
        assert_close(x, y)


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_a_head_that_counts_nowhere_adds_nothing(backend):
    data = case()
    data["masks"]["slot"][:] = False
    data["entropy_floor"]["slot"] = 100.0
    for name in BY_HEAD:
        data[name]["slot"][:] = np.nan
    assert_same(backend, data)
    others = {k: {h: x[h] for h in ("op", "tempo")} if isinstance(x, dict) else x
              for k, x in data.items()}  # fmt: skip
    without = ll.ppo_loss(**arguments(backend, others))[0]
    assert_close(backend.numpy(ll.ppo_loss(**arguments(backend, data))[0]), backend.numpy(without))


def slopes(data, name, head=None, step=1e-6):
    """Finite differences of the loop's loss by one array."""
    x = data[name] if head is None else data[name][head]
    out = np.zeros(SHAPE)
    for i in np.ndindex(SHAPE):
        kept, x[i] = x[i], x[i] + step
        above = reference.ppo_loss(**data)[0]
        x[i] = kept - step
        out[i] = (above - reference.ppo_loss(**data)[0]) / (2 * step)
        x[i] = kept
    return out


@pytest.mark.parametrize("backend", [TORCH, JAX], ids=str)
def test_gradients_are_those_of_the_loop(backend):
    data = case(3)
    inputs = {"log_probs": data["log_probs"], "values": data["values"],
              "entropies": data["entropies"]}  # fmt: skip
    given = arguments(backend, data)
    if backend is TORCH:
        tensors = [t for n in inputs for t in
                   (given[n].values() if isinstance(given[n], dict) else (given[n],))]  # fmt: skip
        for tensor in tensors:
            tensor.requires_grad_()
        for name in ("old_log_probs",):
            for tensor in given[name].values():
                tensor.requires_grad_()
        given["advantages"].requires_grad_()
        ll.ppo_loss(**given)[0].backward()
        assert given["advantages"].grad is None
        assert given["old_log_probs"]["op"].grad is None
        found = {n: {h: t.grad for h, t in given[n].items()} if isinstance(given[n], dict)
                 else given[n].grad for n in inputs}  # fmt: skip
    else:

        def total(x):
            return ll.ppo_loss(**given | x)[0]

        found = jax.jit(jax.grad(total))({name: given[name] for name in inputs})
    np.testing.assert_allclose(backend.numpy(found["values"]), slopes(data, "values"), atol=1e-7)
    for name in ("log_probs", "entropies"):
        for head in HEADS:
            expected = slopes(data, name, head)
            np.testing.assert_allclose(backend.numpy(found[name][head]), expected, atol=1e-7)


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_entries_that_are_out_may_hold_nan_and_infinity(backend):
    data = case(1)
    clean = leaves(ll.ppo_loss(**arguments(backend, data)))
    out = ~data["valid"] | (data["weights"] == 0)
    assert out.any()
    for name in ("advantages", "values", "returns", "old_values"):
        data[name][out] = np.nan
    for name in BY_HEAD:
        for head in HEADS:
            data[name][head][out | ~data["masks"][head]] = np.inf
    given = arguments(backend, data)
    if backend is TORCH:
        given["values"].requires_grad_()
        given["log_probs"]["op"].requires_grad_()
        result = ll.ppo_loss(**given)
        result[0].backward()
        assert torch.isfinite(given["values"].grad).all()
        assert torch.isfinite(given["log_probs"]["op"].grad).all()
    for x, y in zip(leaves(ll.ppo_loss(**arguments(backend, data))), clean, strict=True):
        np.testing.assert_array_equal(backend.numpy(x), backend.numpy(y))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"old_log_probs": np.zeros(SHAPE)}, "old_log_probs must be a dict with the heads"),
        ({"masks": {"op": np.ones(SHAPE, bool)}}, "masks must be a dict with the heads"),
        ({"clip": {"op": 0.2}}, "clip must be a dict with the heads"),
        ({"entropy_floor": -np.inf}, "entropy_floor must be finite"),
        ({"clip": -1.0}, "clip must be at least 0"),
        ({"weights": np.ones(3)}, r"weights has shape \(3,\)"),
        ({"returns": np.zeros(5)}, r"returns has shape \(5,\)"),
        ({"value_clip": 0.2, "old_values": None}, "needs old_values"),
    ],
)
def test_what_does_not_fit_is_refused(change, words):
    with pytest.raises((TypeError, ValueError), match=f"ppo_loss: .*{words}"):
        ll.ppo_loss(**case() | change)


def test_masks_without_heads_are_refused():
    with pytest.raises(ValueError, match="which has none"):
        ll.ppo_loss(**alone(case()) | {"masks": {"op": np.ones(SHAPE, bool)}})
    assert NUMPY.owns(ll.ppo_loss(**alone(case()))[0])
