"""Proximal policy optimization, top to bottom: networks, advantages, loss, one update, a rollout.

A rollout is `horizon` steps of every environment, made by `compiled.py` or `hosted.py`. Values and
log-probabilities of the policy that acted are computed once; then come advantages, then `epochs` ×
`minibatches` gradient steps. Random numbers are a function of (seed, rollout), so that neither the
cut into chunks nor a resume changes them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from loopless.envs.spaces import Box, Space
from loopless.kernels.normalize import normalize
from loopless.kernels.policy_gradient import policy_gradient_loss, ppo_loss
from loopless.kernels.returns import gae
from loopless.nets.actor_critic import ActorCritic
from loopless.nets.distributions import Head, head_of
from loopless.nets.mlp import as_vector
from loopless.runs.failures import BadConfig
from loopless.train.engine import health, rollouts
from loopless.train.engine.networks import own_actor_critic, rebuilder_of, uses_convolutions
from loopless.train.engine.optimizer import Optimizer, clip_by_norm
from loopless.train.engine.rollouts import Rollout, Statistics
from loopless.train.engine.schedules import line, progress
from loopless.train.ppo.config import PPO


class PPOLearner(NamedTuple):
    """Everything that learning changes."""

    weights: Any  # the network, one vector
    moments: Any  # the optimizer's
    obs: Any  # statistics of the observations; None if they are not normalized
    returns: Any  # statistics of discounted returns, by which rewards are scaled; or None
    running: Any  # each env's discounted return so far
    updates: Any
    skipped: Any  # updates left out because they were not finite
    stopped: Any  # updates left out because the policy had moved far enough
    failed: Any  # whether learning stopped at one that was not finite

    def acting(self) -> dict[str, jax.Array]:
        """Return the arrays that the policy acts with, by name."""
        acting = {"online": self.weights}
        if self.obs is not None:
            acting |= {"obs_mean": self.obs.mean, "obs_variance": self.obs.variance}
        return acting

    def with_acting(self, acting: dict[str, Any]) -> "PPOLearner":
        """Return this learner with the acting arrays put back."""
        obs = self.obs
        if obs is not None:
            obs = obs._replace(mean=acting["obs_mean"], variance=acting["obs_variance"])
        return self._replace(weights=acting["online"], obs=obs)


class PPOReport(NamedTuple):
    """The metrics of an update, and how much of the rollout's returns the values explain."""

    loss: jax.Array
    policy_loss: jax.Array
    value_loss: jax.Array
    entropy: jax.Array
    approximate_kl: jax.Array
    clip_fraction: jax.Array
    gradient_norm: jax.Array
    explained_variance: jax.Array


