"""Laplacian representations: one step of ALLO or GGDO, and many of them as one program.

A step draws pairs and further states from recorded trajectories, encodes them, and moves the
encoder down and the multipliers up. Of finitely many states each is encoded once and the batches
gather its features: the same numbers, for fewer operations. Random numbers are a function of
(seed, step), so that neither chunks nor a resume change them.

Imports everything below `train`, and JAX. What is drawn from is in `allo_data`, what judges the
features in `allo_scores`. Tests: `tests/train/test_allo_*.py`; the oracle is
`tests/train/plain_allo.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from loopless.kernels.laplacian.duals import (
    Multipliers,
    allo_updates,
    eigenvalues,
    first_multipliers,
)
from loopless.kernels.laplacian.losses import allo_loss, ggdo_loss
from loopless.nets.conv import PatchConvolutions
from loopless.nets.layers import as_vector, orthogonal, rebuilder
from loopless.nets.q_network import QNetwork
from loopless.replay.device import random_words
from loopless.train.allo.config import ALLO
from loopless.train.allo.data import Data, Sampler
from loopless.train.engine import health, schedules
from loopless.train.engine.optimizer import Optimizer
from loopless.train.engine.options import uses_convolutions

AVERAGED = 1_000  # steps that errors are averaged over
SHUFFLE = 2**31 - 1  # the number of the key of a shuffle, which no step has


class Learner(NamedTuple):
    """Everything that learning changes."""

    weights: Any  # the encoder, one vector
    moments: Any  # Adam's
    multipliers: Multipliers
    errors: Any  # [d, d]: the constraints' errors, averaged; over all states, if all are encoded
    energies: Any  # [d]: half the squared differences of pairs, averaged
    updates: Any
    skipped: Any  # updates left out, because they were not finite
    failed: Any  # whether learning stopped at one that was not finite


class Report(NamedTuple):
    """What an update tells."""

    graph_loss: jax.Array
    gradient_norm: jax.Array


class Drawn(NamedTuple):
    """The states that a step learns from, as rows of the table of all; [batch_size] each."""

    states: jax.Array
    later: jax.Array  # those some steps after `states`
    others: jax.Array  # drawn apart from both
    constrained: jax.Array | None = None  # drawn apart from all; if None, `states` take their place


@dataclass(frozen=True, eq=False)
class Algorithm:
    """The pure functions of one config on one kind of observations."""

    config: ALLO
    sampler: Sampler
    network: Callable[[jax.Array], QNetwork]
    rebuild: Callable[[jax.Array], QNetwork]
    encodes_all: bool
    dtype: str
    optimizer: Optimizer

    def init(self, key: jax.Array, barrier: jax.Array) -> Learner:
        """A learner before the first step."""
        config, d = self.config, self.config.components
        weights = as_vector(self.network(key))[0].astype(self.dtype)
        multipliers = first_multipliers(d, dual=config.dual_start, dtype=self.dtype)
        multipliers = multipliers._replace(barrier=barrier.astype(self.dtype))
        zero = jnp.zeros((), jnp.int32)
        return Learner(
            weights,
            self.optimizer.init(weights),
            jax.tree.map(jnp.asarray, multipliers),
            jnp.zeros((d, d), self.dtype),
            jnp.zeros(d, self.dtype),
            zero, zero, jnp.zeros((), bool),
        )  # fmt: skip

    # --- one step ------------------------------------------------------------------------------

    def draw(self, data: Data, key: jax.Array) -> Drawn:
        """Pairs, and one or two further batches of states."""
        config, sampler = self.config, self.sampler
        apart = config.objective == "ggdo" or config.scale == "full"
        words = random_words(key, (7 if apart else 5, config.batch_size))
        states, later = sampler.pairs(data, words[:, :3])
        others = sampler.starts(data, words[:, 3:5])
        return Drawn(states, later, others, sampler.starts(data, words[:, 5:]) if apart else None)

    def update(self, learner: Learner, table, drawn: Drawn, step, law=None) -> tuple:
        """One gradient step; one that is not finite leaves everything as it was.

        law [states]: how often each is a start; with it, errors over all states are averaged.
        """
        config = self.config
        gradient, (loss, parts, energies, all_features) = jax.grad(self._loss, has_aux=True)(
            learner.weights, learner.multipliers, table, drawn
        )
        norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in jax.tree.leaves(gradient)))
        errors = self._errors(parts, all_features, law)
        # All that reads the weights comes before this, so that the new ones can take their place.
        verdict = health.judge(learner, config.on_nan, loss, norm, errors)
        weights, moments = self.optimizer.step(
            learner.weights, learner.moments, gradient, self.rate(step), verdict.accepted
        )
        multipliers = learner.multipliers
        if config.objective == "allo":
            multipliers = allo_updates(
                multipliers, parts, scale=config.scale, dual_rate=config.dual_rate,
                barrier_rate=config.barrier_rate, proportional_gain=config.proportional_gain,
                integral_gain=config.integral_gain, integral_decay=config.integral_decay,
                dual_limit=config.dual_limit, barrier_limit=config.barrier_limit,
            )  # fmt: skip
        errors = self._averaged(learner, learner.errors, errors)
        energies = self._averaged(learner, learner.energies, energies)
        multipliers, errors, energies = jax.tree.map(
            partial(jnp.where, verdict.accepted),
            (multipliers, errors, energies),
            (learner.multipliers, learner.errors, learner.energies),
        )
        learner = Learner(weights, moments, multipliers, errors, energies, **verdict.counters)
        return learner, Report(parts.graph, norm)

    def _loss(self, weights: Any, multipliers: Multipliers, table, drawn: Drawn) -> tuple:
        config = self.config
        encode = weights if isinstance(weights, QNetwork) else self.rebuild(weights)
        all_features = None
        if self.encodes_all:
            all_features = encode(table)
            encoded = all_features.__getitem__
        else:
            encoded = lambda rows: encode(table[rows])  # noqa: E731
        now, later, others = map(encoded, drawn[:3])
        constrained = None if drawn.constrained is None else encoded(drawn.constrained)
        if config.objective == "ggdo":
            loss, parts = ggdo_loss(
                now, later, others, barrier=multipliers.barrier, constraint_features=constrained
            )
        else:
            loss, parts = allo_loss(
                now, later, others, multipliers.duals, multipliers.barrier, scale=config.scale,
                constraint_features=constrained, integral=multipliers.integral,
                proportional_gain=config.proportional_gain, integral_gain=config.integral_gain,
                gate_threshold=config.gate_threshold, perturbation=config.perturbation,
                perturbation_scale=config.perturbation_scale,
                perturbation_width=config.perturbation_width,
            )  # fmt: skip
        energies = lax.stop_gradient(0.5 * jnp.mean((now - later) ** 2, 0))
        return loss, (loss, parts, energies, all_features)

    def rate(self, step: jax.Array) -> jax.Array:
        """Adam's step size, a line over the run."""
        share = schedules.progress(step.astype(self.dtype), self.config.steps)
        return schedules.line(self.config.learning_rate, self.config.learning_rate_end, share)

    def _errors(self, parts: Any, all_features, law) -> jax.Array:
        """The constraints' errors: exact where all states are encoded, else those of the batch."""
        if all_features is not None and law is not None:
            products = all_features.T @ (all_features * law.astype(self.dtype)[:, None])
            return products - jnp.eye(len(products), dtype=self.dtype)
        if self.config.objective == "allo" and self.config.scale == "half":
            return parts.errors
        return 0.5 * (parts.errors + parts.other_errors)

    def _averaged(self, learner: Learner, old: jax.Array, new: jax.Array) -> jax.Array:
        """The mean so far, then one that forgets."""
        share = jnp.maximum(1 / AVERAGED, 1 / (learner.updates + 1)).astype(self.dtype)
        return old + share * (new - old)

    # --- many steps ----------------------------------------------------------------------------

    def chunk(
        self, learner: Learner, table, data: Data, key: jax.Array, first: jax.Array, steps
    ) -> tuple[Learner, Report]:
        """So many steps from number `first` on; the means of what they tell.

        How many is an argument, so that chunks of all sizes are the same program. Meanwhile the
        weights are a network: large ones in one vector would be cut and joined at every step.
        """

        def one(i, state):
            learner, total = state
            drawn = self.draw(data, jax.random.fold_in(key, first + i))
            learner, report = self.update(learner, table, drawn, first + i, data.law)
            return learner, jax.tree.map(jnp.add, total, report)

        nothing = Report(*jnp.zeros(2, self.dtype))
        learner = _with_weights(self.rebuild, learner)
        learner, total = lax.fori_loop(0, steps, one, (learner, nothing))
        learner = _with_weights(lambda net: as_vector(net)[0], learner)
        return learner, jax.tree.map(lambda x: x / jnp.asarray(steps, self.dtype), total)

    # --- between chunks ------------------------------------------------------------------------

    def judged(self, learner: Learner, table: jax.Array) -> dict[str, jax.Array]:
        """The features of all that the table holds, [states, d]; eigenvalues, duals [d]."""
        return {
            "learned": self.rebuild(learner.weights)(table),
            "eigenvalues": self.eigenvalues(learner),
            "duals": jnp.diagonal(learner.multipliers.duals),
        }

    def eigenvalues(self, learner: Learner) -> jax.Array:
        """λ̂ [d]: by the multipliers, or where there are none by the Rayleigh quotient."""
        if self.config.objective == "ggdo":
            return learner.energies / (1 + jnp.diagonal(learner.errors))
        duals, barrier = learner.multipliers.duals, learner.multipliers.barrier
        return eigenvalues(duals, barrier, learner.errors, scale=self.config.scale)

    def shuffled(self, learner: Learner, key: jax.Array) -> Learner:
        """The same learner with its outputs in another order; the multipliers stay where they are.

        Their moments of Adam go with the outputs.
        """
        order = jax.random.permutation(
            jax.random.fold_in(key, SHUFFLE), self.config.components, independent=False
        )

        def reordered(vector: jax.Array) -> jax.Array:
            last = lambda net: (net.advantage.weight, net.advantage.bias)  # noqa: E731
            net = self.rebuild(vector)
            return as_vector(eqx.tree_at(last, net, [x[..., order] for x in last(net)]))[0]

        return _with_weights(reordered, learner)


