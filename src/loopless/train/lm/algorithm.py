"""Language models: the loss, one update by AdamW, a chunk of updates as one program, validation.

What an update minimizes is an objective: (config, model, constants, batch) → loss, statistics. `lm`
uses cross-entropy, `avatarl` its own. Only the first weights are random: which windows an update
sees is a function of (seed, update), so neither chunks nor a resume change it. `run.py` calls this.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from loopless.kernels.avatarl.baselines import cross_entropy
from loopless.nets.gpt.model import GPT, SIZES, Size
from loopless.train.engine import health, schedules
from loopless.train.engine.optimizer import Optimizer, clip_by_norm
from loopless.train.lm.config import TextOptions

Objective = Callable[[Any, GPT, Any, Any], tuple[jax.Array, dict[str, jax.Array]]]


class Learner(NamedTuple):
    """Everything that learning changes."""

    weights: Any  # the model
    moments: Any  # Adam's
    updates: Any
    skipped: Any  # updates left out because they were not finite
    failed: Any  # whether learning stopped at an update that was not finite


# --- the model -----------------------------------------------------------------------------------


def network(config: TextOptions, vocabulary: int, key: jax.Array) -> GPT:
    """Return the model that `config` describes, with random first weights."""
    return GPT(
        vocabulary,
        config.block,
        model_size(config),
        key,
        compute=None if config.compute == "float32" else config.compute,
        checkpoint={"auto": None, "on": True, "off": False}[config.recompute],
    )


def model_size(config: TextOptions) -> Size:
    """Return layers, heads and width: those of the named size, unless they are set."""
    settings = {name: getattr(config, name) for name in Size._fields}
    chosen = {name: value for name, value in settings.items() if value is not None}
    return SIZES[config.size]._replace(**chosen)


def load_model(config: TextOptions, weights: Mapping[str, Any]) -> GPT:
    """Return the model of a run with the arrays of a checkpoint, which are given by name."""
    shapes = jax.eval_shape(
        lambda: network(config, weights["tokens"].shape[0], jax.random.key(config.seed))
    )

    def leaf(path, _):
        return jnp.asarray(weights[jax.tree_util.keystr(path, simple=True, separator="/")])

    return jax.tree_util.tree_map_with_path(leaf, shapes)


# --- the loss ------------------------------------------------------------------------------------


def language_loss(
    config: Any, model: GPT, constants: Any, batch: Any
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the mean cross-entropy of the next tokens in windows [batch, block + 1]."""
    windows = batch["windows"]
    return cross_entropy(model(windows[:, :-1]), windows[:, 1:]), {}


def validation_loss(model: GPT, windows: jax.Array, counted: jax.Array) -> jax.Array:
    """Return the mean cross-entropy of those windows [groups, batch, block + 1] that are counted.

    counted [groups, batch]. Groups are computed one by one, so that memory does not grow with
    their number.
    """

    def total(group):
        windows, counted = group
        inputs, targets = windows[:, :-1], windows[:, 1:]
        mask = jnp.broadcast_to(counted[:, None], targets.shape)
        return cross_entropy(model(inputs), targets, mask=mask) * counted.sum(dtype=jnp.float32)

    return lax.map(total, (windows, counted)).sum() / counted.sum(dtype=jnp.float32)


# --- updates -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Algorithm:
    """The pure functions of one config."""

    config: Any  # TextOptions and RunOptions
    vocabulary: int
    objective: Objective

    def init(self, key: jax.Array) -> Learner:
        """Return a learner before its first update."""
        weights: Any = network(self.config, self.vocabulary, key)
        moments = self._optimizer(weights).init(weights)
        zero = jnp.zeros((), jnp.int32)
        return Learner(weights, moments, zero, zero, jnp.zeros((), bool))

    def _optimizer(self, weights: Any) -> Optimizer:
        config = self.config
        numbers = config.adam_beta_1, config.adam_beta_2, config.adam_epsilon
        return Optimizer("adamw", *numbers, decay=weight_decays(weights, config.weight_decay))

    def learning_rate(self, update: Any, xp: Any = jnp) -> Any:
        """Return the step size of an update: it rises linearly, then falls by half a cosine."""
        config = self.config
        ends = config.learning_rate, config.learning_rate_end
        return schedules.warmup_cosine(
            *ends, update, warmup=config.warmup, total=config.steps, xp=xp
        )

    def update(
        self, learner: Learner, constants: Any, batch: Any, number: Any
    ) -> tuple[Learner, dict[str, jax.Array]]:
        """Make update `number` on a batch [accumulate, batch, ...]; return its metrics, too.

        An update that is not finite changes nothing but the counters.
        """
        config, weights = self.config, learner.weights
        gradient, metrics = self._gradient(weights, constants, batch)
        norm = optax.tree.norm(gradient)
        gradient = clip_by_norm(gradient, norm, config.max_gradient_norm)
        verdict = health.judge(learner, config.on_nan, metrics["loss"], norm)
        weights, moments = self._optimizer(weights).step(
            weights, learner.moments, gradient, self.learning_rate(number), verdict.accepted
        )
        learner = Learner(weights, moments, **verdict.counters)
        return learner, metrics | {"gradient_norm": norm}

    def _gradient(
        self, weights: Any, constants: Any, batch: Any
    ) -> tuple[Any, dict[str, jax.Array]]:
        """Return the mean gradient over the parts of an update, and the means of their metrics."""

        def loss_of(weights, part):
            loss, statistics = self.objective(self.config, weights, constants, part)
            return loss, {"loss": loss, **statistics}

        def gradient_of(part):
            return jax.grad(loss_of, has_aux=True)(weights, part)

        first = jax.tree.map(lambda x: x[0], batch)
        if self.config.accumulate == 1:
            return gradient_of(first)

        def add(sums, part):
            return jax.tree.map(jnp.add, sums, gradient_of(part)), None

        sums, _ = lax.scan(add, _zeros_like(jax.eval_shape(gradient_of, first)), batch)
        return jax.tree.map(lambda x: x / self.config.accumulate, sums)

    def chunk(
        self, learner: Learner, constants: Any, batches: Any, first: Any, count: Any
    ) -> tuple[Learner, dict[str, jax.Array]]:
        """Make `count` updates from number `first` on; return the sums of their metrics.

        Batches are [K, accumulate, batch, ...] with K ≥ count: a shorter chunk needs no new
        program.
        """

        def batch(i):
            return jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, i, keepdims=False), batches)

        def one_update(i, carry):
            learner, sums = carry
            learner, metrics = self.update(learner, constants, batch(i), first + i)
            return learner, jax.tree.map(jnp.add, sums, metrics)

        metrics = jax.eval_shape(self.update, learner, constants, batch(0), first)[1]
        start = jnp.zeros_like(count)
        return lax.fori_loop(start, count, one_update, (learner, _zeros_like(metrics)))


def weight_decays(model: GPT, decay: float) -> Any:
    """Return the weight decay of each array: `decay` for matrices and embeddings, else 0."""

    def decay_of(path, _):
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        return decay if name in ("tokens", "positions") or name.endswith(".weight") else 0.0

    return jax.tree_util.tree_map_with_path(decay_of, model)


def _zeros_like(shapes: Any) -> Any:
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
