"""What the tests of DQN share: the members of the family and small worlds."""

import functools
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from loopless.envs.spaces import Box
from loopless.nets.mlp import as_vector
from loopless.train.dqn import algorithm as dqn
from loopless.train.dqn.algorithm import DQNAlgorithm, DQNLearner, build
from loopless.train.dqn.config import DQN

VARIANTS = {
    "no target": {"target": "off"},
    "replace": {},
    "polyak": {"target": "polyak", "tau": 0.3},
    "double": {"double": True},
    "duelling": {"duelling": True},
    "sarsa": {"sarsa": True},
    "sarsa, no target": {"sarsa": True, "target": "off"},
    "n-step": {"n_step": 3},
    "newest": {"newest": 2},
    "exact": {"prioritized": "exact"},
    "block": {"prioritized": "block"},
    "accumulate": {"accumulate": 2},
    "mega batch": {"mega_batch": True},
    "repeats": {"repeats": 3},
    "all at once": {
        "double": True, "duelling": True, "n_step": 2, "prioritized": "exact", "repeats": 2,
        "accumulate": 2, "loss": "huber", "huber_delta": 0.5, "max_gradient_norm": 0.3,
        "optimizer": "adamw",
    },
}  # fmt: skip

SMALL = {
    "hidden": (5,), "batch_size": 4, "buffer_size": 64, "learning_starts": 0, "train_every": 64,
    "steps": 640, "learning_rate": 0.01, "gamma": 0.9,
}  # fmt: skip
OBS, ACTIONS = Box((3,)), 3


def small(**options) -> DQN:
    config = DQN(**SMALL | options)
    rows = max(config.train_every, config.update_size)
    config = replace(config, buffer_size=max(rows, config.buffer_size), train_every=rows)
    assert not config.problems(), config.problems()
    return config


def algorithm_of(config: DQN, dtype: str = "float32") -> DQNAlgorithm:
    """The functions of a config; in float64 all arithmetic is, but rows are stored in float32."""
    algorithm = build(config, OBS, ACTIONS)
    if dtype == "float32":
        return algorithm
    net = dqn.network(config, OBS, ACTIONS, jax.random.key(0))
    net = jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, net)
    return replace(algorithm, rebuild=as_vector(net)[1])


def learner_of(algorithm: DQNAlgorithm, dtype: str = "float32", seed: int = 0) -> DQNLearner:
    """A learner whose two networks differ."""
    rng = np.random.default_rng(seed)
    size = jax.eval_shape(algorithm.init, jax.random.key(0))[0].weights.size
    weights = jnp.asarray(rng.normal(size=size) / 2, dtype)
    target = jnp.asarray(rng.normal(size=size) / 2, dtype)
    zero = jnp.zeros((), jnp.int32)
    return DQNLearner(
        weights,
        target if algorithm.config.target != "off" else weights[:0],
        algorithm.optimizer.init(weights),
        zero,
        zero,
        jnp.zeros((), bool),
    )


def transitions(count: int, seed: int = 1, **changed) -> dict:
    """Rows of made-up experience with some ends of both kinds."""
    rng = np.random.default_rng(seed)
    rows = {
        "obs": rng.normal(size=(count, *OBS.shape)).astype(np.float32),
        "action": rng.integers(0, ACTIONS, count).astype(np.int32),
        "reward": rng.normal(size=count).astype(np.float32),
        "next_obs": rng.normal(size=(count, *OBS.shape)).astype(np.float32),
        "terminated": rng.random(count) < 0.2,
        "truncated": rng.random(count) < 0.2,
        "next_action": rng.integers(0, ACTIONS, count).astype(np.int32),
    }
    return rows | changed


def filled(algorithm: DQNAlgorithm, rows: dict | None = None):
    """The algorithm's buffer, full, with priorities that differ."""
    if rows is None:
        return _filled(algorithm.replay)
    return _fill(algorithm.replay, {name: rows[name] for name in dict(algorithm.replay.fields)})


@functools.cache
def _filled(handle):
    rows = transitions(handle.capacity)
    return _fill(handle, {name: rows[name] for name in dict(handle.fields)})


@functools.partial(jax.jit, static_argnums=0)
def _fill(handle, rows):
    replay = handle.add(handle.init(), rows)
    if hasattr(handle, "update_priorities"):
        given = np.random.default_rng(2).random(handle.capacity) + 0.1
        replay = handle.update_priorities(replay, np.arange(handle.capacity), given)
    return replay


def arrays_of(tree) -> dict[str, np.ndarray]:
    """Leaves by path, as NumPy arrays."""
    pairs = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in pairs}


def assert_same(left, right) -> None:
    """Bit for bit."""
    left, right = arrays_of(left), arrays_of(right)
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


def assert_near(left, right, rtol: float, atol: float) -> None:
    left, right = arrays_of(left), arrays_of(right)
    assert left.keys() == right.keys()
    for name in left:
        assert left[name].shape == right[name].shape, name
        np.testing.assert_allclose(left[name], right[name], rtol=rtol, atol=atol, err_msg=name)


KEY, BETA = jax.random.key(7), jnp.float32(0.5)
