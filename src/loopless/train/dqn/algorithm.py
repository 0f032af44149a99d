"""Deep Q-learning: the network, one update, one event, a chunk of events; both modes at the end.

An event is `train_every` environment steps, then `updates` × `repeats` gradient steps, one after
the other, sampling included: one compiled call does many events (compiled mode) or one (hosted).
Random numbers are a function of (seed, event), so that neither chunks nor a resume change them.

Imports everything below `train`, and JAX. Tests: `tests/train/test_dqn_*.py`.
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
from loopless.nets.layers import as_vector, rebuilder
from loopless.nets.q_network import QNetwork
from loopless.replay import device
from loopless.runs.failures import BadConfig
from loopless.train.dqn.config import DQN
from loopless.train.engine.episodes import Episodes, one_each
from loopless.train.engine.optimizer import Optimizer, shortened


class Learner(NamedTuple):
    """Everything that learning changes, but the replay buffer."""

    weights: jax.Array  # the online network, one vector
    target: jax.Array  # the target network; empty if there is none
    moments: Any  # the optimiser's
    updates: jax.Array
    skipped: jax.Array  # updates left out, because they were not finite
    failed: jax.Array  # whether learning stopped at one of them

    def parted(self) -> tuple[dict[str, jax.Array], "Learner"]:
        """The arrays that act, by name, and the rest."""
        return {"online": self.weights}, self._replace(weights=None)

    def with_(self, acting: dict[str, jax.Array]) -> "Learner":
        """The whole again."""
        return self._replace(weights=acting["online"])


class Report(NamedTuple):
    """What an update tells; [updates, repeats] of an event."""

    loss: jax.Array
    td_error: jax.Array
    q_mean: jax.Array
    gradient_norm: jax.Array


@dataclass(frozen=True, eq=False)
class Algorithm:
    """The pure functions of one config on one kind of environment."""

    config: DQN
    obs: Box
    actions: int
    rebuild: Callable[[jax.Array], QNetwork]
    optimizer: Optimizer
    replay: Any  # the handle of a device buffer

    # --- networks and buffer -------------------------------------------------------------------

    def init(self, key: jax.Array) -> tuple[Learner, Any]:
        """A new learner and an empty buffer. The target network starts as a copy."""
        weights, _ = as_vector(_network(self.config, self.obs, self.actions, key))
        target = weights if self.config.target != "off" else weights[:0]
        zero = jnp.zeros((), jnp.int32)
        learner = Learner(
            weights, target + 0, self.optimizer.init(weights), zero, zero, jnp.zeros((), bool)
        )
        return learner, self.replay.init()

    def values(self, weights: jax.Array, obs: jax.Array) -> jax.Array:
        """Q(s, ·) [..., actions]."""
        return self.rebuild(weights)(obs)

    # --- one update ----------------------------------------------------------------------------

    def update(self, learner: Learner, batch: dict, next_q: jax.Array | None) -> tuple:
        """One gradient step on a batch; `next_q` are the target network's values, if there is one.

        An update that is not finite leaves everything as it was.
        """
        rows = (batch, next_q)
        if self.config.accumulate == 1:
            gradient, (loss, errors, q) = self._gradient(learner.weights, rows)
        else:
            parts = jax.tree.map(
                lambda x: x.reshape(self.config.accumulate, -1, *x.shape[1:]), rows
            )
            gradients, (losses, errors, qs) = lax.map(
                partial(self._gradient, learner.weights), parts
            )
            gradient, loss, q = gradients.mean(0), losses.mean(), qs.mean()
            errors = errors.reshape(-1)
        norm = jnp.sqrt(jnp.dot(gradient, gradient))
        finite = jnp.isfinite(loss) & jnp.isfinite(norm)
        failed = learner.failed | (~finite if self.config.on_nan == "stop" else False)
        sound = finite & ~failed
        gradient = shortened(gradient, norm, self.config.max_gradient_norm)
        rate = self.learning_rate(learner.updates)
        args = (learner.weights, learner.moments, gradient, rate, sound)
        weights, moments = self.optimizer.step(*args)
        onward = learner._replace(
            weights=weights,
            moments=moments,
            updates=learner.updates + sound,
            skipped=learner.skipped + ~finite,
            failed=failed,
        )
        # Nothing is known of a batch whose loss is not finite: its priorities stay as they are.
        priorities = jnp.where(finite, jnp.abs(errors) + self.config.priority_epsilon, jnp.nan)
        return onward, Report(loss, jnp.abs(errors).mean(), q, norm), priorities

    def _gradient(self, weights: jax.Array, rows: tuple) -> tuple:
        batch, next_q = rows
        targets = self._targets(weights, batch, next_q)

        def loss_of(weights):
            q = self.values(weights, batch["obs"])
            loss, errors = q_loss(
                q, batch["action"], targets, weights=batch.get("weights"),
                loss=self.config.loss, delta=self.config.huber_delta,
            )  # fmt: skip
            return loss, (loss, errors, (errors + targets).mean())

        return jax.grad(loss_of, has_aux=True)(weights)

    def _targets(self, weights: jax.Array, batch: dict, next_q: jax.Array | None) -> jax.Array:
        config, online = self.config, None
        if next_q is None or config.double:
            online = self.values(weights, batch["next_obs"])
        return q_targets(
            batch["reward"],
            batch["terminated"],
            online if next_q is None else next_q,
            gamma=batch.get("discount", config.gamma),
            next_q_online=online if config.double else None,
            next_actions=batch["next_action"] if config.sarsa else None,
        )

    # --- the updates of an event ---------------------------------------------------------------

    def learn(
        self, learner: Learner, replay: Any, key: jax.Array, beta: jax.Array
    ) -> tuple[Learner, Any, Report]:
        """`updates` × `repeats` gradient steps. Loop twin: `dqn_loop.Loop.learn`."""
        config = self.config
        if config.prioritized == "exact":
            keys = jax.random.split(key, config.draws)
            draw = partial(self._draw_and_learn, beta)
            (learner, replay), report = lax.scan(draw, (learner, replay), keys)
            return learner, replay, report
        batches = self.sample(replay, key, beta, config.draws)
        # The target network stands still during an event: one pass for all of its batches.
        rows = batches, self.target_values(learner, batches)
        learner, (report, priorities) = lax.scan(self._repeat, learner, rows)
        if config.prioritized == "block":
            indices = batches["indices"].reshape(-1)
            replay = self.replay.update_priorities(replay, indices, priorities.reshape(-1))
        return learner, replay, report

    def sample(self, replay: Any, key: jax.Array, beta: jax.Array, draws: int | None) -> dict:
        """The rows of one gradient step, or of so many."""
        config = self.config
        own = {"newest": config.newest} if config.prioritized == "off" else {"beta": beta}
        return self.replay.sample(replay, key, config.rows, batches=draws, **own)

    def target_values(self, learner: Learner, batch: dict) -> jax.Array | None:
        """What the target network says of the successors; None if there is no such network."""
        if self.config.target == "off":
            return None
        return self.values(learner.target, batch["next_obs"])

    def _draw_and_learn(self, beta: jax.Array, carry: tuple, key: jax.Array) -> tuple:
        learner, replay = carry
        batch = self.sample(replay, key, beta, None)
        rows = batch, self.target_values(learner, batch)
        learner, (report, priorities) = self._repeat(learner, rows)
        return (
            learner,
            self.replay.update_priorities(replay, batch["indices"], priorities),
        ), report

    def _repeat(self, learner: Learner, rows: tuple) -> tuple:
        """`repeats` gradient steps on one batch, and the priorities that the last one gives."""

        def once(carry, _):
            learner, report, priorities = self.update(carry[0], *rows)
            return (learner, priorities), report

        unknown = jnp.full(rows[0]["action"].shape, jnp.nan, learner.weights.dtype)
        (learner, priorities), report = lax.scan(
            once, (learner, unknown), None, self.config.repeats
        )
        return learner, (report, priorities)

    def follow(self, learner: Learner, step: jax.Array) -> Learner:
        """The target network after the event that ended with environment step number `step`."""
        config = self.config
        if config.target == "off":
            return learner
        due = step // config.target_every > (step - config.train_every) // config.target_every
        share = config.tau if config.target == "polyak" else 1.0
        moved = learner.target + share * (learner.weights - learner.target)
        moved = learner.weights if share == 1.0 else moved
        return learner._replace(target=jnp.where(due & ~learner.failed, moved, learner.target))

    # --- schedules -----------------------------------------------------------------------------

    def explore(self, step: Any, xp: Any = jnp) -> Any:
        """Epsilon, or the temperature, at environment step number `step`."""
        config = self.config
        share = xp.clip(step / max(1, config.explore_steps), 0, 1)
        return config.explore_start + share * (config.explore_end - config.explore_start)

    def learning_rate(self, update: Any) -> Any:
        """The step size of gradient step number `update`: a line to the end, if there is one."""
        config = self.config
        start, end = config.learning_rate, config.learning_rate_end
        if end is None:
            return start
        events = max(0, config.steps - config.learning_starts) // config.train_every
        total = max(1, events * config.draws * config.repeats)
        return start + jnp.clip(update / total, 0, 1) * (end - start)

    def beta(self, step: Any, xp: Any = jnp) -> Any:
        """The exponent of importance weights at environment step number `step`."""
        return self.config.beta + (1 - self.config.beta) * xp.clip(step / self.config.steps, 0, 1)

    def choose(self, q: jax.Array, noise: "Noise", level: jax.Array) -> jax.Array:
        """An action for each row of `q` [envs, actions]; each env throws its own coin."""
        if self.config.exploration == "boltzmann":
            return jnp.argmax(q / level + noise.gumbel, -1).astype(jnp.int32)
        greedy = jnp.argmax(q, -1).astype(jnp.int32)
        return jnp.where(noise.coin < level, noise.action, greedy)

    def noise(self, key: jax.Array, shape: tuple[int, ...]) -> "Noise":
        """What is random about actions [*shape]."""
        first, second = jax.random.split(key)
        if self.config.exploration == "boltzmann":
            return Noise(gumbel=jax.random.gumbel(first, (*shape, self.actions)))
        coin = jax.random.uniform(first, shape)
        return Noise(coin, jax.random.randint(second, shape, 0, self.actions, jnp.int32))


class Noise(NamedTuple):
    """What is random about an action; which of it depends on the kind of exploration."""

    coin: Any = None
    action: Any = None
    gumbel: Any = None


def build(config: DQN, obs: Box, actions: int) -> Algorithm:
    """The functions of `config` for observations `obs` and so many actions."""
    rebuild = rebuilder(partial(_network, config, obs, actions, jax.random.key(0)))
    fields = {
        "obs": (obs.shape, obs.dtype),
        "action": ((), "int32"),
        "reward": ((), "float32"),
        "next_obs": (obs.shape, obs.dtype),
        "terminated": ((), "bool"),
        "truncated": ((), "bool"),
    }
    if config.sarsa:
        fields["next_action"] = ((), "int32")
    options: dict[str, Any] = {"envs": config.envs}
    if config.n_step > 1:
        options |= {"n_step": config.n_step, "gamma": config.gamma}
    kind = device.RingBuffer
    if config.prioritized != "off":
        kind, options["alpha"] = device.PrioritizedBuffer, config.alpha
    try:
        replay = kind(config.buffer_size, fields, **options)
        jax.eval_shape(replay.init)  # which refuses what does not fit into memory
    except ValueError as error:
        raise BadConfig([str(error)]) from None
    return Algorithm(config, obs, actions, rebuild, _optimizer(config), replay)


def _network(config: DQN, obs: Box, actions: int, key: jax.Array) -> QNetwork:
    conv = config.net == "conv" or (config.net == "auto" and obs.is_image)
    if conv and not (len(obs.shape) == 3 and min(obs.shape[:2]) >= 2):
        raise BadConfig(
            [f"net=conv takes pictures [height, width, channels]; this env shows {obs.shape}."]
        )
    return QNetwork(
        obs.shape, actions, config.hidden, key,
        duelling=config.duelling, activation=config.activation, conv=conv,
    )  # fmt: skip


def _optimizer(config: DQN) -> Optimizer:
    if config.optimizer == "sgd":
        return Optimizer("sgd")
    return Optimizer(decay=config.weight_decay if config.optimizer == "adamw" else 0.0)


# --- hosted mode: rows come from the host, an event is one call ----------------------------------


def hosted_event(
    algorithm: Algorithm, learning: bool, carry: tuple, rows: dict, valid: Any, key, number
) -> tuple[tuple[Learner, Any], jax.Array]:
    """Add the rows of event `number`, and learn by `key`; the report's means as one array [4]."""
    learner, replay = carry
    replay = algorithm.replay.add(replay, rows, valid)
    if not learning:
        return (learner, replay), jnp.full(len(Report._fields), jnp.nan, jnp.float32)
    step = (number + 1) * algorithm.config.train_every
    learner, replay, report = algorithm.learn(learner, replay, key, algorithm.beta(step))
    return (algorithm.follow(learner, step), replay), jnp.stack([part.mean() for part in report])


