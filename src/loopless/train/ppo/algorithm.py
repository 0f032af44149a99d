"""Proximal policy optimisation: the network, one update, one rollout's updates; compiled mode.

A rollout is `horizon` steps of every environment. What the policy that acted thought of it (the
log-probabilities, the values) is computed once, over the whole window; then come advantages, then
`epochs` × `minibatches` gradient steps: all of it is one program, and in compiled mode the
environments and many rollouts, too. Random numbers are a function of (seed, rollout), so that
neither chunks nor a resume change them.

Imports everything below `train`, and JAX. Tests: `tests/train/test_ppo_*.py`; the oracle is
`tests/train/plain_ppo.py`.
"""

from collections.abc import Callable
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
from loopless.kernels.scan import affine_scan
from loopless.nets.actor_critic import ActorCritic
from loopless.nets.distributions import Head, head_of
from loopless.nets.layers import as_vector, rebuilder
from loopless.runs.failures import BadConfig
from loopless.train.engine.episodes import Episodes, one_each
from loopless.train.engine.optimizer import Optimizer, shortened
from loopless.train.engine.statistics import LARGEST, Statistics, normalized
from loopless.train.ppo.config import PPO


class Learner(NamedTuple):
    """Everything that learning changes."""

    weights: Any  # the network, one vector
    moments: Any  # the optimiser's
    obs: Any  # statistics of the observations; None if they are not normalised
    returns: Any  # statistics of discounted returns, by which rewards are scaled; None likewise
    running: Any  # each env's discounted return so far
    updates: Any
    skipped: Any  # updates left out, because they were not finite
    stopped: Any  # updates left out, because the policy had moved far enough
    failed: Any  # whether learning stopped at one that was not finite

    @property
    def acting(self) -> dict[str, jax.Array]:
        """The arrays that act, by name."""
        return self.parted()[0]

    def parted(self) -> tuple[dict[str, jax.Array], "Learner"]:
        """The arrays that act, by name, and the rest."""
        acting, rest = {"online": self.weights}, self._replace(weights=None)
        if self.obs is None:
            return acting, rest
        acting |= {"obs_mean": self.obs.mean, "obs_variance": self.obs.variance}
        return acting, rest._replace(obs=self.obs._replace(mean=None, variance=None))

    def with_(self, acting: dict[str, jax.Array]) -> "Learner":
        """The whole again."""
        whole = self._replace(weights=acting["online"])
        if self.obs is None:
            return whole
        seen = self.obs._replace(mean=acting["obs_mean"], variance=acting["obs_variance"])
        return whole._replace(obs=seen)


class Rollout(NamedTuple):
    """T steps of N environments, [T, N, ...], and what is needed to think them over."""

    all_obs: Any  # [T + 1, N, ...]: what was acted on, and behind it what comes next
    next_obs: Any  # true successors
    action: Any  # raw, as the law of actions has them
    reward: Any
    terminated: Any
    truncated: Any
    starts: Any  # [T + 1, N]: whether an episode starts with this observation
    valid: Any = None  # false where a row is no experience; None if all are
    masks: Any = None  # [T, N, n]: which actions were legal; None if all were
    memory: Any = ()  # of the policy, before the first row


class Numbers(NamedTuple):
    """What changes from rollout to rollout by a schedule."""

    clip: Any
    entropy_coefficient: Any
    learning_rate: Any


class Report(NamedTuple):
    """What an update tells; and of the rollout, how much of the returns the values explain."""

    loss: jax.Array
    policy_loss: jax.Array
    value_loss: jax.Array
    entropy: jax.Array
    approximate_kl: jax.Array
    clip_fraction: jax.Array
    gradient_norm: jax.Array
    explained_variance: jax.Array


