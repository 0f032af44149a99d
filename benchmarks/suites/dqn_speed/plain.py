"""DQN written plainly as one compiled JAX program.

`in_jax` has the form of PureJaxRL: environments of gymnax, the ring and the update in the body of
one scan.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from loopless.bench.contest import Call, Contender
from suites.dqn_speed import slices
from suites.dqn_speed.peers import CompiledSlices
from suites.dqn_speed.slices import BUFFER, STARTS, Training
from suites.processes import jax, jnp, peer
from suites.q_learning.updates import ACTIONS, OBS


def dense(key: Any, sizes: tuple[int, ...], gain: float) -> list[tuple[Any, Any]]:
    """Return orthogonal weights and zero biases of each layer; `gain` is that of the last."""
    gains = [2**0.5] * (len(sizes) - 2) + [gain]
    keys = jax.random.split(key, len(gains))
    return [
        (
            jax.nn.initializers.orthogonal(scale)(key, shape, jnp.float32),
            jnp.zeros(shape[1], jnp.float32),
        )
        for key, shape, scale in zip(keys, pairwise(sizes), gains, strict=True)
    ]


def uniform(key: Any, sizes: tuple[int, ...]) -> list[tuple[Any, ...]]:
    """Return weights and biases of each layer, uniform in ±1/√inputs, as our DQN begins with.

    From orthogonal weights the values of this form grew without bound at the suite's settings, and
    CartPole was not learned.
    """
    keys = jax.random.split(key, 2 * (len(sizes) - 1)).reshape(-1, 2)
    return [
        tuple(
            jax.random.uniform(key, shape, jnp.float32, -(inputs**-0.5), inputs**-0.5)
            for key, shape in zip(pair, ((inputs, outputs), (outputs,)), strict=True)
        )
        for pair, (inputs, outputs) in zip(keys, pairwise(sizes), strict=True)
    ]


def forward(layers: list[tuple[Any, Any]], x: Any, activation: Any) -> Any:
    """Return the outputs of a network for a batch of inputs."""
    for weight, bias in layers[:-1]:
        x = activation(x @ weight + bias)
    weight, bias = layers[-1]
    return x @ weight + bias


class Environments:
    """gymnax's environments, several at once; they are reset when an episode ends."""

    def __init__(self, count: int) -> None:
        self.count, (self.env, self.settings) = count, peer("gymnax").make(slices.ENV)

    def reset(self, key: Any) -> Any:
        keys = jax.random.split(key, self.count)
        return jax.vmap(self.env.reset, (0, None))(keys, self.settings)

    def step(self, key: Any, state: Any, action: Any) -> Any:
        """Return observations, states, rewards and whether episodes ended."""
        keys = jax.random.split(key, self.count)
        step = jax.vmap(self.env.step, (0, 0, 0, None))
        return step(keys, state, action, self.settings)[:4]


class State(NamedTuple):
    """The carry of the scan."""

    online: Any
    target: Any
    moments: Any
    updates: Any
    ring: dict[str, Any]
    step: Any
    env: Any
    obs: Any
    key: Any


def adam(config: Any, **settings: Any) -> Any:
    """Return Adam that takes gradients clipped by their norm."""
    optax = peer("optax")
    clip = optax.clip_by_global_norm(config.max_gradient_norm)
    return optax.chain(clip, optax.adam(config.learning_rate, **settings))


def loss(online: Any, target: Any, batch: dict[str, Any], gamma: float) -> Any:
    """Return the mean Huber loss of a batch."""
    ahead = forward(target, batch["next_obs"], jax.nn.relu).max(1)
    targets = batch["reward"] + gamma * jnp.where(batch["terminated"], 0.0, ahead)
    q = forward(online, batch["obs"], jax.nn.relu)
    taken = jnp.take_along_axis(q, batch["action"][:, None], 1)[:, 0]
    return peer("optax").huber_loss(taken, targets).mean()


def learn(config: Any, online: Any, moments: Any, target: Any, batch: dict[str, Any]) -> Any:
    """Make one update; return the online network and Adam's moments."""
    gradient = jax.grad(loss)(online, target, batch, config.gamma)
    changes, moments = adam(config).update(gradient, moments)
    return peer("optax").apply_updates(online, changes), moments


def in_jax(case: Training) -> CompiledSlices:
    """Return a run in which each turn of a scan steps all environments and makes one update."""
    config, envs = case.config(), Environments(case.envs)
    optimizer = adam(config)

    def init(key: Any) -> State:
        key, for_network, for_envs = jax.random.split(key, 3)
        online = uniform(for_network, (OBS, *case.hidden, ACTIONS))
        obs, env = envs.reset(for_envs)
        ring = {
            "obs": jnp.zeros((BUFFER, OBS), jnp.float32),
            "action": jnp.zeros(BUFFER, jnp.int32),
            "reward": jnp.zeros(BUFFER, jnp.float32),
            "next_obs": jnp.zeros((BUFFER, OBS), jnp.float32),
            "terminated": jnp.zeros(BUFFER, bool),
        }
        zero = jnp.int32(0)
        return State(online, online, optimizer.init(online), zero, ring, zero, env, obs, key)

    def turn(state: State, _: None) -> tuple[State, None]:
        keys = jax.random.split(state.key, 5)
        greedy = forward(state.online, state.obs, jax.nn.relu).argmax(1)
        explores = jax.random.uniform(keys[1], (case.envs,)) < config.explore_end
        anything = jax.random.randint(keys[2], (case.envs,), 0, ACTIONS)
        action = jnp.where(explores, anything, greedy)
        obs, env, reward, done = envs.step(keys[3], state.env, action)
        rows = {"obs": state.obs, "action": action, "reward": reward}
        rows |= {"next_obs": obs, "terminated": done}
        at = state.step % BUFFER
        ring = {
            name: jax.lax.dynamic_update_slice_in_dim(x, rows[name].astype(x.dtype), at, 0)
            for name, x in state.ring.items()
        }
        step = state.step + case.envs
        drawn = jax.random.randint(keys[4], (case.batch,), 0, jnp.minimum(step, BUFFER))
        batch = {name: x[drawn] for name, x in ring.items()}
        learns = step > STARTS
        now = state.online, state.moments, state.target, batch
        online, moments = jax.lax.cond(learns, partial(learn, config), lambda *now: now[:2], *now)
        copies = step // config.target_every > state.step // config.target_every
        target = jax.tree.map(lambda a, b: jnp.where(copies, a, b), online, state.target)
        updates = state.updates + learns
        return State(online, target, moments, updates, ring, step, env, obs, keys[0]), None

    def advance(state: State) -> State:
        return jax.lax.scan(turn, state, None, case.steps // case.envs)[0]

    return CompiledSlices(jax.jit(init)(jax.random.key(0)), advance, lambda state: state.updates)


COMPILED = Contender(
    slices.PUREJAXRL, "jax", "peer", lambda case: Call(in_jax(case), int),
    note="gymnax, a ring of arrays, Optax; no wrappers, no logging",
)  # fmt: skip
