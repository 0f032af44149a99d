"""Deep Q-learning, read from top to bottom: networks, loss, one update, the updates of an event.

An event is `train_every` environment steps, made by `compiled.py` or `hosted.py`, then `updates` ×
`repeats` gradient steps; `loop.py` makes the same steps in a plain loop. Random numbers are a
function of (seed, event), so that neither the cut into chunks nor a resume changes them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from loopless.envs.spaces import Box
from loopless.kernels.q_learning import q_loss, q_targets
from loopless.nets.mlp import as_vector
from loopless.nets.q_network import QNetwork
from loopless.replay import device
from loopless.runs.failures import BadConfig
from loopless.train.dqn.config import DQN
from loopless.train.engine import health
from loopless.train.engine.networks import own_q_network, rebuilder_of, uses_convolutions
from loopless.train.engine.optimizer import Optimizer, clip_by_norm
from loopless.train.engine.schedules import line, progress


class DQNLearner(NamedTuple):
    """Everything that learning changes, except for the replay buffer."""

    weights: jax.Array  # the online network, one vector
    target: jax.Array  # the target network; empty if there is none
    moments: Any  # the optimizer's
    updates: jax.Array
    skipped: jax.Array  # updates left out because they were not finite
    failed: jax.Array  # whether learning stopped at one of them

    def acting(self) -> dict[str, jax.Array]:
        """Return the arrays that the policy acts with, by name."""
        return {"online": self.weights}

    def with_acting(self, acting: dict[str, Any]) -> "DQNLearner":
        """Return this learner with the acting weights put back."""
        return self._replace(weights=acting["online"])


class DQNReport(NamedTuple):
    """The metrics of an update, or of all updates of an event, [draws, repeats]."""

    loss: jax.Array
    td_error: jax.Array
    q_mean: jax.Array
    gradient_norm: jax.Array


@dataclass(frozen=True, eq=False)
class DQNAlgorithm:
    """The pure functions of one config on one kind of environment."""

    config: DQN
    obs: Box
    actions: int
    rebuild: Callable[[jax.Array], QNetwork]
    replay: Any  # the handle of a device buffer

    @property
    def optimizer(self) -> Optimizer:
        return Optimizer(self.config.optimizer, decay=self.config.weight_decay)

    # --- networks ------------------------------------------------------------------------------

    def init(self, key: jax.Array) -> tuple[DQNLearner, Any]:
        """Return a new learner and an empty buffer. The target network starts as a copy."""
        weights, _ = as_vector(network(self.config, self.obs, self.actions, key))
        target = weights if self.config.target != "off" else weights[:0]
        zero, moments = jnp.zeros((), jnp.int32), self.optimizer.init(weights)
        learner = DQNLearner(weights, target + 0, moments, zero, zero, jnp.zeros((), bool))
        return learner, self.replay.init()

    def values(self, weights: jax.Array, obs: jax.Array) -> jax.Array:
        """Return Q(s, ·), [..., actions]."""
        return self.rebuild(weights)(obs)

    def target_values(self, learner: DQNLearner, batch: dict) -> jax.Array | None:
        """Return the target network's Q(s', ·); None if there is no target network."""
        has_target = self.config.target != "off"
        return self.values(learner.target, batch["next_obs"]) if has_target else None

    # --- loss ----------------------------------------------------------------------------------

    def targets(self, weights: jax.Array, batch: dict, next_q: jax.Array | None) -> jax.Array:
        """Return r + γ Q(s', a') of each transition; `next_q` is the target network's Q(s', ·)."""
        config, online = self.config, None
        if next_q is None or config.double:
            online = self.values(weights, batch["next_obs"])
        return q_targets(
            batch["reward"], batch["terminated"], online if next_q is None else next_q,
            gamma=batch.get("discount", config.gamma),
            next_q_online=online if config.double else None,
            next_actions=batch["next_action"] if config.sarsa else None,
        )  # fmt: skip

    def gradient(self, weights: jax.Array, batch: dict, next_q: jax.Array | None) -> tuple:
        """Return the gradient, and a tuple of the loss, the TD errors and the mean of Q(s, a)."""
        targets = self.targets(weights, batch, next_q)

        def loss_of(weights):
            q = self.values(weights, batch["obs"])
            loss, errors = q_loss(
                q, batch["action"], targets, weights=batch.get("weights"),
                loss=self.config.loss, delta=self.config.huber_delta,
            )  # fmt: skip
            return loss, (loss, errors, (errors + targets).mean())

        return jax.grad(loss_of, has_aux=True)(weights)

    # --- one update ----------------------------------------------------------------------------

    def update(self, learner: DQNLearner, batch: dict, next_q: jax.Array | None) -> tuple:
        """Make one gradient step; return the learner, a report, and the batch's new priorities.

        An update that is not finite changes nothing but the counters.
        """
        config, gradient_of = self.config, partial(self.gradient, learner.weights)
        if config.accumulate == 1:
            gradient, (loss, errors, q) = gradient_of(batch, next_q)
        else:
            cut = lambda x: x.reshape(config.accumulate, -1, *x.shape[1:])  # noqa: E731
            parts = jax.tree.map(cut, (batch, next_q))
            gradients, (losses, errors, q) = lax.map(lambda part: gradient_of(*part), parts)
            gradient, loss, q = gradients.mean(0), losses.mean(), q.mean()
            errors = errors.reshape(-1)
        norm = jnp.sqrt(jnp.dot(gradient, gradient))
        verdict = health.judge(learner, config.on_nan, loss, norm)
        gradient = clip_by_norm(gradient, norm, config.max_gradient_norm)
        args = learner.weights, learner.moments, gradient, self.learning_rate(learner.updates)
        weights, moments = self.optimizer.step(*args, verdict.accepted)
        learner = learner._replace(weights=weights, moments=moments, **verdict.counters)
        # The errors of a loss that is not finite mean nothing: NaN leaves the old priorities.
        errors = jnp.abs(errors)
        priorities = jnp.where(verdict.finite, errors + config.priority_epsilon, jnp.nan)
        return learner, DQNReport(loss, errors.mean(), q, norm), priorities

    # --- the updates of an event ---------------------------------------------------------------

    def learn(self, learner: DQNLearner, replay: Any, key: jax.Array, beta: jax.Array) -> tuple:
        """Make the updates of an event; return learner, buffer, report. Loop twin: `loop.Loop`."""
        config = self.config
        if config.prioritized == "exact":
            keys = jax.random.split(key, config.draws)
            draw = partial(self._draw_and_learn, beta)
            state, report = lax.scan(draw, (learner, replay), keys)
            return *state, report
        batches = self.sample(replay, key, beta, config.draws)
        # The target network stands still during an event: one pass for all of its batches.
        next_q = self.target_values(learner, batches)
        learner, (report, priorities) = lax.scan(self._repeat, learner, (batches, next_q))
        if config.prioritized == "block":
            new = batches["indices"].reshape(-1), priorities.reshape(-1)
            replay = self.replay.update_priorities(replay, *new, alpha=config.alpha)
        return learner, replay, report

    def sample(self, replay: Any, key: jax.Array, beta: jax.Array, draws: int | None) -> dict:
        """Draw the transitions of `draws` gradient steps; of a single one if `draws` is None."""
        config = self.config
        kind: dict[str, Any] = {"gamma": config.gamma}
        kind |= {"newest": config.newest} if config.prioritized == "off" else {"beta": beta}
        return self.replay.sample(replay, key, config.update_size, draws, **kind)

    def _draw_and_learn(self, beta: jax.Array, state: tuple, key: jax.Array) -> tuple:
        learner, replay = state
        batch = self.sample(replay, key, beta, None)
        next_q = self.target_values(learner, batch)
        learner, (report, priorities) = self._repeat(learner, (batch, next_q))
        new = batch["indices"], priorities
        replay = self.replay.update_priorities(replay, *new, alpha=self.config.alpha)
        return (learner, replay), report

    def _repeat(self, learner: DQNLearner, drawn: tuple) -> tuple:
        """Make `repeats` updates on (batch, next_q); return the priorities of the last one."""

        def once(state, _):
            learner, report, priorities = self.update(state[0], *drawn)
            return (learner, priorities), report

        start = learner, jnp.full(drawn[0]["action"].shape, jnp.nan, learner.weights.dtype)
        (learner, priorities), report = lax.scan(once, start, None, self.config.repeats)
        return learner, (report, priorities)

    def update_target(self, learner: DQNLearner, step: jax.Array) -> DQNLearner:
        """Move the target network, after the event that ended with environment step `step`."""
        config = self.config
        if config.target == "off":
            return learner
        due = step // config.target_every > (step - config.train_every) // config.target_every
        moved = learner.weights
        if config.target == "polyak":
            moved = learner.target + config.tau * (moved - learner.target)
        return learner._replace(target=jnp.where(due & ~learner.failed, moved, learner.target))

    # --- schedules -----------------------------------------------------------------------------

    def explore(self, step: Any, xp: Any = jnp) -> Any:
        """Return epsilon, or the temperature, at environment step number `step`."""
        start, end = self.config.explore_start, self.config.explore_end
        return line(start, end, progress(step, xp.maximum(1, self.config.explore_steps), xp))

    def learning_rate(self, update: Any) -> Any:
        """Return the step size of gradient step number `update`."""
        config = self.config
        events = jnp.maximum(0, config.steps - config.learning_starts) // config.train_every
        share = progress(update / (config.draws * config.repeats), jnp.maximum(1, events))
        return line(config.learning_rate, config.learning_rate_end, share)

    def beta(self, step: Any, xp: Any = jnp) -> Any:
        """Return the exponent of importance weights at environment step number `step`."""
        return line(self.config.beta, 1, progress(step, self.config.steps, xp))


def build(config: DQN, obs: Box, actions: int) -> DQNAlgorithm:
    """Return the functions of `config` for such observations and so many actions."""
    rebuild = rebuilder_of(config, partial(network, config, obs, actions, jax.random.key(0)))
    return DQNAlgorithm(config, obs, actions, rebuild, replay_buffer(config, obs))


def network(config: DQN, obs: Box, actions: int, key: jax.Array) -> Any:
    """Return the Q-network of `config` with its first weights."""
    return own_q_network(config, obs, actions, key) or QNetwork(
        obs.shape, actions, config.hidden, key, duelling=config.duelling,
        activation=config.activation, conv=uses_convolutions(config.net, obs.shape, obs.is_image),
    )  # fmt: skip


def replay_buffer(config: DQN, obs: Box) -> Any:
    """Return the device buffer of `config`; raise BadConfig if it does not fit into memory."""
    fields = {
        "obs": (obs.shape, obs.dtype), "action": ((), "int32"), "reward": ((), "float32"),
        "next_obs": (obs.shape, obs.dtype), "terminated": ((), "bool"), "truncated": ((), "bool"),
    }  # fmt: skip
    fields |= {"next_action": ((), "int32")} if config.sarsa else {}
    kind = device.RingBuffer if config.prioritized == "off" else device.PrioritizedBuffer
    try:
        replay = kind(config.buffer_size, fields, config.n_step, config.gamma, config.envs)
        replay = device.FrameBuffer(replay, obs.stack) if config.keeps_once(obs) else replay
        jax.eval_shape(replay.init)  # which checks the memory
    except ValueError as error:
        raise BadConfig([str(error)]) from None
    return replay
