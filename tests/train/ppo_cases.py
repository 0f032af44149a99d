"""What the tests of PPO share: small worlds, a made-up rollout, networks in double precision."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from loopless.envs.spaces import Box, Discrete, MultiDiscrete
from loopless.nets.mlp import rebuilder
from loopless.train.engine.rollouts import Rollout, Statistics
from loopless.train.ppo import algorithm as ppo
from loopless.train.ppo.algorithm import PPOAlgorithm, PPOLearner, build
from loopless.train.ppo.config import PPO

OBS = Box((3,))
CHOICE, NUMBERS, CHOICES = Discrete(3), Box((2,), low=-1.0, high=1.0), MultiDiscrete((2, 3))
STEPS, ENVS = 6, 4
KEY = jax.random.key(7)
SMALL = PPO(
    hidden=(5, 4), envs=ENVS, horizon=STEPS, epochs=2, minibatches=3, steps=240, gamma=0.9,
    gae_lambda=0.8, learning_rate=0.01, learning_rate_end=0.01, clip=0.2,
    entropy_coefficient=0.03,
)  # fmt: skip


def small(**options) -> PPO:
    config = replace(SMALL, **options)
    assert not config.problems(), config.problems()
    return config


def algorithm_of(
    config: PPO, actions=CHOICE, dtype: str = "float64", max_steps=None
) -> PPOAlgorithm:
    algorithm = build(config, OBS, actions, max_steps)
    if dtype == "float32":
        return algorithm

    def wide():
        net = ppo.network(config, OBS, algorithm.head, jax.random.key(0))
        return jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, net)

    return replace(algorithm, rebuild=rebuilder(wide))


def learner_of(algorithm: PPOAlgorithm, dtype: str = "float64", seed: int = 0) -> PPOLearner:
    """A learner whose weights are large enough to matter."""
    shapes = jax.eval_shape(algorithm.init, jax.random.key(0))
    rng = np.random.default_rng(seed)
    weights = jnp.asarray(rng.normal(size=shapes.weights.size) / 2, dtype)
    learner = jax.tree.map(lambda x: jnp.asarray(np.zeros(x.shape, x.dtype)), shapes)
    if learner.obs is not None:
        learner = learner._replace(obs=Statistics.empty(algorithm.obs.shape))
    if learner.returns is not None:
        learner = learner._replace(returns=Statistics.empty())
    return learner._replace(weights=weights, moments=algorithm.optimizer.init(weights))


def rollout_of(actions=CHOICE, seed: int = 1, fillers: bool = False, **changed) -> Rollout:
    """Made-up experience with ends of both kinds; successors of their own at truncations."""
    rng = np.random.default_rng(seed)
    rows = (STEPS, ENVS)
    all_obs = rng.normal(size=(STEPS + 1, ENVS, *OBS.shape)).astype(np.float32)
    terminated, truncated = rng.random(rows) < 0.2, rng.random(rows) < 0.3
    truncated[2, 1] = True
    terminated[2, 1] = terminated[STEPS - 1, 2] = False
    truncated[STEPS - 1, 2] = True
    next_obs = all_obs[1:].copy()
    ended = terminated | truncated
    next_obs[ended] = rng.normal(size=(int(ended.sum()), *OBS.shape))
    starts = np.concatenate((np.zeros((1, ENVS), bool), ended))
    if isinstance(actions, Box):
        action = rng.normal(size=(*rows, *actions.shape)).astype(np.float32)
    elif isinstance(actions, MultiDiscrete):
        action = rng.integers(0, actions.sizes, (*rows, 2)).astype(np.int32)
    else:
        action = rng.integers(0, actions.n, rows).astype(np.int32)
    valid = rng.random(rows) < 0.8 if fillers else None
    reward = rng.normal(size=rows).astype(np.float32)
    rollout = Rollout(all_obs, next_obs, action, reward, terminated, truncated, starts, valid=valid)
    return rollout._replace(**changed)