@dataclass(frozen=True, eq=False)
class PPOAlgorithm:
    """The pure functions of one config on one kind of environment."""

    config: PPO
    obs: Box
    head: Head
    rebuild: Callable[[jax.Array], ActorCritic]
    truncations: int  # to expect in a rollout: `width` of `rollouts.next_values`

    @property
    def optimizer(self) -> Optimizer:
        return Optimizer(epsilon=self.config.adam_epsilon)

    # --- networks ------------------------------------------------------------------------------

    def init(self, key: jax.Array) -> PPOLearner:
        """Return a learner before the first update."""
        config, zero = self.config, jnp.zeros((), jnp.int32)
        weights, _ = as_vector(network(config, self.obs, self.head, key))
        return PPOLearner(
            weights, self.optimizer.init(weights),
            Statistics.empty(self.obs.shape) if config.normalize_obs else None,
            Statistics.empty() if config.normalize_rewards else None,
            jnp.zeros(config.envs, jnp.float32), zero, zero, zero, jnp.zeros((), bool),
        )  # fmt: skip

    def normalize_obs(self, acting: Mapping[str, jax.Array], obs: jax.Array) -> jax.Array:
        """Return observations as the network gets them: normalized, if so configured."""
        if not self.config.normalize_obs:
            return obs
        return rollouts.normalize_observations(obs, acting["obs_mean"], acting["obs_variance"])

    # --- advantages ----------------------------------------------------------------------------

    def prepare(self, learner: PPOLearner, acted: dict, rollout: Rollout) -> tuple:
        """Return the learner, and the steps' fields [T, N, ...]; `acted`: the arrays that acted."""
        config, starts, rewards, valid = self.config, rollout.starts, rollout.reward, rollout.valid
        net, all_obs = self.rebuild(acted["online"]), self.normalize_obs(acted, rollout.all_obs)
        params, log_std, all_values, memories = rollouts.unroll(net, rollout, all_obs)
        if config.normalize_rewards:
            rewards, returns, running = rollouts.scale_rewards(
                learner.returns, learner.running, rewards, starts[:-1], valid, config.gamma
            )
            learner = learner._replace(returns=returns, running=running)
        value_after = lambda memory, obs: net.value_after(memory, self.normalize_obs(acted, obs))  # noqa: E731
        memories = memories if self.config.is_recurrent else ()
        advantages, returns = gae(
            rewards, all_values[:-1],
            rollouts.next_values(rollout, all_values, value_after, memories, self.truncations),
            rollout.terminated, rollout.truncated,
            gamma=config.gamma, lambda_=config.gae_lambda, valid=valid,
        )  # fmt: skip
        if config.normalize_advantages == "batch":
            advantages = normalize(advantages, valid)
        steps = {
            "obs": self.normalize_obs(learner.acting(), rollout.all_obs[:-1]),
            "old_log_prob": self.head(params[:-1], log_std, rollout.masks).log_prob(rollout.action),
            "action": rollout.action, "old_value": all_values[:-1], "advantage": advantages,
            "return": returns, "valid": valid, "mask": rollout.masks,
            "starts": starts[:-1] if self.config.is_recurrent else None,
        }  # fmt: skip
        return learner, {name: x for name, x in steps.items() if x is not None}

    # --- loss and one update -------------------------------------------------------------------

    def loss(self, weights: jax.Array, batch: dict, numbers: dict) -> tuple:
        """Return the loss of a minibatch; and for `has_aux` the loss again, with its parts."""
        config, net, valid = self.config, self.rebuild(weights), batch.get("valid")
        if self.config.is_recurrent:
            params, log_std, values, _ = net.unroll(batch["memory"], batch["obs"], batch["starts"])
        else:
            params, log_std, values = net(batch["obs"])
        actions = self.head(params, log_std, batch.get("mask"))
        log_probs, entropies = actions.log_prob(batch["action"]), actions.entropy(batch["action"])
        advantages = batch["advantage"]
        if config.normalize_advantages == "minibatch":
            advantages = normalize(advantages, valid)
        common = {"value_coefficient": config.value_coefficient, "valid": valid}
        common |= {"entropy_coefficient": numbers["entropy_coefficient"]}
        if config.algorithm == "a2c":
            loss, parts = policy_gradient_loss(
                log_probs, advantages, values, batch["return"], entropies, **common
            )
        else:
            loss, parts = ppo_loss(
                log_probs, batch["old_log_prob"], advantages, values, batch["return"], entropies,
                clip=numbers["clip"], value_clip=config.value_clip,
                old_values=batch["old_value"], **common,
            )  # fmt: skip
        return loss, (loss, parts)

    def update(self, numbers: dict, state: tuple, batch: dict) -> tuple:
        """Make one gradient step on a minibatch; return the state and the metrics.

        state: the learner, and whether the policy has moved far enough (`target_kl`). If it has, or
        if a number is not finite, only the counters change.
        """
        config, (learner, stop) = self.config, state
        gradient, (loss, parts) = jax.grad(self.loss, has_aux=True)(learner.weights, batch, numbers)
        norm = jnp.sqrt(jnp.dot(gradient, gradient))
        if config.target_kl is not None:
            stop |= parts.approximate_kl > config.target_kl
        verdict = health.judge(learner, config.on_nan, loss, norm, left_out=stop)
        gradient = clip_by_norm(gradient, norm, config.max_gradient_norm)
        args = learner.weights, learner.moments, gradient, numbers["learning_rate"]
        weights, moments = self.optimizer.step(*args, verdict.accepted)
        counters = verdict.counters | {"stopped": learner.stopped + stop}
        learner = learner._replace(weights=weights, moments=moments, **counters)
        moved = parts[3:] if config.algorithm == "ppo" else (jnp.zeros_like(loss),) * 2
        return (learner, stop), jnp.stack((loss, *parts[:3], *moved, norm))

    # --- the updates of a rollout --------------------------------------------------------------

    def learn(
        self, learner: PPOLearner, acted: dict, rollout: Rollout, key: jax.Array, number: jax.Array
    ) -> tuple[PPOLearner, jax.Array]:
        """Make all updates of a rollout; return the learner, and a `PPOReport` as one array.

        The report has the means over the updates. A learner that had failed before stays as it was.
        """
        before, config = learner, self.config
        numbers = self.coefficients(number, dtype=learner.weights.dtype)
        learner, steps = self.prepare(learner, acted, rollout)
        update, state = partial(self.update, numbers), (learner, jnp.zeros((), bool))
        if config.algorithm == "a2c":
            steps |= {"memory": rollout.memory} if self.config.is_recurrent else {}
            state, metrics = update(state, steps)
        else:
            units = rollouts.flatten_steps(steps, rollout.memory)
            orders = rollouts.shuffles(key, config.epochs, len(units["obs"]))

            def epoch(state, order):
                batches = rollouts.cut_minibatches(units, order, config.minibatches)
                return lax.scan(update, state, batches)

            state, metrics = lax.scan(epoch, state, orders)
        learner, valid = state[0], rollout.valid
        if config.normalize_obs:
            learner = learner._replace(obs=learner.obs.merge(rollout.all_obs[:-1], valid))
        explained = rollouts.explained_variance(steps["old_value"], steps["return"], valid)
        learner = jax.tree.map(partial(jnp.where, before.failed), before, learner)
        return learner, jnp.append(metrics.reshape(-1, metrics.shape[-1]).mean(0), explained)

    def coefficients(self, rollout: Any, xp: Any = jnp, dtype: Any = "float32") -> dict[str, Any]:
        """Return the coefficients at rollout `rollout`, which change linearly over the run."""
        config = self.config
        share = progress(xp.asarray(rollout, dtype) * config.rollout_size, config.steps, xp)
        lines: dict[str, tuple[float, float | None]] = {
            "clip": (config.clip, config.clip_end),
            "entropy_coefficient": (config.entropy_coefficient, config.entropy_end),
            "learning_rate": (config.learning_rate, config.learning_rate_end),
        }
        return {name: xp.asarray(line(*ends, share), dtype) for name, ends in lines.items()}


def build(config: PPO, obs: Box, actions: Space, max_steps: int | None) -> PPOAlgorithm:
    """Return the functions of `config` for such observations, actions and time limit."""
    if config.normalize_obs and obs.dtype != "float32":
        raise BadConfig([f"normalize_obs needs float32 observations; this env's are {obs.dtype}."])
    try:
        head = head_of(actions, squash=config.squash, state_std=config.state_std)
    except ValueError as error:
        raise BadConfig([str(error)]) from None
    rebuild = rebuilder_of(config, partial(network, config, obs, head, jax.random.key(0)))
    truncations = config.envs * -(-config.horizon // (max_steps or config.horizon))
    return PPOAlgorithm(config, obs, head, rebuild, truncations)


def network(config: PPO, obs: Box, head: Head, key: jax.Array) -> Any:
    """Return the policy and value network of `config` with its first weights."""
    return own_actor_critic(config, obs, head, key) or ActorCritic(
        obs.shape, head, config.hidden, key, activation=config.activation,
        conv=uses_convolutions(config.net, obs.shape, obs.is_image), core=config.core,
        core_width=config.core_width, shared=config.shared, log_std=config.log_std_start,
    )  # fmt: skip
