"""Proximal policy optimization on one screen: environments and learner in one compiled program.

It solves CartPole-v1 in a few seconds. `loopless train ppo` is the same algorithm with checkpoints,
metrics, recurrent and continuous policies; a test compares the updates of both.

    python examples/ppo_one_screen.py [SEED]
"""

import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

import loopless as ll
from loopless.envs import autoreset, make_compiled

ENVS, HORIZON, ROLLOUTS = 8, 128, 200  # a rollout is 128 steps of 8 environments
EPOCHS, MINIBATCHES, CLIP, VALUE_COEFFICIENT = 4, 4, 0.2, 0.5
GAMMA, LAMBDA, LEARNING_RATE, MAX_GRADIENT_NORM = 0.99, 0.95, 1e-3, 0.5

world = autoreset(make_compiled("CartPole-v1"), ENVS)
rates = optax.linear_schedule(LEARNING_RATE, 0.0, ROLLOUTS * EPOCHS * MINIBATCHES)
optimizer = optax.chain(optax.clip_by_global_norm(MAX_GRADIENT_NORM), optax.adam(rates, eps=1e-5))


class Learner(NamedTuple):
    networks: Any  # {"policy": layers, "value": layers}
    moments: Any


def init_network(key: jax.Array, sizes: tuple[int, ...]) -> list:
    """Return (weight, bias) of each layer."""
    keys, draw = jax.random.split(key, len(sizes) - 1), jax.nn.initializers.orthogonal()
    layers = zip(keys, sizes[:-1], sizes[1:], strict=True)
    return [(draw(key, (inputs, outputs)), jnp.zeros(outputs)) for key, inputs, outputs in layers]


def forward(layers: list, x: jax.Array) -> jax.Array:
    """Return the output of a network, [..., outputs]."""
    for weight, bias in layers[:-1]:
        x = jnp.tanh(x @ weight + bias)
    weight, bias = layers[-1]
    return x @ weight + bias


def judge(networks: dict, obs: jax.Array, action: jax.Array) -> tuple[jax.Array, ...]:
    """Return log π(a|s), the entropy of π(·|s) and V(s)."""
    log_probs = jax.nn.log_softmax(forward(networks["policy"], obs))
    chosen = jnp.take_along_axis(log_probs, action[..., None], -1)[..., 0]
    entropies = -(jnp.exp(log_probs) * log_probs).sum(-1)
    return chosen, entropies, forward(networks["value"], obs)[..., 0]


def update(learner: Learner, batch: dict) -> tuple[Learner, jax.Array]:
    """Make one gradient step on a minibatch."""
    advantages = ll.normalize(batch["advantage"])

    def loss_of(networks):
        log_prob, entropy, value = judge(networks, batch["obs"], batch["action"])
        return ll.ppo_loss(
            log_prob, batch["log_prob"], advantages, value, batch["return"], entropy,
            clip=CLIP, value_coefficient=VALUE_COEFFICIENT, entropy_coefficient=0.0,
        )[0]  # fmt: skip

    loss, gradient = jax.value_and_grad(loss_of)(learner.networks)
    changes, moments = optimizer.update(gradient, learner.moments)
    return Learner(optax.apply_updates(learner.networks, changes), moments), loss


def collect(networks: dict, envs: tuple, key: jax.Array, number: jax.Array, greedy=False) -> tuple:
    """Return rollout `number`: its steps [T, N], and returns, NaN where no episode ends."""

    def step(envs, x):
        (running, obs), (noise, draws) = envs, x
        logits = forward(networks["policy"], obs) + (0.0 if greedy else noise)
        action = jnp.argmax(logits, -1).astype(jnp.int32)
        running, after = world.step(running, action, draws)
        return (running, after.obs), (obs, action, after)

    times = number * HORIZON + jnp.arange(HORIZON)
    noise = jax.random.gumbel(jax.random.fold_in(key, number), (HORIZON, ENVS, 2))
    envs, (obs, action, after) = lax.scan(step, envs, (noise, world.draws(key, times)))
    log_prob, _, value = judge(networks, obs, action)
    advantage, target = ll.gae(
        after.reward, value, forward(networks["value"], after.next_obs)[..., 0],
        after.terminated, after.truncated, gamma=GAMMA, lambda_=LAMBDA,
    )  # fmt: skip
    steps = {"obs": obs, "action": action, "log_prob": log_prob}
    steps |= {"advantage": advantage, "return": target}
    return envs, steps, jnp.where(after.ended, after.episode_return, jnp.nan)


@jax.jit
def train(key: jax.Array, rollouts: jax.Array) -> jax.Array:
    """Act and learn; return the mean return of the greedy policy at the end."""
    for_networks, for_steps, for_orders, for_score = jax.random.split(key, 4)

    def act_and_learn(number, state):
        envs, learner = state
        envs, steps, _ = collect(learner.networks, envs, for_steps, number)
        steps = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps)
        keys = jax.random.split(jax.random.fold_in(for_orders, number), EPOCHS)
        orders = jax.vmap(lambda key: jax.random.permutation(key, ENVS * HORIZON))(keys)
        batches = jax.tree.map(lambda x: x[orders.reshape(EPOCHS * MINIBATCHES, -1)], steps)
        return envs, lax.scan(update, learner, batches)[0]

    outputs = {"policy": 2, "value": 1}
    networks = {name: init_network(for_networks, (4, 64, 64, n)) for name, n in outputs.items()}
    start = world.reset(for_steps), Learner(networks, optimizer.init(networks))
    _, learner = lax.fori_loop(0, rollouts, act_and_learn, start)
    play = lambda envs, i: collect(learner.networks, envs, for_score, i, greedy=True)[::2]  # noqa: E731
    return jnp.nanmean(lax.scan(play, world.reset(for_score), jnp.arange(50))[1])


if __name__ == "__main__":
    seed = int(sys.argv[1]) if sys.argv[1:] else 0
    print(f"Mean return: {train(jax.random.key(seed), ROLLOUTS):.1f}")
