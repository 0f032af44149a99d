"""ALLO and GGDO: the encoder, its loss, one update, and a chunk of updates as one program.

An update draws pairs and further states from recorded trajectories (`data.py`), encodes them,
descends in the weights and ascends in the multipliers. If there are few distinct states, each is
encoded once and batches gather its features: the same numbers for fewer operations. Random numbers
are a function of (seed, step), so neither chunks nor a resume change them. `run.py` calls this.
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
from loopless.nets.encoder import Encoder
from loopless.nets.mlp import as_vector, rebuilder
from loopless.train.allo.config import ALLO
from loopless.train.allo.data import Batch, Data, Sampler
from loopless.train.engine import health, schedules
from loopless.train.engine.optimizer import Optimizer
from loopless.train.engine.options import uses_convolutions

AVERAGED = 1_000  # steps that errors are averaged over
SHUFFLE_KEY = 2**31 - 1  # folded into the seed's key for a shuffle; no step has this number


class Learner(NamedTuple):
    """Everything that learning changes."""

    weights: Any  # the encoder, one vector; inside a chunk, the Encoder
    moments: Any  # Adam's, in the same form
    multipliers: Multipliers
    errors: Any  # [d, d]: the constraints' errors, averaged; over all states if all are encoded
    energies: Any  # [d]: half the squared differences of pairs, averaged
    updates: Any
    skipped: Any  # updates left out because they were not finite
    failed: Any  # whether learning stopped at an update that was not finite


class Report(NamedTuple):
    """The metrics of an update."""

    graph_loss: jax.Array
    gradient_norm: jax.Array


@dataclass(frozen=True, eq=False)
class Algorithm:
    """The pure functions of one config on one kind of observations."""

    config: ALLO
    sampler: Sampler
    network: Callable[[jax.Array], Encoder]
    rebuild: Callable[[jax.Array], Encoder]
    encodes_all: bool
    dtype: str
    optimizer: Optimizer

    def init(self, key: jax.Array, barrier: jax.Array) -> Learner:
        """Return a learner before its first step."""
        d = self.config.components
        weights = as_vector(self.network(key))[0].astype(self.dtype)
        multipliers = first_multipliers(d, dual=self.config.dual_start, dtype=self.dtype)
        multipliers = multipliers._replace(barrier=barrier.astype(self.dtype))
        zero = jnp.zeros((), jnp.int32)
        return Learner(
            weights, self.optimizer.init(weights), jax.tree.map(jnp.asarray, multipliers),
            jnp.zeros((d, d), self.dtype), jnp.zeros(d, self.dtype), zero, zero,
            jnp.zeros((), bool),
        )  # fmt: skip

    # --- one update ----------------------------------------------------------------------------

    def loss(self, weights: Any, multipliers: Multipliers, table, batch: Batch) -> tuple:
        """Return the loss, and as a second result everything else that an update needs."""
        config = self.config
        encoder = weights if isinstance(weights, Encoder) else self.rebuild(weights)
        all_features = encoder(table) if self.encodes_all else None

        def encode(rows):
            return encoder(table[rows]) if all_features is None else all_features[rows]

        now, later, others = map(encode, batch[:3])
        constrained = None if batch.constrained is None else encode(batch.constrained)
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

    def update(
        self, learner: Learner, table, batch: Batch, step, law=None
    ) -> tuple[Learner, Report]:
        """Make one gradient step; one that is not finite changes nothing but the counters.

        law [states]: how often each is a start; makes errors exact if all states are encoded.
        """
        config = self.config
        gradient, (loss, parts, energies, all_features) = jax.grad(self.loss, has_aux=True)(
            learner.weights, learner.multipliers, table, batch
        )
        norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in jax.tree.leaves(gradient)))
        errors = self._errors(parts, all_features, law)
        # Everything that reads the weights comes before this, so the new ones can overwrite them.
        verdict = health.judge(learner, config.on_nan, loss, norm, errors)
        weights, moments = self.optimizer.step(
            learner.weights, learner.moments, gradient, self.learning_rate(step), verdict.accepted
        )
        multipliers = learner.multipliers
        if config.objective == "allo":
            multipliers = allo_updates(
                multipliers, parts, scale=config.scale, dual_rate=config.dual_rate,
                barrier_rate=config.barrier_rate, proportional_gain=config.proportional_gain,
                integral_gain=config.integral_gain, integral_decay=config.integral_decay,
                dual_limit=config.dual_limit, barrier_limit=config.barrier_limit,
            )  # fmt: skip
        errors = self._average(learner, learner.errors, errors)
        energies = self._average(learner, learner.energies, energies)
        multipliers, errors, energies = jax.tree.map(
            partial(jnp.where, verdict.accepted),
            (multipliers, errors, energies),
            (learner.multipliers, learner.errors, learner.energies),
        )
        learner = Learner(weights, moments, multipliers, errors, energies, **verdict.counters)
        return learner, Report(parts.graph, norm)

    def learning_rate(self, step: jax.Array) -> jax.Array:
        """Return Adam's step size, which changes linearly over the run."""
        share = schedules.progress(step.astype(self.dtype), self.config.steps)
        return schedules.line(self.config.learning_rate, self.config.learning_rate_end, share)

    def _errors(self, parts: Any, all_features, law) -> jax.Array:
        """Return the constraints' errors: exact if all states are encoded, else the batch's."""
        if all_features is not None and law is not None:
            products = all_features.T @ (all_features * law.astype(self.dtype)[:, None])
            return products - jnp.eye(len(products), dtype=self.dtype)
        if not self.config.constrains_apart:
            return parts.errors
        return 0.5 * (parts.errors + parts.other_errors)

    def _average(self, learner: Learner, old: jax.Array, new: jax.Array) -> jax.Array:
        """Return the mean of all values so far; after `AVERAGED` steps, a moving average."""
        share = jnp.maximum(1 / AVERAGED, 1 / (learner.updates + 1)).astype(self.dtype)
        return old + share * (new - old)

    # --- a chunk of updates --------------------------------------------------------------------

    def chunk(
        self, learner: Learner, table, data: Data, key: jax.Array, first: jax.Array, steps
    ) -> tuple[Learner, Report]:
        """Make the updates from step `first` on, `steps` of them; return their mean metrics.

        `steps` is an argument, so that chunks of all sizes are one compiled program. Inside the
        loop the weights are an Encoder: one vector would be cut and joined at every step.
        """

        def one_step(i, state):
            learner, total = state
            batch = self.sampler.draw(data, jax.random.fold_in(key, first + i))
            learner, report = self.update(learner, table, batch, first + i, data.law)
            return learner, jax.tree.map(jnp.add, total, report)

        learner = _map_weights(self.rebuild, learner)
        zeros = Report(*jnp.zeros(2, self.dtype))
        learner, total = lax.fori_loop(0, steps, one_step, (learner, zeros))
        learner = _map_weights(lambda net: as_vector(net)[0], learner)
        return learner, jax.tree.map(lambda x: x / jnp.asarray(steps, self.dtype), total)

    # --- between chunks ------------------------------------------------------------------------

    def evaluate(self, learner: Learner, table: jax.Array) -> dict[str, jax.Array]:
        """Return the features of all states in the table, [states, d]; eigenvalues, duals [d]."""
        return {
            "learned": self.rebuild(learner.weights)(table),
            "eigenvalues": self.eigenvalues(learner),
            "duals": jnp.diagonal(learner.multipliers.duals),
        }

    def eigenvalues(self, learner: Learner) -> jax.Array:
        """Return λ̂ [d]: from the multipliers; for GGDO, which has none, Rayleigh quotients."""
        if self.config.objective == "ggdo":
            return learner.energies / (1 + jnp.diagonal(learner.errors))
        duals, barrier = learner.multipliers.duals, learner.multipliers.barrier
        return eigenvalues(duals, barrier, learner.errors, scale=self.config.scale)

    def shuffle_outputs(self, learner: Learner, key: jax.Array) -> Learner:
        """Return the learner with its outputs and their moments in another order."""
        order = jax.random.permutation(
            jax.random.fold_in(key, SHUFFLE_KEY), self.config.components, independent=False
        )

        def reorder(vector: jax.Array) -> jax.Array:
            last = lambda net: (net.output.weight, net.output.bias)  # noqa: E731
            net = self.rebuild(vector)
            return as_vector(eqx.tree_at(last, net, [x[..., order] for x in last(net)]))[0]

        return _map_weights(reorder, learner)


