"""The original pipeline, written from a description of it: one step at a time from Python.

Each step draws two batches on the host, with a search for the end of an episode for each pair;
copies three arrays of states to the device and gathers their coordinates there, outside the
compiled update; and calls the encoder three times in that update. Every hundred steps some forty
numbers are fetched one by one; every thousand steps three figures are drawn while training waits.
Each proposal of the founding note (docs/speed.md) is a switch of `Form`. Further down are its
pictures and its whole run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from loopless.envs.grids.world import make_grid
from suites.allo_speed.cases import GRID, Indices, Learning
from suites.replay.plain import PaddedTable, search_per_sample

LOG_EVERY, PLOT_EVERY = 100, 1000


@dataclass(frozen=True)
class Form:
    """Which of the founding note's proposals are followed; the default is the original."""

    table_sampling: bool = False
    one_encoder_call: bool = False
    plots: bool = True
    one_gather: bool = False
    matmul: bool = False
    batched_fetch: bool = False
    reused_eye: bool = False
    jitted_gate: bool = False


class Plain:
    """A run in the original's form; `run` continues it by some steps."""

    def __init__(
        self,
        case: Learning,
        obs: np.ndarray,
        terminals: np.ndarray,
        form: Form | None = None,
        folder: Path | None = None,
    ) -> None:
        self.form, self.folder = form or Form(), folder
        self.rules, self.batch = case.rules, case.batch
        self.coordinates = jnp.asarray(case.coordinates)
        self.obs, self.terminals = obs, terminals.astype(np.int32)
        self.generator = np.random.default_rng(0)
        self.table = PaddedTable(obs, terminals) if self.form.table_sampling else None
        d, rules = case.components, case.rules
        self.optimizer = _optimizer(rules.learning_rate, rules.dual_rate)
        self.params = {
            "encoder": [(jnp.array(w), jnp.array(b)) for w, b in case.layers],
            "duals": rules.dual_start * jnp.tril(jnp.ones((d, d), jnp.float32)),
            "barrier": jnp.array(rules.barrier, jnp.float32),
        }
        self.moments = self.optimizer.init(self.params)
        self.update = jax.jit(partial(update, self.form, self.optimizer, rules.barrier))
        self.steps, self.history = 0, list[dict[str, float]]()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            states, later = self.sample()
            others, _ = self.sample()
            metrics = self.learn(states, later, others)
            self.steps += 1
            if self.steps % LOG_EVERY == 0:
                self.history.append(self.fetched(metrics))
            if self.folder and self.form.plots and self.steps % PLOT_EVERY == 0:
                self.draw(self.folder)
        jax.block_until_ready(self.params)

    def learn(self, states: np.ndarray, later: np.ndarray, others: np.ndarray) -> dict[str, Any]:
        coordinates = self.coordinates
        if self.form.one_gather:
            batches = jnp.split(coordinates[jnp.array(np.concatenate([states, later, others]))], 3)
        else:
            batches = [coordinates[jnp.array(rows)] for rows in (states, later, others)]
        self.params, self.moments, metrics = self.update(self.params, self.moments, *batches)
        return metrics

    def fetched(self, metrics: dict[str, Any]) -> dict[str, float]:
        if self.form.batched_fetch:
            return {name: float(x) for name, x in jax.device_get(metrics).items()}
        return {name: x.item() for name, x in metrics.items()}

    def follow(self, stream: Indices) -> np.ndarray:
        """Learn from these indices, from the present weights; return the features of all states."""
        for drawn in stream:
            self.learn(*drawn)
        return self.features()

    def features(self) -> np.ndarray:
        return np.asarray(encode(self.params["encoder"], self.coordinates))

    def draw(self, folder: Path) -> None:
        draw_figures(folder, self.features(), np.asarray(self.params["duals"]), self.history)

    def sample(self) -> tuple[np.ndarray, np.ndarray]:
        """Draw a batch of states and later ones from the old buffer, or from the proposed table."""
        discount = self.rules.discount
        if self.table is not None:
            pairs = self.table.sample(self.batch, discount)
        else:
            pairs = search_per_sample(
                self.obs, self.terminals, self.batch, self.generator, discount
            )
        return pairs["obs"], pairs["next_obs"]


def encode(layers: Any, x: jax.Array) -> jax.Array:
    for weight, bias in layers[:-1]:
        x = jax.nn.relu(x @ weight + bias)
    weight, bias = layers[-1]
    return x @ weight + bias


def update(form: Form, optimizer: Any, limit: float, params: Any, moments: Any, *batches: Any):
    """Make one update: loss, gradients, Adam on the encoder, plain descent on the rest."""
    gradient, metrics = jax.grad(partial(loss, form), has_aux=True)(params, *batches)
    changes, moments = optimizer.update(gradient, moments)
    params = optax.apply_updates(params, changes)
    barrier = jnp.clip(params["barrier"], 0.0, limit)
    squares = [(part**2).sum() for part in jax.tree.leaves(gradient["encoder"])]
    metrics["gradient_norm"] = jnp.sqrt(sum(squares))
    return {**params, "barrier": barrier}, moments, metrics


