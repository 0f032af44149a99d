"""Deep Q-learning on one screen: environments, replay buffer and learner in one compiled program.

It solves CartPole-v1 in a few seconds. `loopless train dqn` is the same algorithm with checkpoints,
metrics, prioritized replay and the rest of the family; a test compares the updates of both.

    python examples/dqn_one_screen.py [SEED]
"""

import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

import loopless as ll
from loopless.envs import autoreset, make_compiled
from loopless.replay.device import RingBuffer

ENVS, STEPS_PER_UPDATE, UPDATES = 5, 2, 40_000  # an update every 5 × 2 environment steps
BUFFER_SIZE, BATCH_SIZE, WARMUP = 10_000, 128, 1_000  # WARMUP: updates left out at first
GAMMA, LEARNING_RATE, TARGET_EVERY = 0.99, 1e-3, 50  # the target network is copied every 50 updates
epsilon_at = optax.linear_schedule(1.0, 0.05, UPDATES // 2, transition_begin=WARMUP)

world = autoreset(make_compiled("CartPole-v1"), ENVS)
fields = {
    "obs": ((4,), "float32"), "action": ((), "int32"), "reward": ((), "float32"),
    "next_obs": ((4,), "float32"), "terminated": ((), "bool"), "truncated": ((), "bool"),
}  # fmt: skip
buffer = RingBuffer(BUFFER_SIZE, fields, envs=ENVS)
optimizer = optax.adam(optax.linear_schedule(LEARNING_RATE, 0.0, UPDATES))


class Learner(NamedTuple):
    online: Any
    target: Any
    moments: Any


def init_network(key: jax.Array, sizes: tuple[int, ...] = (4, 120, 84, 2)) -> list:
    """Return (weight, bias) of each layer."""
    keys, draw = jax.random.split(key, len(sizes) - 1), jax.nn.initializers.he_uniform()
    layers = zip(keys, sizes[:-1], sizes[1:], strict=True)
    return [(draw(key, (inputs, outputs)), jnp.zeros(outputs)) for key, inputs, outputs in layers]


def q_values(network: list, obs: jax.Array) -> jax.Array:
    """Return Q(s, ·), [..., actions]."""
    for weight, bias in network[:-1]:
        obs = jax.nn.relu(obs @ weight + bias)
    weight, bias = network[-1]
    return obs @ weight + bias


def update(learner: Learner, batch: dict) -> tuple[Learner, jax.Array]:
    """Make one gradient step towards r + γ max Q(s', ·), where Q is the target network."""
    next_q = q_values(learner.target, batch["next_obs"])
    targets = ll.q_targets(batch["reward"], batch["terminated"], next_q, gamma=GAMMA)

    def loss_of(online):
        return ll.q_loss(q_values(online, batch["obs"]), batch["action"], targets)[0]

    loss, gradient = jax.value_and_grad(loss_of)(learner.online)
    changes, moments = optimizer.update(gradient, learner.moments)
    return Learner(optax.apply_updates(learner.online, changes), learner.target, moments), loss


def collect(network: list, envs: tuple, key: jax.Array, number: jax.Array, epsilon) -> tuple:
    """Make the environment steps of update `number`; the returns are NaN where no episode ends."""

    def step(envs, x):
        (running, obs), (key, draws) = envs, x
        coin, other = jax.random.uniform(key, (2, ENVS))
        greedy = jnp.argmax(q_values(network, obs), -1)
        action = jnp.where(coin < epsilon, other < 0.5, greedy).astype(jnp.int32)
        running, after = world.step(running, action, draws)
        transition = {"obs": obs, "action": action}
        transition |= {name: getattr(after, name) for name in fields if name not in transition}
        returns = jnp.where(after.ended, after.episode_return, jnp.nan)
        return (running, after.obs), (transition, returns)

    times = number * STEPS_PER_UPDATE + jnp.arange(STEPS_PER_UPDATE)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, times)
    envs, (transitions, returns) = lax.scan(step, envs, (keys, world.draws(key, times)))
    return envs, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), transitions), returns


@jax.jit
def train(key: jax.Array, updates: jax.Array) -> jax.Array:
    """Act and learn; return the mean return of the greedy policy at the end."""
    for_network, for_steps, for_batches, for_score = jax.random.split(key, 4)
    network = init_network(for_network)

    def act_and_learn(number, state):
        envs, replay, learner = state
        network, key = learner.online, jax.random.fold_in(for_batches, number)
        envs, transitions, _ = collect(network, envs, for_steps, number, epsilon_at(number))
        replay = buffer.add(replay, transitions)
        batch = buffer.sample(replay, key, BATCH_SIZE)
        learner = lax.cond(number < WARMUP, lambda: learner, lambda: update(learner, batch)[0])
        target = optax.periodic_update(learner.online, learner.target, number, TARGET_EVERY)
        return envs, replay, learner._replace(target=target)

    def play(envs, number):
        envs, _, returns = collect(learner.online, envs, for_score, number, epsilon=0.0)
        return envs, returns

    learner = Learner(network, network, optimizer.init(network))
    start = world.reset(for_steps), buffer.init(), learner
    _, _, learner = lax.fori_loop(0, WARMUP + updates, act_and_learn, start)
    return jnp.nanmean(lax.scan(play, world.reset(for_score), jnp.arange(5_000))[1])


if __name__ == "__main__":
    seed = int(sys.argv[1]) if sys.argv[1:] else 0
    print(f"Mean return: {train(jax.random.key(seed), UPDATES):.1f}")