def learning_keys(run_key: jax.Array, first: jax.Array, events: int) -> jax.Array:
    """The keys by which events learn, from number `first` on: those of compiled mode."""
    numbers = first + jnp.arange(events, dtype=jnp.int32)
    return jax.vmap(lambda n: jax.random.split(jax.random.fold_in(run_key, n))[1])(numbers)


def cut(algorithm: Algorithm, replay: Any) -> Any:
    """The buffer with its newest rows truncated: what comes next is no continuation of them."""
    plain = device.RingBuffer(
        algorithm.replay.capacity, dict(algorithm.replay.fields), envs=algorithm.config.envs
    )
    ring = getattr(replay, "ring", replay)
    back = jnp.minimum(ring.size, algorithm.config.envs)
    head = (ring.head - back) % plain.capacity
    slots = (head + jnp.arange(algorithm.config.envs)) % plain.capacity
    rows = {n: v for n, v in plain.gather(ring, slots).items() if n != "indices"}
    rows["truncated"] = jnp.ones_like(rows["truncated"])
    shorter = ring._replace(head=head, size=ring.size - back)
    marked = plain.add(shorter, rows)
    marked = jax.tree.map(partial(jnp.where, ring.size > 0), marked, ring)
    return replay._replace(ring=marked) if hasattr(replay, "ring") else marked