def loss(form: Form, params: Any, here: Any, there: Any, others: Any) -> tuple[Any, Any]:
    """Return the halved objective, term by term, and what is logged of it."""
    sg, layers = jax.lax.stop_gradient, params["encoder"]
    duals, barrier = jnp.tril(params["duals"]), params["barrier"]
    if form.one_encoder_call:
        phi, later, psi = jnp.split(encode(layers, jnp.concatenate([here, there, others])), 3)
    else:
        phi, later, psi = (encode(layers, x) for x in (here, there, others))
    n, d = phi.shape
    eye = jnp.eye(d, dtype=phi.dtype) if form.reused_eye else None

    def errors(x: jax.Array) -> jax.Array:
        products = x.T @ sg(x) if form.matmul else jnp.einsum("ij,ik->jk", x, sg(x))
        return jnp.tril(products / n - (jnp.eye(d, dtype=x.dtype) if eye is None else eye))

    first, second = errors(phi), errors(psi)
    gate_of: Callable[..., jax.Array] = jax.jit(gate) if form.jitted_gate else gate
    g = gate_of(first, jnp.inf)[:, None]  # switched off, as by default
    graph = (0.5 * ((g[:, 0] * (phi - later)) ** 2).mean(0)).sum()
    if form.reused_eye:  # and the products regrouped
        gated = g * first
        quadratic = 2 * (gated * sg(second)).sum()
        dual, ascent = (sg(duals) * gated).sum(), -(duals * sg(gated)).sum()
    else:
        quadratic = 2 * (g * first * sg(second)).sum()
        dual, ascent = (g * sg(duals) * first).sum(), -(g * duals * sg(first)).sum()
    total = graph + dual + sg(barrier) * quadratic + ascent - barrier * sg(jnp.abs(quadratic))
    metrics = {
        "allo": total, "graph": graph, "dual": dual, "dual_ascent": ascent,
        "barrier_term": barrier * quadratic, "barrier": barrier,
        "eigenvalues": (-0.5 * jnp.diagonal(duals)).sum(), "errors": jnp.abs(first).sum(),
        "diagonal_errors": jnp.abs(jnp.diagonal(first)).sum(), "squares": (first**2).sum(),
        "first_errors": jnp.abs(first[:, :2]).sum(), "norms": (phi**2).mean(0).sum(),
    }  # fmt: skip
    metrics |= {f"dual_{j}": duals[j, j] for j in range(d)}
    metrics |= {f"dual_{j}_{k}": duals[j, k] for k in range(2) for j in range(k + 1, d)}
    return total, {name: sg(x) for name, x in metrics.items()}


def gate(errors: jax.Array, threshold: Any) -> jax.Array:
    """Return 1 for components whose predecessors are all within the threshold, else 0."""
    below = jnp.prod((jnp.abs(errors) < threshold).astype(errors.dtype), 1)
    return jnp.concatenate([jnp.ones_like(below[:1]), jnp.cumprod(below)[:-1]])


def _optimizer(rate: float, dual_rate: float) -> optax.GradientTransformation:
    encoder = {"encoder": True, "duals": False, "barrier": False}
    rest = {name: not mine for name, mine in encoder.items()}
    return optax.chain(
        optax.masked(optax.adam(rate), encoder), optax.masked(optax.sgd(dual_rate), rest)
    )


CURVES = ("allo", "graph", "errors", "dual", "barrier_term", "gradient_norm")
DPI = 300


def draw_figures(
    folder: Path, features: np.ndarray, duals: np.ndarray, history: list[dict[str, float]]
) -> None:
    """Draw and write three figures while the caller waits."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    def write(figure: Any, name: str) -> None:
        figure.tight_layout()
        figure.savefig(folder / f"{name}.png", dpi=DPI)
        pyplot.close(figure)

    world, d, across = make_grid(GRID), features.shape[1], 5
    figure, axes = pyplot.subplots(-(-d // across), across, figsize=(20, 8), squeeze=False)
    for at, axis in enumerate(axes.flat[:d]):
        image = axis.imshow(world.on_the_grid(features[:, at]), cmap="RdBu_r")
        axis.set_title(f"Eigenvector {at}")
        pyplot.colorbar(image, ax=axis)
    write(figure, "eigenvectors")

    figure, axes = pyplot.subplots(2, 3, figsize=(15, 8))
    for name, axis in zip(CURVES, axes.flat, strict=True):
        axis.plot([row[name] for row in history])
        axis.set_title(name)
    write(figure, "learning_curves")

    figure, axes = pyplot.subplots(1, 2, figsize=(14, 5))
    for at in range(d):
        values = np.array([row[f"dual_{at}"] for row in history])
        axes[0].plot(-0.5 * values, label=f"{at}")
        axes[1].semilogy(np.abs(values - duals[at, at]) + 1e-9)
    axes[0].legend()
    write(figure, "duals")


def run_whole(steps: int, folder: str, case: Learning | None = None) -> None:
    """Make the original's default run, from data collected as ours collects them."""
    case = case or Learning()
    Plain(case, case.walks.obs, case.walks.terminals, folder=Path(folder)).run(steps)
