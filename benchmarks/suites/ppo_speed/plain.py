"""PPO written plainly as one compiled JAX program.

`in_jax` has the form of PureJaxRL: a scan over rollouts of gymnax's environments, with all updates
in its body. It has no wrappers and no logging, and treats truncation as termination, as most of its
kind do.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from loopless.bench.contest import Call, Contender
from suites.dqn_speed.peers import CompiledSlices
from suites.dqn_speed.plain import Environments, adam, dense, forward
from suites.dqn_speed.slices import PUREJAXRL, PPOTraining
from suites.processes import jax, jnp, peer
from suites.q_learning.updates import ACTIONS, OBS


class State(NamedTuple):
    """The carry of the scan over rollouts."""

    weights: dict[str, Any]
    moments: Any
    updates: Any
    env: Any
    obs: Any
    key: Any


class Steps(NamedTuple):
    """What a rollout holds, [horizon, envs, …]."""

    obs: Any
    action: Any
    log_prob: Any
    value: Any
    reward: Any
    done: Any


def in_jax(case: PPOTraining) -> CompiledSlices:
    """Return a run in which each turn of a scan makes a rollout, and all updates on it."""
    config, envs = case.config(), Environments(case.envs)
    optimizer, gamma = adam(config, eps=config.adam_epsilon), config.gamma

    def init(key: Any) -> State:
        key, for_actor, for_critic, for_envs = jax.random.split(key, 4)
        weights = {
            "actor": dense(for_actor, (OBS, *case.hidden, ACTIONS), 0.01),
            "critic": dense(for_critic, (OBS, *case.hidden, 1), 1.0),
        }
        obs, env = envs.reset(for_envs)
        return State(weights, optimizer.init(weights), jnp.int32(0), env, obs, key)

    def apply(weights: Any, obs: Any) -> tuple[Any, Any]:
        logits = forward(weights["actor"], obs, jnp.tanh)
        return jax.nn.log_softmax(logits), forward(weights["critic"], obs, jnp.tanh)[..., 0]

    def act(state: State, _: None) -> tuple[State, Steps]:
        key, for_action, for_envs = jax.random.split(state.key, 3)
        law, value = apply(state.weights, state.obs)
        action = jax.random.categorical(for_action, law)
        log_prob = jnp.take_along_axis(law, action[:, None], 1)[:, 0]
        obs, env, reward, done = envs.step(for_envs, state.env, action)
        steps = Steps(state.obs, action, log_prob, value, reward, done)
        return state._replace(env=env, obs=obs, key=key), steps

    def advantages(steps: Steps, last_value: Any) -> Any:
        def back(carry: Any, step: Steps) -> Any:
            advantage, next_value = carry
            goes_on = 1.0 - step.done
            delta = step.reward + gamma * next_value * goes_on - step.value
            advantage = delta + gamma * config.gae_lambda * goes_on * advantage
            return (advantage, step.value), advantage

        start = jnp.zeros_like(last_value), last_value
        return jax.lax.scan(back, start, steps, reverse=True, unroll=16)[1]

    def loss(weights: Any, steps: Steps, advantage: Any, target: Any) -> Any:
        law, value = apply(weights, steps.obs)
        log_prob = jnp.take_along_axis(law, steps.action[:, None], 1)[:, 0]
        ratio = jnp.exp(log_prob - steps.log_prob)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        clipped = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
        policy_loss = -jnp.minimum(ratio * advantage, clipped * advantage).mean()
        value_loss = 0.5 * jnp.square(value - target).mean()
        entropy = -(jnp.exp(law) * law).sum(-1).mean()
        bonus = config.entropy_coefficient * entropy
        return policy_loss + config.value_coefficient * value_loss - bonus

    def update(state: State, rows: Any) -> tuple[State, None]:
        gradient = jax.grad(loss)(state.weights, *rows)
        changes, moments = optimizer.update(gradient, state.moments)
        weights = peer("optax").apply_updates(state.weights, changes)
        return state._replace(weights=weights, moments=moments, updates=state.updates + 1), None

    def turn(state: State, _: None) -> tuple[State, None]:
        state, steps = jax.lax.scan(act, state, None, case.horizon)
        advantage = advantages(steps, apply(state.weights, state.obs)[1])
        rows = steps, advantage, advantage + steps.value
        rows = jax.tree.map(lambda x: x.reshape(case.rows, *x.shape[2:]), rows)

        def epoch(state: State, _: None) -> tuple[State, None]:
            key, for_order = jax.random.split(state.key)
            order = jax.random.permutation(for_order, case.rows).reshape(case.minibatches, -1)
            shuffled = jax.tree.map(lambda x: x[order], rows)
            return jax.lax.scan(update, state._replace(key=key), shuffled)[0], None

        return jax.lax.scan(epoch, state, None, case.epochs)[0], None

    def advance(state: State) -> State:
        return jax.lax.scan(turn, state, None, case.steps // case.rows)[0]

    return CompiledSlices(jax.jit(init)(jax.random.key(0)), advance, lambda state: state.updates)


COMPILED = Contender(
    PUREJAXRL, "jax", "peer", lambda case: Call(in_jax(case), int),
    note="gymnax, Optax; no wrappers, no logging",
)  # fmt: skip
