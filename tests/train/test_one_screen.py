"""The learners on one screen make the updates of the trainers, and learn."""

import os
import subprocess
import sys

import example_modules
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loopless.envs.spaces import Box, Discrete
from loopless.train.dqn.algorithm import build as build_dqn
from loopless.train.dqn.config import DQN
from loopless.train.ppo.algorithm import build as build_ppo
from loopless.train.ppo.config import PPO

pytestmark = pytest.mark.slow

CLOSE = {"rtol": 1e-5, "atol": 1e-7}
OBS = Box((4,))


def vector(*networks):
    """The layers of networks, weight and bias by turns, as the trainers have them in a vector."""
    return np.concatenate([np.ravel(x) for layers in networks for layer in layers for x in layer])


def in_float32(tree):
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), tree)


def observations(rng, count):
    return rng.normal(size=(count, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def dqn():
    return example_modules.load("dqn_one_screen")


@pytest.fixture(scope="module")
def ppo():
    return example_modules.load("ppo_one_screen")


def test_the_first_updates_of_dqn_are_those_of_the_trainer(dqn):
    every = dqn.ENVS * dqn.STEPS_PER_UPDATE
    config = DQN(
        hidden=(120, 84), gamma=dqn.GAMMA, batch_size=dqn.BATCH_SIZE, train_every=every,
        learning_rate=dqn.LEARNING_RATE, learning_rate_end=0.0, learning_starts=1_000,
        steps=1_000 + dqn.UPDATES * every,
    )  # fmt: skip
    algorithm, rng = build_dqn(config, OBS, 2), np.random.default_rng(0)
    online, target = (in_float32(dqn.init_network(jax.random.key(i))) for i in range(2))
    ours = dqn.Learner(online, target, dqn.optimizer.init(online))
    theirs, _ = algorithm.init(jax.random.key(0))
    theirs = theirs._replace(weights=vector(online), target=vector(target))
    update, their_update = jax.jit(dqn.update), jax.jit(algorithm.update)
    for _ in range(3):
        batch = {
            "obs": observations(rng, 128), "action": rng.integers(0, 2, 128).astype(np.int32),
            "reward": rng.normal(size=128).astype(np.float32),
            "next_obs": observations(rng, 128), "terminated": rng.random(128) < 0.2,
        }  # fmt: skip
        ours, loss = update(ours, batch)
        next_q = algorithm.target_values(theirs, batch)
        theirs, report, _ = their_update(theirs, batch, next_q)
        np.testing.assert_allclose(loss, report.loss, **CLOSE)
        np.testing.assert_allclose(vector(ours.online), theirs.weights, **CLOSE)
    assert np.abs(vector(ours.online) - vector(online)).max() > dqn.LEARNING_RATE


def test_the_first_updates_of_ppo_are_those_of_the_trainer(ppo):
    config = PPO(
        envs=ppo.ENVS, horizon=ppo.HORIZON, gamma=ppo.GAMMA, gae_lambda=ppo.LAMBDA, clip=ppo.CLIP,
        learning_rate=ppo.LEARNING_RATE, max_gradient_norm=ppo.MAX_GRADIENT_NORM,
        value_coefficient=ppo.VALUE_COEFFICIENT, epochs=ppo.EPOCHS, minibatches=ppo.MINIBATCHES,
    )  # fmt: skip
    algorithm, rng = build_ppo(config, OBS, Discrete(2), 500), np.random.default_rng(0)
    sizes = {"policy": 2, "value": 1}
    keys = dict(zip(sizes, jax.random.split(jax.random.key(0)), strict=True))
    networks = in_float32({k: ppo.init_network(keys[k], (4, 64, 64, sizes[k])) for k in sizes})
    ours = ppo.Learner(networks, ppo.optimizer.init(networks))
    theirs = algorithm.init(jax.random.key(0))
    theirs = theirs._replace(weights=vector(networks["policy"], networks["value"]))
    theirs, rate = (theirs, jnp.zeros((), bool)), algorithm.coefficients(0)["learning_rate"]
    updates = ppo.ROLLOUTS * ppo.EPOCHS * ppo.MINIBATCHES
    update, their_update = jax.jit(ppo.update), jax.jit(algorithm.update)
    for number in range(3):
        batch = {
            "obs": observations(rng, 256), "action": rng.integers(0, 2, 256).astype(np.int32),
            "log_prob": np.log(rng.uniform(0.3, 0.7, 256)).astype(np.float32),
            "advantage": rng.normal(size=256).astype(np.float32),
            "return": rng.normal(size=256).astype(np.float32),
        }  # fmt: skip
        ours, loss = update(ours, batch)
        # The example's rate falls from update to update, the trainer's from rollout to rollout.
        numbers = algorithm.coefficients(0) | {"learning_rate": rate * (1 - number / updates)}
        zeros = np.zeros(256, np.float32)  # old values, which matter to a value clip alone
        steps = batch | {"old_log_prob": batch["log_prob"], "old_value": zeros}
        theirs, (their_loss, *_) = their_update(numbers, theirs, steps)
        np.testing.assert_allclose(loss, their_loss, **CLOSE)
        policy, value = ours.networks["policy"], ours.networks["value"]
        np.testing.assert_allclose(vector(policy, value), theirs[0].weights, **CLOSE)
    assert int(theirs[0].updates) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("name", "updates", "least"), [("dqn", 3_000, 60), ("ppo", 30, 60)])
def test_a_short_run_learns(name, updates, least):
    """Random actions balance the pole for about 22 steps."""
    script = (
        "import sys, runpy, jax\n"
        "example = runpy.run_path(sys.argv[1])\n"
        "print(example['train'](jax.random.key(0), int(sys.argv[2])))"
    )
    path = example_modules.FOLDER / f"{name}_one_screen.py"
    words = [sys.executable, "-c", script, path, str(updates)]
    env = os.environ | {"JAX_ENABLE_X64": "0"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=env)
    assert not done.returncode, done.stderr
    assert float(done.stdout) > least
