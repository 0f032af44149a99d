"""The updates of one rollout and their pieces, each compiled as a program with the same shapes.

The pieces are those of `train.ppo`: returns are `gae` over a rollout; forward is the loss on every
minibatch of every epoch; the gradient is forward and backward. The rest of the whole is the
log-probabilities and values of the rollout, shuffling, and Adam.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from loopless.bench.contest import Call, Contender, Verdict
from suites.dqn_speed.slices import PPOTraining
from suites.processes import jax, jnp

WHOLE, RETURNS, FORWARD, GRADIENT = "whole", "returns", "forward", "forward and backward"


@dataclass(frozen=True)
class Pieces:
    """The updates of one rollout of `training`."""

    training: PPOTraining

    @property
    def label(self) -> str:
        return self.training.label

    def check(self, contender: Contender, call: Call, output: Any) -> Verdict:
        """Check that the numbers are finite, and not all zero."""
        assert call.read
        numbers = call.read(output)
        return Verdict("" if np.isfinite(numbers).all() and numbers.any() else "no numbers")


def _prepared(piece: Callable, case: Pieces) -> Call:
    function, arguments = piece(*_ingredients(case))
    program = jax.jit(function)
    return Call(lambda: jax.block_until_ready(program(*arguments)), np.asarray)


@lru_cache(maxsize=1)
def _ingredients(case: Pieces) -> tuple:
    """Return the algorithm, a learner, its rollout, the data of its updates, and a key."""
    from loopless.envs import autoreset, make_compiled
    from loopless.train.ppo.algorithm import build
    from loopless.train.ppo.compiled import CompiledPPO

    config = case.training.config()
    world = autoreset(make_compiled(config.env), config.envs)
    algorithm = build(config, world.obs_space, world.action_space, world.max_steps)
    run, key = CompiledPPO(algorithm, world, world), jax.random.key(0)
    carry = jax.jit(run.init)(key)
    _, rollout, _ = jax.jit(run.collect)(key, np.int32(0), key, carry)
    _, rows = jax.jit(algorithm.prepare)(carry.learner, carry.learner.acting(), rollout)
    return algorithm, carry.learner, rollout, rows, key


def _whole(algorithm: Any, learner: Any, rollout: Any, rows: Any, key: Any) -> tuple:
    def updates(learner, rollout):
        return algorithm.learn(learner, learner.acting(), rollout, key, 0)[0].weights

    return updates, (learner, rollout)


def _returns(algorithm: Any, learner: Any, rollout: Any, rows: Any, key: Any) -> tuple:
    from loopless.kernels.returns import gae

    discounts = {"gamma": algorithm.config.gamma, "lambda_": algorithm.config.gae_lambda}
    values = rows["old_value"]
    arguments = rollout.reward, values, values, rollout.terminated, rollout.truncated
    return (lambda *arrays: gae(*arrays, **discounts)[0]), arguments


def _passes(
    algorithm: Any, learner: Any, rollout: Any, rows: Any, key: Any, backward: bool
) -> tuple:
    from loopless.train.engine.rollouts import cut_minibatches, flatten_steps, shuffles

    config, numbers = algorithm.config, algorithm.coefficients(0)
    units = flatten_steps(rows, rollout.memory)
    orders = shuffles(key, config.epochs, config.rollout_size)
    cut = [cut_minibatches(units, order, config.minibatches) for order in orders]
    minibatches = jax.tree.map(lambda *parts: jnp.concatenate(parts), *cut)

    def loss(weights, rows):
        return algorithm.loss(weights, rows, numbers)[0]

    function = jax.grad(loss) if backward else loss

    def passes(weights, minibatches):
        def add(total, rows):
            return total + function(weights, rows), None

        start = jnp.zeros_like(weights if backward else weights[0])
        return jax.lax.scan(add, start, minibatches)[0]

    return passes, (learner.weights, minibatches)


PIECES = tuple(
    Contender(name, "loopless", "ours", partial(_prepared, piece))
    for name, piece in (
        (WHOLE, _whole),
        (RETURNS, _returns),
        (FORWARD, partial(_passes, backward=False)),
        (GRADIENT, partial(_passes, backward=True)),
    )
)