def _map_weights(change: Callable[[Any], Any], learner: Learner) -> Learner:
    """Return the learner with `change` applied to its weights and both their moments."""
    moments = learner.moments
    moments = moments._replace(mu=change(moments.mu), nu=change(moments.nu))
    return learner._replace(weights=change(learner.weights), moments=moments)


def build(config: ALLO, sampler: Sampler, table: Any, dtype: str = "float32") -> Algorithm:
    """Return the functions of `config` for observations like those in `table`."""
    network = network_of(config, table.shape[1:], table.dtype, dtype)
    # In forward passes of one batch, where a backward pass counts as two. With constraints on the
    # pairs' own states, three batches go forward and two back; otherwise four go both ways.
    cost = 12 if config.constrains_apart else 7
    is_cheaper = 3 * table.shape[0] <= cost * config.batch_size
    encodes_all = is_cheaper if config.encode == "auto" else config.encode == "states"
    rebuild = rebuilder(partial(network, jax.random.key(0)))
    return Algorithm(config, sampler, network, rebuild, encodes_all, dtype, Optimizer())


def network_of(config: ALLO, shape, kind: Any, dtype: str = "float32") -> Callable:
    """Return a function from a key to a new encoder of observations of this shape and type."""
    is_image = len(shape) == 3 and jnp.dtype(kind) == jnp.uint8
    conv = uses_convolutions(config.net, shape, is_image)

    def network(key: jax.Array) -> Encoder:
        options = {"activation": config.activation, "conv": conv}
        encoder = Encoder(shape, config.components, config.hidden, key, **options)
        return jax.tree.map(lambda x: x.astype(dtype), encoder)

    return network