@dataclass(frozen=True, eq=False)
class Algorithm:
    """The pure functions of one config on one kind of environment.

    `cuts` is how many episodes a time limit may cut in a rollout; more cost further passes.
    """

    config: PPO
    obs: Box
    head: Head
    rebuild: Callable[[jax.Array], ActorCritic]
    optimizer: Optimizer
    cuts: int

    # --- the learner ---------------------------------------------------------------------------

    def init(self, key: jax.Array) -> Learner:
        config = self.config
        weights, _ = as_vector(_network(config, self.obs, self.head, key))
        zero = jnp.zeros((), jnp.int32)
        return Learner(
            weights,
            self.optimizer.init(weights),
            Statistics.none(self.obs.shape) if config.normalize_obs else None,
            Statistics.none() if config.normalize_rewards else None,
            jnp.zeros(config.envs, jnp.float32),
            zero, zero, zero, jnp.zeros((), bool),
        )  # fmt: skip

    def see(self, acting: dict[str, jax.Array], obs: jax.Array) -> jax.Array:
        """Observations as the network gets them."""
        if not self.config.normalize_obs:
            return obs
        variance = Statistics(jnp.zeros(()), acting["obs_mean"], acting["obs_variance"])
        return normalized(obs, acting["obs_mean"], variance.scale)

    def numbers(self, rollout: Any, xp: Any = jnp, dtype: Any = "float32") -> Numbers:
        """Of rollout number `rollout`; a schedule is a line over the run."""
        config = self.config
        share = xp.clip(xp.asarray(rollout, dtype) * config.rows / config.steps, 0, 1)

        def line(start, end):
            return xp.asarray(start if end is None else start + share * (end - start), dtype)

        return Numbers(
            line(config.clip, config.clip_end),
            line(config.entropy_coefficient, config.entropy_end),
            line(config.learning_rate, config.learning_rate_end),
        )

    # --- a rollout is thought over -------------------------------------------------------------

    def think(self, learner: Learner, acted: dict, rollout: Rollout) -> tuple[Learner, dict]:
        """Rows for the updates: [T, N, ...] of each; `acted` are the arrays that acted."""
        config, net = self.config, self.rebuild(acted["online"])
        all_obs = self.see(acted, rollout.all_obs)
        params, own, all_values, memories = net.unroll(rollout.memory, all_obs, rollout.starts)
        law = self.head(params[:-1], own, rollout.masks)
        values = all_values[:-1]
        learner, rewards = self._scaled(learner, rollout)
        advantages, returns = gae(
            rewards, values, self._next_values(net, acted, rollout, all_values, memories),
            rollout.terminated, rollout.truncated,
            gamma=config.gamma, lambda_=config.gae_lambda, valid=rollout.valid,
        )  # fmt: skip
        if config.normalize_advantages == "batch":
            advantages = normalize(advantages, rollout.valid)
        rows = {
            "obs": self.see(learner.acting, rollout.all_obs[:-1]), "action": rollout.action,
            "old_log_prob": law.log_prob(rollout.action), "old_value": values,
            "advantage": advantages, "return": returns,
        }  # fmt: skip
        rows |= {} if rollout.valid is None else {"valid": rollout.valid}
        rows |= {} if rollout.masks is None else {"mask": rollout.masks}
        if self.recurrent:
            rows["starts"] = rollout.starts[:-1]
        return learner, rows

    @property
    def recurrent(self) -> bool:
        return self.config.core != "none"

    def _next_values(self, net, acted, rollout: Rollout, all_values, memories) -> jax.Array:
        """V(s') of every row: the value of the row that follows, but where a time limit cut.

        Those rows have successors of their own, which are few: they are gathered, `cuts` at a
        time, until all are done. What a terminated row gets is not read.
        """
        cut = (rollout.truncated & ~rollout.terminated).reshape(-1)
        size, width = cut.size, min(self.cuts, cut.size)
        places = jnp.nonzero(cut, size=size + width, fill_value=size)[0]
        flat_obs = rollout.next_obs.reshape(size, *self.obs.shape)
        flat_memories = jax.tree.map(
            lambda x: x[: len(rollout.reward)].reshape(size, -1), memories if self.recurrent else ()
        )

        def some(state):
            at, values = state
            rows = lax.dynamic_slice(places, (at,), (width,))
            before = jax.tree.map(lambda x: x[rows], flat_memories)
            own = net.value_after(before, self.see(acted, flat_obs[rows]))
            return at + width, values.at[rows].set(own, mode="drop")

        start = jnp.zeros((), places.dtype), all_values[1:].reshape(-1)
        _, values = lax.while_loop(lambda state: state[0] < cut.sum(), some, start)
        return values.reshape(rollout.reward.shape)

    def _scaled(self, learner: Learner, rollout: Rollout) -> tuple[Learner, jax.Array]:
        """Rewards in units of the deviation of discounted returns, where that is asked for."""
        if not self.config.normalize_rewards:
            return learner, rollout.reward
        valid = rollout.valid
        reward = rollout.reward if valid is None else jnp.where(valid, rollout.reward, 0)
        decay = jnp.where(rollout.starts[:-1], 0, jnp.asarray(self.config.gamma, reward.dtype))
        returns = affine_scan(decay, reward, learner.running, reverse=False)
        statistics = learner.returns.merged(returns, valid)
        learner = learner._replace(running=returns[-1], returns=statistics)
        return learner, jnp.clip(reward * statistics.scale, -LARGEST, LARGEST)

    # --- one update ----------------------------------------------------------------------------

    def update(self, numbers: Numbers, carry: tuple, rows: dict) -> tuple:
        """One gradient step on a minibatch of rows.

        One that is not finite leaves everything as it was; so do all that come after `stop`.
        """
        config, (learner, stop) = self.config, carry
        gradient, (loss, parts) = jax.grad(self._loss, has_aux=True)(learner.weights, rows, numbers)
        norm = jnp.sqrt(jnp.dot(gradient, gradient))
        finite = jnp.isfinite(loss) & jnp.isfinite(norm)
        failed = learner.failed | (~finite if config.on_nan == "stop" else False)
        if config.target_kl is not None:
            stop |= parts.approximate_kl > config.target_kl
        sound = finite & ~failed & ~stop
        gradient = shortened(gradient, norm, config.max_gradient_norm)
        weights, moments = self.optimizer.step(
            learner.weights, learner.moments, gradient, numbers.learning_rate, sound
        )
        learner = learner._replace(
            weights=weights, moments=moments, updates=learner.updates + sound,
            skipped=learner.skipped + (~finite & ~stop), stopped=learner.stopped + stop,
            failed=failed,
        )  # fmt: skip
        moved = parts[3:] if config.algorithm == "ppo" else (jnp.zeros_like(loss),) * 2
        return (learner, stop), (loss, *parts[:3], *moved, norm)

    def _loss(self, weights: jax.Array, rows: dict, numbers: Numbers) -> tuple:
        config, net, valid = self.config, self.rebuild(weights), rows.get("valid")
        if self.recurrent:
            params, own, values, _ = net.unroll(rows["memory"], rows["obs"], rows["starts"])
        else:
            params, own, values = net(rows["obs"])
        law = self.head(params, own, rows.get("mask"))
        advantages = rows["advantage"]
        if config.normalize_advantages == "minibatch":
            advantages = normalize(advantages, valid)
        log_probs, entropies = law.log_prob(rows["action"]), law.entropy(rows["action"])
        common = {
            "value_coefficient": config.value_coefficient, "valid": valid,
            "entropy_coefficient": numbers.entropy_coefficient,
        }  # fmt: skip
        if config.algorithm == "a2c":
            loss, parts = policy_gradient_loss(
                log_probs, advantages, values, rows["return"], entropies, **common
            )
        else:
            loss, parts = ppo_loss(
                log_probs, rows["old_log_prob"], advantages, values, rows["return"], entropies,
                clip=numbers.clip, value_clip=config.value_clip, old_values=rows["old_value"],
                **common,
            )  # fmt: skip
        return loss, (loss, parts)

    # --- the updates of a rollout --------------------------------------------------------------

    def learn(
        self, learner: Learner, acted: dict, rollout: Rollout, key: jax.Array, number: jax.Array
    ) -> tuple[Learner, Report]:
        """All updates on a rollout; the means of what they tell. Failed before, nothing changes."""
        before = learner
        config, numbers = self.config, self.numbers(number, dtype=learner.weights.dtype)
        learner, rows = self.think(learner, acted, rollout)
        explained = _explained(rows["old_value"], rows["return"], rollout.valid)
        update, carry = partial(self.update, numbers), (learner, jnp.zeros((), bool))
        if config.algorithm == "a2c":
            rows |= {"memory": rollout.memory} if self.recurrent else {}
            carry, told = update(carry, rows)
        else:
            units = self._units(rows, rollout.memory)
            orders = shuffles(key, config.epochs, jax.tree.leaves(units)[0].shape[0])

            def epoch(carry, order):
                return lax.scan(update, carry, self._minibatches(units, order))

            carry, told = lax.scan(epoch, carry, orders)
        learner = carry[0]
        if config.normalize_obs:
            valid = rollout.valid
            learner = learner._replace(obs=learner.obs.merged(rollout.all_obs[:-1], valid))
        learner = jax.tree.map(partial(jnp.where, before.failed), before, learner)
        return learner, Report._make([*(part.mean() for part in told), explained])

    def _units(self, rows: dict, memory: Any) -> dict:
        """What is shuffled, [n, ...]: rows, or with a core whole columns of them."""
        if self.recurrent:
            units = {name: jnp.swapaxes(x, 0, 1) for name, x in rows.items()}
            return units | {"memory": memory}
        return {name: x.reshape(-1, *x.shape[2:]) for name, x in rows.items()}

    def _minibatches(self, units: dict, order: jax.Array) -> dict:
        """In this order, cut into minibatches [minibatches, ...]."""
        parts = self.config.minibatches
        cut = jax.tree.map(lambda x: x[order].reshape(parts, -1, *x.shape[1:]), units)
        if not self.recurrent:
            return cut
        return {name: x if name == "memory" else jnp.swapaxes(x, 1, 2) for name, x in cut.items()}


