"""Language models: one update by AdamW, many of them in one program; validation.

What is learned from is an objective: (model, what is fixed, rows) → loss, statistics. `lm` gives
cross-entropy, `avatarl` its own. Nothing here is random but the first weights: which windows an
update sees is a function of (seed, update), so that neither chunks nor a resume change it.

Imports everything below `train`, and JAX. Tests: `tests/train/test_lm_update.py`, with an update
written plainly beside.
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
from loopless.train.lm.text_config import TextConfig

Objective = Callable[[GPT, Any, Any], tuple[jax.Array, dict[str, jax.Array]]]


class Learner(NamedTuple):
    """Everything that learning changes."""

    weights: Any  # the model
    moments: Any  # the optimiser's
    updates: Any
    skipped: Any  # updates left out, because they were not finite
    failed: Any  # whether learning stopped at one that was not finite

    def parted(self) -> tuple[Any, "Learner"]:
        """The model, and the rest."""
        return self.weights, self._replace(weights=None)

    def with_(self, weights: Any) -> "Learner":
        """The whole again."""
        return self._replace(weights=weights)


def language_loss(model: GPT, fixed: Any, rows: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Plain cross-entropy of each next token; windows [batch, block + 1]."""
    windows = rows["windows"]
    return cross_entropy(model(windows[:, :-1]), windows[:, 1:]), {}


@dataclass(frozen=True, eq=False)
class Algorithm:
    """The pure functions of one config."""

    config: TextConfig
    vocabulary: int
    objective: Objective

    def init(self, key: jax.Array) -> Learner:
        weights: Any = network(self.config, self.vocabulary, key)
        zero = jnp.zeros((), jnp.int32)
        return Learner(weights, self._adam(weights).init(weights), zero, zero, jnp.zeros((), bool))

    def _adam(self, weights: Any) -> Optimizer:
        config = self.config
        numbers = config.adam_beta_1, config.adam_beta_2, config.adam_epsilon
        return Optimizer("adam", *numbers, decay=decays(weights, config.weight_decay))

    def learning_rate(self, update: Any, xp: Any = jnp) -> Any:
        """Up in a line while it warms up, then down to the end by a half cosine."""
        config = self.config
        return schedules.warmup_cosine(
            config.learning_rate, config.learning_rate_end, update,
            warmup=config.warmup, total=config.steps, xp=xp,
        )  # fmt: skip

    def update(self, learner: Learner, fixed: Any, rows: Any, number: Any) -> tuple[Learner, Any]:
        """Update `number` on rows [accumulate, batch, ...].

        One that is not finite leaves everything as it was; one that failed, all that come after.
        """
        config, weights = self.config, learner.weights
        gradient, told = self._gradient(weights, fixed, rows)
        norm = optax.tree.norm(gradient)
        gradient = clip_by_norm(gradient, norm, config.max_gradient_norm)
        verdict = health.judge(learner, config.on_nan, told["loss"], norm)
        weights, moments = self._adam(weights).step(
            weights, learner.moments, gradient, self.learning_rate(number), verdict.accepted
        )
        learner = Learner(weights, moments, **verdict.counters)
        return learner, told | {"gradient_norm": norm}

    def _gradient(self, weights: Any, fixed: Any, rows: Any) -> tuple[Any, dict[str, jax.Array]]:
        """The mean gradient of the parts of an update, and the means of what they tell."""

        def loss_of(weights, part):
            loss, stats = self.objective(weights, fixed, part)
            return loss, {"loss": loss, **stats}

        def one(part):
            return jax.grad(loss_of, has_aux=True)(weights, part)

        if self.config.accumulate == 1:
            return one(jax.tree.map(lambda x: x[0], rows))

        def more(sums, part):
            return jax.tree.map(jnp.add, sums, one(part)), None

        zeros = _zeros_like(jax.eval_shape(one, jax.tree.map(lambda x: x[0], rows)))
        sums, _ = lax.scan(more, zeros, rows)
        return jax.tree.map(lambda x: x / self.config.accumulate, sums)

    def chunk(
        self, learner: Learner, fixed: Any, rows: Any, first: Any, count: Any
    ) -> tuple[Learner, dict[str, jax.Array]]:
        """The updates from number `first` on, `count` of them; the sums of what they tell.

        Rows are [K, accumulate, batch, ...], K ≥ count: a shorter chunk compiles nothing new.
        """

        def at(i):
            return jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, i, keepdims=False), rows)

        def one(i, carry):
            learner, sums = carry
            learner, told = self.update(learner, fixed, at(i), first + i)
            return learner, jax.tree.map(jnp.add, sums, told)

        told = jax.eval_shape(self.update, learner, fixed, at(0), first)[1]
        start = jnp.zeros_like(count)
        return lax.fori_loop(start, count, one, (learner, _zeros_like(told)))


def validation_loss(model: GPT, windows: jax.Array, counted: jax.Array) -> jax.Array:
    """Mean cross-entropy over windows [groups, batch, block + 1], where `counted` [groups, batch].

    A group at a time, so that memory does not grow with the set.
    """

    def total(group):
        own, real = group
        inputs, targets = own[:, :-1], own[:, 1:]
        mask = jnp.broadcast_to(real[:, None], targets.shape)
        return cross_entropy(model(inputs), targets, mask=mask) * real.sum(dtype=jnp.float32)

    return lax.map(total, (windows, counted)).sum() / counted.sum(dtype=jnp.float32)


def network(config: TextConfig, vocabulary: int, key: jax.Array) -> GPT:
    """The model that a config describes, with first weights."""
    return GPT(
        vocabulary,
        config.block,
        size_of(config),
        key,
        compute=None if config.compute == "float32" else config.compute,
        checkpoint={"auto": None, "on": True, "off": False}[config.recompute],
    )


def model_of(config: TextConfig, weights: Mapping[str, Any]) -> GPT:
    """The model of a run, with the arrays that a checkpoint of it has by name."""
    shapes = jax.eval_shape(
        lambda: network(config, weights["tokens"].shape[0], jax.random.key(config.seed))
    )

    def leaf(path, _):
        return jnp.asarray(weights[jax.tree_util.keystr(path, simple=True, separator="/")])

    return jax.tree_util.tree_map_with_path(leaf, shapes)


def size_of(config: TextConfig) -> Size:
    """Layers, heads and width: the named size's, but for those that are given."""
    return Size._make(
        own if (own := getattr(config, name)) is not None else given
        for name, given in SIZES[config.size]._asdict().items()
    )


def decays(model: GPT, decay: float) -> Any:
    """How each array is pulled towards 0: matrices and embeddings by `decay`, the rest not."""

    def one(path, _):
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        return decay if name in ("tokens", "positions") or name.endswith(".weight") else 0.0

    return jax.tree_util.tree_map_with_path(one, model)


def _zeros_like(shapes: Any) -> Any:
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
