"""Runs of DQN on the chain, whose values are known, with a network that is a table."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from loopless.envs import autoreset
from loopless.envs.compiled.tables import Chain
from loopless.runs.progress.clock import Clock
from loopless.train.dqn.algorithm import build
from loopless.train.dqn.compiled import CompiledDQN
from loopless.train.dqn.config import DQN
from loopless.train.dqn.hosted import make

GAMMA = 0.9
# One-hot observations and no hidden layer: a table. Every action is drawn evenly, so that all
# pairs are seen; no target is random then, and what is left to do is to converge.
CONFIG = DQN(
    hidden=(), gamma=GAMMA, envs=4, train_every=16, buffer_size=2048, batch_size=32, updates=4,
    learning_starts=64, target_every=64, explore_start=1.0, explore_end=1.0, steps=12_800,
    optimizer="adam", learning_rate=0.05, learning_rate_end=0.0, env="loopless/Chain-v0",
)  # fmt: skip

SHORT, FOREVER = Chain(), Chain(forever=True)
ENDLESS = Chain(max_steps=1_000_000)  # no window of n steps is cut by a time limit


def compiled_q(chain: Chain, **options) -> np.ndarray:
    """Q [states, actions] after a whole compiled run."""
    config = replace(CONFIG, **options)
    assert not config.problems(), config.problems()
    world = autoreset(chain, config.envs)
    algorithm = build(config, world.obs_space, chain.actions)
    run = CompiledDQN(algorithm, world, world)

    @jax.jit
    def whole(key):
        carry = run.init(key)
        events = config.steps // config.train_every
        carry, _ = run.chunk(carry, key, jnp.int32(0), jnp.int32(events), learning=True)
        return algorithm.values(carry.learner.weights, jnp.asarray(chain.observations))

    return np.asarray(whole(jax.random.key(config.seed)))


def hosted_q(env: str, **options) -> np.ndarray:
    """Q [states, actions] after a whole hosted run."""
    config = replace(CONFIG, env=env, mode="hosted", **options)
    assert not config.problems(), config.problems()
    trainer = make(config)
    try:
        clock = Clock()
        while trainer.step < trainer.total:
            trainer.advance(clock)
        eye = np.eye(5, dtype=np.float32)
        return np.asarray(trainer.agent.algorithm.values(trainer.learner.weights, eye))
    finally:
        trainer.close()


def n_step_fixed_point(chain: Chain, n: int) -> np.ndarray:
    """What n-step targets converge to where all actions are drawn evenly, by iteration."""
    q = np.zeros((chain.length, chain.actions))
    for _ in range(2000):
        values = q.max(1)
        for _ in range(n - 1):
            values = backed_up(chain, values).mean(1)
        q = backed_up(chain, values)
    return q


def backed_up(chain: Chain, values: np.ndarray) -> np.ndarray:
    """r + γ V(s') of every state and action."""
    after = np.where(chain.terminates, 0, values[chain.next_states])
    return chain.rewards + GAMMA * after