def _with_weights(changed: Callable[[Any], Any], learner: Learner) -> Learner:
    """The learner with another form of its weights and their moments."""
    moments = learner.moments
    moments = moments._replace(mu=changed(moments.mu), nu=changed(moments.nu))
    return learner._replace(weights=changed(learner.weights), moments=moments)


def build(config: ALLO, sampler: Sampler, table: Any, dtype: str = "float32") -> Algorithm:
    """The functions of `config` for a table of observations of this shape and type."""
    network = partial(_network, config, table.shape[1:], table.dtype, dtype)
    # In units of one encoding of a batch: a backward pass is twice a forward one.
    # Of "half", three batches go forward and two back; of others, four go both ways.
    each = 12 if config.objective == "ggdo" or config.scale == "full" else 7
    cheaper = 3 * table.shape[0] <= each * config.batch_size
    encodes_all = cheaper if config.encode == "auto" else config.encode == "states"
    rebuild = rebuilt(config, table.shape[1:], table.dtype, dtype)
    return Algorithm(config, sampler, network, rebuild, encodes_all, dtype, Optimizer())


def rebuilt(config: ALLO, shape: tuple[int, ...], kind: Any, dtype: str = "float32") -> Any:
    """The function from a vector of weights to the encoder of such observations."""
    return rebuilder(partial(_network, config, shape, kind, dtype, jax.random.key(0)))


def _network(config: ALLO, shape, kind, dtype: str, key: jax.Array) -> QNetwork:
    """The encoder: a Q-network whose actions are components."""
    is_image = len(shape) == 3 and jnp.dtype(kind) == jnp.uint8
    conv = uses_convolutions(config.net, shape, is_image)
    net = QNetwork(
        shape, config.components, config.hidden, key, activation=config.activation, conv=conv
    )
    if net.images is not None:
        net = eqx.tree_at(lambda net: net.images, net, PatchConvolutions.of(net.images))
    # From small weights, features are all but constant, and take long to leave that.
    return jax.tree.map(lambda x: x.astype(dtype), orthogonal(net, key, 2**0.5))
