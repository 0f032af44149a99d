"""PPO written plainly, twice: in eager PyTorch, and as one compiled JAX program.

`Loop` has the form of single-file implementations: environments in turn and a loop over time.
`in_jax` has the form of PureJaxRL: a scan over rollouts of gymnax's environments, with all updates
in its body. Neither has wrappers or logging, and both treat truncation as termination, as most of
their kind do.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from loopless.bench.contest import Call, Contender
from suites.dqn_speed.peers import CompiledSlices
from suites.dqn_speed.plain import Environments, adam, dense, forward
from suites.dqn_speed.slices import EAGER, ENV, PUREJAXRL, PPOTraining
from suites.processes import jax, jnp, peer, torch
from suites.q_learning.updates import ACTIONS, OBS


class Loop:
    """A run; a call makes the rollouts of a slice, and returns how many gradient steps it made."""

    def __init__(self, case: PPOTraining) -> None:
        import gymnasium
        from gymnasium.vector import AutoresetMode, SyncVectorEnv

        self.case, self.config = case, case.config()
        self.envs = SyncVectorEnv(
            [lambda: gymnasium.make(ENV)] * case.envs, autoreset_mode=AutoresetMode.SAME_STEP
        )
        self.actor, self.critic = network(case.hidden, ACTIONS, 0.01), network(case.hidden, 1, 1.0)
        self.parameters = [*self.actor.parameters(), *self.critic.parameters()]
        self.optimizer = torch.optim.Adam(
            self.parameters, lr=self.config.learning_rate, eps=self.config.adam_epsilon
        )
        shape = (case.horizon, case.envs)
        self.obs = torch.zeros((*shape, OBS))
        self.actions = torch.zeros(shape, dtype=torch.int64)
        self.log_probs, self.rewards, self.values, self.starts = torch.zeros((4, *shape))
        self.next_obs = torch.from_numpy(self.envs.reset(seed=0)[0])
        self.next_starts = torch.zeros(case.envs)

    def __call__(self) -> int:
        made = 0
        for _ in range(self.case.steps // self.case.rows):
            self.collect()
            made += self.learn()
        return made

    def collect(self) -> None:
        for t in range(self.case.horizon):
            self.obs[t], self.starts[t] = self.next_obs, self.next_starts
            with torch.no_grad():
                law = torch.distributions.Categorical(logits=self.actor(self.next_obs))
                action = law.sample()
                self.actions[t], self.log_probs[t] = action, law.log_prob(action)
                self.values[t] = self.critic(self.next_obs).flatten()
            obs, reward, terminated, truncated, _ = self.envs.step(action.numpy())
            self.rewards[t] = torch.from_numpy(reward)
            self.next_obs = torch.from_numpy(obs)
            self.next_starts = torch.from_numpy(np.float32(terminated | truncated))

    def advantages(self) -> Any:
        """Return generalized advantage estimates, computed from the last step to the first."""
        gamma, decay = self.config.gamma, self.config.gamma * self.config.gae_lambda
        advantages = torch.zeros_like(self.rewards)
        with torch.no_grad():
            next_value = self.critic(self.next_obs).flatten()
        goes_on, last = 1 - self.next_starts, torch.zeros(self.case.envs)
        for t in reversed(range(self.case.horizon)):
            delta = self.rewards[t] + gamma * next_value * goes_on - self.values[t]
            advantages[t] = last = delta + decay * goes_on * last
            next_value, goes_on = self.values[t], 1 - self.starts[t]
        return advantages

    def learn(self) -> int:
        """Make the updates on a rollout, and return how many there were."""
        advantages = self.advantages()
        rows = {
            "obs": self.obs, "action": self.actions, "log_prob": self.log_probs,
            "advantage": advantages, "return": advantages + self.values,
        }  # fmt: skip
        rows = {name: x.flatten(0, 1) for name, x in rows.items()}
        made, size = 0, self.case.rows // self.case.minibatches
        for _ in range(self.case.epochs):
            for part in torch.randperm(self.case.rows).split(size):
                self.update({name: x[part] for name, x in rows.items()})
                made += 1
        return made

    def update(self, rows: dict[str, Any]) -> None:
        self.optimizer.zero_grad()
        self.loss(rows).backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, self.config.max_gradient_norm)
        self.optimizer.step()

    def loss(self, rows: dict[str, Any]) -> Any:
        """Return the sum of clipped surrogate, value loss and entropy bonus."""
        config, advantage = self.config, rows["advantage"]
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        law = torch.distributions.Categorical(logits=self.actor(rows["obs"]))
        ratio = (law.log_prob(rows["action"]) - rows["log_prob"]).exp()
        clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
        policy_loss = -torch.min(ratio * advantage, clipped * advantage).mean()
        value_loss = 0.5 * (self.critic(rows["obs"]).flatten() - rows["return"]).square().mean()
        bonus = config.entropy_coefficient * law.entropy().mean()
        return policy_loss + config.value_coefficient * value_loss - bonus


def network(hidden: tuple[int, ...], outputs: int, gain: float) -> Any:
    """Return a `torch.nn.Sequential` with orthogonal weights and tanh between its layers."""
    parts: list[Any] = []
    sizes = (OBS, *hidden, outputs)
    for inputs, width in pairwise(sizes):
        linear = torch.nn.Linear(inputs, width)
        torch.nn.init.orthogonal_(linear.weight, 2**0.5 if len(parts) < 2 * len(hidden) else gain)
        torch.nn.init.zeros_(linear.bias)
        parts += [linear, torch.nn.Tanh()]
    return torch.nn.Sequential(*parts[:-1])


def _loop(case: PPOTraining) -> Call:
    torch.manual_seed(0)
    return Call(Loop(case), int)


CONTENDER = Contender(
    EAGER, "torch", "peer", _loop, note="SyncVectorEnv, a loop over time, no logging, no wrappers"
)


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