def shuffles(key: jax.Array, count: int, size: int) -> jax.Array:
    """`count` random orders of `size` things, [count, size].

    Random bits are sorted, with the things in the lowest ones if those leave 16 or more: XLA sorts
    one array four times faster than two, and of a pair less than 1 in 2¹⁶ has equal bits.
    """
    bits = jax.random.bits(key, (count, size), jnp.uint32)
    things = jnp.broadcast_to(jnp.arange(size, dtype=jnp.uint32), bits.shape)
    if size > 1 << 16:
        order = lax.sort((bits, things), dimension=1, num_keys=1, is_stable=False)[1]
    else:
        low = jnp.uint32((1 << (size - 1).bit_length()) - 1)
        order = lax.sort(bits & ~low | things, dimension=1, is_stable=False) & low
    return order.astype(jnp.int32)


def _explained(values: jax.Array, returns: jax.Array, valid: jax.Array | None) -> jax.Array:
    """1 − Var(G − V) / Var(G); 0 where the returns do not vary."""
    errors, returns = (x - x.mean(where=valid) for x in (returns - values, returns))
    spread = (returns**2).mean(where=valid)
    left = (errors**2).mean(where=valid)
    return jnp.where(spread > 0, 1 - left / jnp.where(spread > 0, spread, 1), 0)