# --- compiled mode: environment and learner are one program ------------------------------------


class Carry(NamedTuple):
    """The state of a compiled run between two events."""

    learner: Learner
    replay: Any
    running: Any  # the environments
    obs: jax.Array  # to act on
    action: jax.Array  # SARSA: what was decided to do there


@dataclass(frozen=True, eq=False)
class CompiledRun:
    """The pure functions of a run in which `world` (see `envs.autoreset`) is compiled, too."""

    algorithm: Algorithm
    world: Any

    def init(self, key: jax.Array) -> Carry:
        """The state before the first event."""
        algorithm = self.algorithm
        for_weights, for_action, _ = jax.random.split(key, 3)
        learner, replay = algorithm.init(for_weights)
        running, obs = self.world.reset(key)
        noise = algorithm.noise(for_action, (algorithm.config.envs,))
        q = algorithm.values(learner.weights, obs)
        return Carry(
            learner, replay, running, obs, algorithm.choose(q, noise, algorithm.explore(0))
        )

    def chunk(
        self, carry: Carry, key: jax.Array, first: jax.Array, *, events: int, learning: bool
    ) -> tuple[Carry, tuple[Episodes, Report | None]]:
        """`events` events from number `first` on; `key` is the run's."""
        numbers = first + jnp.arange(events, dtype=jnp.int32)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)
        event = partial(self.event, key, learning)
        carry, (episodes, report) = lax.scan(event, carry, (numbers, keys))
        return carry, (episodes.together(), jax.tree.map(jnp.mean, report))

    def event(self, run_key: jax.Array, learning: bool, carry: Carry, x: tuple) -> tuple:
        """Steps of the environments, then the updates that are due."""
        number, key = x
        algorithm, config = self.algorithm, self.algorithm.config
        for_acting, for_learning = jax.random.split(key)
        carry, rows, episodes = self.collect(run_key, number, for_acting, carry)
        replay, learner = algorithm.replay.add(carry.replay, rows), carry.learner
        report = None
        if learning:
            step = (number + 1) * config.train_every
            args = (learner, replay, for_learning, algorithm.beta(step))
            learner, replay, report = algorithm.learn(*args)
            learner = algorithm.follow(learner, step)
        return carry._replace(learner=learner, replay=replay), (episodes, report)

    def collect(self, run_key: jax.Array, number: jax.Array, key: jax.Array, carry: Carry) -> tuple:
        """The environment steps of event `number`: rows for the buffer, and what ended."""
        algorithm, config = self.algorithm, self.algorithm.config
        steps = config.train_every // config.envs
        times = number * steps + jnp.arange(steps, dtype=jnp.int32)
        net = algorithm.rebuild(carry.learner.weights)

        def step(now, x):
            running, obs, action = now
            noise, draws, level = x
            if not config.sarsa:
                action = algorithm.choose(net(obs), noise, level)
            running, after = self.world.step(running, action, draws)
            row = {
                "obs": obs, "action": action, "reward": after.reward, "next_obs": after.next_obs,
                "terminated": after.terminated, "truncated": after.truncated,
            }  # fmt: skip
            if config.sarsa:
                # Decided for the true successor; done there, unless a new episode begins.
                row["next_action"] = algorithm.choose(net(after.next_obs), noise, level)
                anew = algorithm.choose(net(after.obs), noise, level)
                action = jnp.where(after.ended, anew, row["next_action"])
            ended = (after.ended, after.episode_return, after.episode_length)
            return (running, after.obs, action), (row, ended)

        xs = (
            algorithm.noise(key, (steps, config.envs)),
            self.world.draws(run_key, times),
            algorithm.explore(times * config.envs),
        )
        start = (carry.running, carry.obs, carry.action)
        (running, obs, action), (rows, ended) = lax.scan(step, start, xs)
        rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)
        return carry._replace(running=running, obs=obs, action=action), rows, Episodes.of(*ended)

    def judge(self, acting: dict[str, jax.Array], key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns and lengths of one episode in each environment, without exploration."""
        net = self.algorithm.rebuild(acting["online"])

        def act(memory, obs, mask):
            return memory, jnp.argmax(net(obs), -1).astype(jnp.int32)

        return one_each(self.world, act, (), key)
