"""Pytrees as named arrays: all of it comes back, keys and types included."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from loopless.runs.checkpoint import Checkpoints
from loopless.runs.trees import flatten, unflatten


class Carry(NamedTuple):
    step: jax.Array
    key: jax.Array
    nothing: None = None


def tree():
    params = {"layers": [{"w": jnp.ones((2, 3), jnp.float32)}, {"w": jnp.zeros(2, jnp.bfloat16)}]}
    return {
        "weights": params,
        "optimiser": optax.adam(1e-3).init(params),
        "carry": Carry(jnp.int32(7), jax.random.key(3)),
        "host": {"rows": np.arange(3, dtype=np.uint8), "count": 5, "rate": 0.1, "on": True},
        "scalar": np.float32(0.3),
    }


def same(a, b):
    if jnp.issubdtype(getattr(a, "dtype", np.int64), jax.dtypes.prng_key):
        assert a.dtype == b.dtype
        a, b = jax.random.key_data(a), jax.random.key_data(b)
    assert type(a) is type(b)
    assert getattr(a, "dtype", None) == getattr(b, "dtype", None)
    assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_names_are_the_paths():
    assert flatten(tree()).keys() >= {
        "weights/layers/0/w",
        "optimiser/0/mu/layers/1/w",
        "optimiser/0/count",
        "carry/step",
        "carry/key:threefry2x32",
        "host/rows",
        "scalar",
    }


def test_a_tree_comes_back_through_a_checkpoint(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, flatten(tree()), {})
    template = jax.tree.map(lambda leaf: leaf, tree())
    template["carry"] = Carry(jnp.int32(0), jax.random.key(0))
    found = checkpoints.load(template=flatten(template))
    again = unflatten(template, found.arrays)
    assert jax.tree.structure(again) == jax.tree.structure(tree())
    jax.tree.map(same, again, tree())


def test_keys_of_many_shapes_draw_the_same_numbers():
    keys = jax.random.split(jax.random.key(1), (2, 3))
    again = unflatten({"k": jax.random.split(jax.random.key(9), (2, 3))}, flatten({"k": keys}))
    assert again["k"].shape == (2, 3)
    draw = jax.vmap(jax.vmap(jax.random.uniform))
    np.testing.assert_array_equal(draw(again["k"]), draw(keys))


def test_keys_of_another_generator_are_refused():
    arrays = flatten({"k": jax.random.key(0, impl="rbg")})
    with pytest.raises(ValueError, match="k:rbg is not expected; k:unsafe_rbg is missing"):
        unflatten({"k": jax.random.key(0, impl="unsafe_rbg")}, arrays)


def test_what_comes_back_can_be_donated():
    template = {"x": jnp.ones(4096)}
    arrays = flatten(template)
    kept = arrays["x"].copy()
    again = unflatten(template, arrays)
    step = jax.jit(lambda state: jax.tree.map(lambda x: x + 1, state), donate_argnums=0)
    result = step(again)
    assert again["x"].is_deleted()
    np.testing.assert_array_equal(arrays["x"], kept)
    np.testing.assert_array_equal(result["x"], kept + 1)


def test_all_leaves_that_would_not_come_back_are_named():
    bad = {"activation": jnp.tanh, "name": "x", "weak": jnp.asarray(1.0), "fine": jnp.ones(2)}
    with pytest.raises(ValueError, match="checkpoint: activation is a") as caught:
        flatten(bad)
    assert "name is a str" in str(caught.value)
    assert "weak is weakly typed" in str(caught.value)
    assert "fine" not in str(caught.value)


def test_two_leaves_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two leaves have the name a/b"):
        flatten({"a": {"b": jnp.ones(1)}, "a/b": jnp.ones(1)})


def test_other_arrays_than_the_templates_are_refused():
    template = {"a": jnp.ones(1), "c": jnp.ones(2), "d": jnp.ones(2)}
    arrays = {"b": np.ones(1), "c": np.ones(3), "d": np.ones(2, np.int8)}
    with pytest.raises(ValueError, match=r"a is missing; b is not expected; c is .*; d is int8"):
        unflatten(template, arrays)