def build(config: PPO, obs: Box, actions: Space, max_steps: int | None) -> Algorithm:
    """The functions of `config` for such observations, actions and time limit."""
    if config.normalize_obs and obs.dtype != "float32":
        raise BadConfig([f"normalize_obs is for numbers; this env shows {obs.dtype}."])
    try:
        head = head_of(actions, squash=config.squash, state_std=config.state_std)
    except ValueError as error:
        raise BadConfig([str(error)]) from None
    rebuild = rebuilder(partial(_network, config, obs, head, jax.random.key(0)))
    optimizer = Optimizer(epsilon=config.adam_epsilon)
    cuts = config.envs * -(-config.horizon // (max_steps or config.horizon))
    return Algorithm(config, obs, head, rebuild, optimizer, cuts)


def _network(config: PPO, obs: Box, head: Head, key: jax.Array) -> ActorCritic:
    conv = config.net == "conv" or (config.net == "auto" and obs.is_image)
    if conv and not (len(obs.shape) == 3 and min(obs.shape[:2]) >= 2):
        raise BadConfig(
            [f"net=conv takes pictures [height, width, channels]; this env shows {obs.shape}."]
        )
    return ActorCritic(
        obs.shape, head, config.hidden, key, activation=config.activation, conv=conv,
        core=config.core, core_width=config.core_width, shared=config.shared,
        log_std=config.log_std_start,
    )  # fmt: skip


# --- hosted mode: rows come from the host, a rollout is one call ---------------------------------


def hosted_rollout(
    algorithm: Algorithm, learner: Learner, acted: dict | None, rollout: Rollout, key, number
) -> tuple[Learner, jax.Array]:
    """Learn from rollout `number`; the report as one array.

    acted: the arrays that acted, if they were not the learner's.
    """
    _, for_learning = jax.random.split(jax.random.fold_in(key, number))
    acted = learner.acting if acted is None else acted
    learner, report = algorithm.learn(learner, acted, rollout, for_learning, number)
    return learner, jnp.stack(report)


# --- compiled mode: environment and learner are one program ------------------------------------


class Carry(NamedTuple):
    """The state of a compiled run between two rollouts."""

    learner: Learner
    running: Any  # the environments
    obs: jax.Array  # to act on
    memory: Any  # of the policy
    starts: jax.Array  # [envs]: whether an episode starts with `obs`


@dataclass(frozen=True, eq=False)
class CompiledRun:
    """The pure functions of a run in which `world` (see `envs.autoreset`) is compiled, too."""

    algorithm: Algorithm
    world: Any

    def init(self, key: jax.Array) -> Carry:
        """The state before the first rollout."""
        for_weights, _ = jax.random.split(key)
        learner = self.algorithm.init(for_weights)
        running, obs = self.world.reset(key)
        memory = self.algorithm.rebuild(learner.weights).memory(self.world.envs)
        return Carry(learner, running, obs, memory, jnp.ones(self.world.envs, bool))

    def chunk(
        self, carry: Carry, key: jax.Array, first: jax.Array, rollouts: jax.Array
    ) -> tuple[Carry, tuple[Episodes, Report]]:
        """So many rollouts from number `first` on; `key` is the run's.

        How many is an argument, so that the last chunk, a shorter one, is the same program.
        """

        def one(i, state):
            carry, episodes, total = state
            carry, (more, report) = self.rollout(carry, key, first + i)
            return carry, episodes.and_(more), jax.tree.map(jnp.add, total, report)

        zero = jnp.zeros((), carry.learner.weights.dtype)
        nothing = Report._make([zero] * len(Report._fields))
        start = carry, Episodes.none(), nothing
        carry, episodes, total = lax.fori_loop(0, rollouts, one, start)
        return carry, (episodes, jax.tree.map(lambda x: x / rollouts, total))

    def rollout(self, carry: Carry, run_key: jax.Array, number: jax.Array) -> tuple:
        """Steps of the environments, then the updates."""
        for_acting, for_learning = jax.random.split(jax.random.fold_in(run_key, number))
        acted = carry.learner.acting
        carry, rollout, episodes = self.collect(run_key, number, for_acting, carry)
        learner, report = self.algorithm.learn(carry.learner, acted, rollout, for_learning, number)
        return carry._replace(learner=learner), (episodes, report)

    def collect(self, run_key: jax.Array, number: jax.Array, key: jax.Array, carry: Carry) -> tuple:
        """The environment steps of rollout `number`, and the episodes that ended."""
        algorithm, world = self.algorithm, self.world
        steps, head = algorithm.config.horizon, algorithm.head
        acting = carry.learner.acting
        net = algorithm.rebuild(acting["online"])

        def step(now, x):
            running, obs, memory, starts = now
            noise, draws = x
            mask = world.mask(running)
            params, own, _, memory = net.step(memory, algorithm.see(acting, obs), starts)
            action = head(params, own, mask).sample(noise)
            running, after = world.step(running, head.to_env(action), draws)
            row = Rollout(
                obs, after.next_obs, action, after.reward, after.terminated, after.truncated,
                starts, masks=mask,
            )  # fmt: skip
            ended = (after.ended, after.episode_return, after.episode_length)
            return (running, after.obs, memory, after.ended), (row, ended)

        times = number * steps + jnp.arange(steps, dtype=jnp.int32)
        xs = head.noise(key, (steps, world.envs)), world.draws(run_key, times)
        start = carry.running, carry.obs, carry.memory, carry.starts
        (running, obs, memory, starts), (rows, ended) = lax.scan(step, start, xs)
        rollout = rows._replace(
            all_obs=jnp.concatenate((rows.all_obs, obs[None])),
            starts=jnp.concatenate((rows.starts, starts[None])),
            memory=carry.memory,
        )
        return Carry(carry.learner, running, obs, memory, starts), rollout, Episodes.of(*ended)

    def judge(self, acting: dict[str, jax.Array], key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns and lengths of one episode in each environment, by the likeliest actions."""
        algorithm, envs = self.algorithm, self.world.envs
        net = algorithm.rebuild(acting["online"])
        starts = jnp.zeros(envs, bool)

        def act(memory, obs, mask):
            params, own, _, memory = net.step(memory, algorithm.see(acting, obs), starts)
            return memory, algorithm.head.to_env(algorithm.head(params, own, mask).mode())

        return one_each(self.world, act, net.memory(envs), key)
