"""A run of ALLO: training chunk by chunk, scores of what was learned, and the export.

The scores compare learned features with the exact eigenvectors of a grid, on the host in float64,
for all agents at once.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loopless.envs.grids.laplacian import (
    Eigenpairs,
    hitting_times,
    hitting_times_of_eigenpairs,
    truncated_eigenvalues,
)
from loopless.envs.grids.layouts import is_strongly_connected
from loopless.envs.grids.world import GridWorld
from loopless.kernels.laplacian.duals import similarities
from loopless.nets.mlp import rebuilder
from loopless.runs import trees
from loopless.runs.checkpoint import Checkpoint
from loopless.runs.failures import BadConfig, BadRun
from loopless.runs.progress.clock import Clock
from loopless.train.allo.algorithm import Learner, build, network_of
from loopless.train.allo.config import ALLO
from loopless.train.allo.data import Source, move_to_device, observation_type, read_source
from loopless.train.engine.agents import advance_agents, map_agents, place
from loopless.train.engine.export import describe_network
from loopless.train.engine.run import Run
from loopless.train.engine.settings import as_program, traced_settings

MAX_SNAPSHOT_STATES = 4_096
MAX_HITTING_STATES = 600  # up to which hitting times, states × states, are computed
MIN_EIGENVALUE = 1e-6  # a learned eigenvalue may come out below 0

USE = (
    "For each layer but the last: x = activation(x @ weight + bias). Last layer: features = "
    "x @ weight + bias, one for each component, those of small eigenvalues first. `eigenvalues` "
    "has the eigenvalue of each component. In features · scales, distance means time to reach; "
    "the scales are 1/√eigenvalue, and 0 for the first component, which is constant."
)
INPUTS = {
    "xy": "The observation is (column, row) less half of (width, height), divided by half the "
    "longer side of the grid. ",
    "onehot": "The observation is the number of the free cell, counted row by row, as one-hot. ",
    "pixels": "The observation is the grid as a picture: walls grey, the agent red. ",
}


class Chunks:
    """Cuts a run into chunks, at each row of metrics and before the shuffle of outputs."""

    def __init__(self, config: ALLO) -> None:
        self.events, self.config = config.steps, config

    def after(self, step: int) -> int:
        """Return how many steps the chunk that begins at `step` has."""
        config = self.config
        ends = [config.steps, (step // config.log_every + 1) * config.log_every]
        if config.permute_at is not None and step < config.permute_at:
            ends.append(config.permute_at)
        return min(ends) - step


class ALLORun(Run):
    """A run of all agents in one program: for each seed, one agent for each barrier."""

    shown = ("similarity_mean", "eigenvalue_error", "graph_loss")
    judged_by = "similarity_mean"

    def __init__(self, config: ALLO, source: Source | None = None) -> None:
        super().__init__(config, Chunks(config), 1)
        self.source = read_source(config) if source is None else source
        sampler, data = move_to_device(config, self.source)
        self.algorithm = algorithm = build(config, sampler, self.source.table)
        # Each seed of a grid has its own walks; agents that differ in their barrier share them.
        data_axis = 0 if len(data) > 1 else None
        if data_axis == 0:
            of_agents = [of_seed for of_seed in data for _ in config.barrier]
            self.data = jax.tree.map(lambda *x: jnp.stack(x), *of_agents)
        else:
            self.data = data[0]
        self.data = place(self.data, data_axis, config.agents)
        seeds = [jax.random.key(config.seed + i) for i in range(config.seeds)]
        self.keys = jnp.stack([key for key in seeds for _ in config.barrier])
        barriers = jnp.tile(jnp.asarray(config.barrier, jnp.float32), config.seeds)
        self.settings = traced_settings(config)
        init = jax.jit(map_agents(as_program(algorithm, "init"), (0, None, 0)))
        self.state: Learner = init(self.keys, self.settings, barriers)
        axes = (0, None, None, data_axis, 0, None, None)
        chunk = as_program(algorithm, "chunk")
        self._chunk = jax.jit(advance_agents(chunk, axes), donate_argnums=0)
        self._shuffle = jax.jit(map_agents(algorithm.shuffle_outputs, (0, 0)))
        self._evaluate = jax.jit(map_agents(algorithm.evaluate, (0, None)))
        self._eigenvalues = jax.jit(map_agents(algorithm.eigenvalues, (0,)))
        self.table = place(jnp.asarray(self.source.table), None, config.agents)
        is_exact = self.source.truth is not None
        self.evaluated = self.table if is_exact else self.table[:MAX_SNAPSHOT_STATES]

    @property
    def learner(self) -> Learner:
        return self.state

    def advance(self, clock: Clock) -> Mapping[str, Any]:
        """Train one chunk, and return its metrics."""
        steps = self.chunks.after(self.event)
        with clock("learn"):
            if self.event == self.config.permute_at:
                self.state = self._shuffle(self.state, self.keys)
            numbers = np.int32(self.event), np.int32(steps)
            arguments = self.settings, self.table, self.data, self.keys, *numbers
            self.state, report = self._chunk(self.state, *arguments)
            jax.block_until_ready(self.state)
        self.event += steps
        with clock("log"):
            return self._describe(report)

    def _describe(self, report: Any) -> dict[str, Any]:
        """Return a row of metrics: one number for each agent, and one for each component."""
        config, truth, results = self.config, self.source.truth, self.results()
        errors = np.abs(np.asarray(self.state.errors)).reshape(config.agents, -1).max(1)
        row: dict[str, Any] = {
            **{name: np.asarray(value) for name, value in report._asdict().items()},
            "orthogonality_error": errors,
            "updates": np.asarray(self.state.updates),
            "skipped_updates": np.asarray(self.state.skipped),
            "barrier": np.asarray(self.state.multipliers.barrier),
        }
        components = {"eigenvalue": results["eigenvalues"]}
        if config.objective == "allo":
            components["dual"] = results["duals"]
        if truth is not None:
            components["similarity"] = similarity(results["learned"], truth)
            row["similarity_mean"] = components["similarity"].mean(1)
            row["eigenvalue_error"] = eigenvalue_error(results["eigenvalues"], truth)
            if self._has_pictures and self.hitting_times is not None:
                row["hitting_time_correlation"] = np.array([
                    self.hitting_times.correlation(features, values, truth.weights)
                    for features, values in zip(
                        results["learned"], results["eigenvalues"], strict=True
                    )
                ])  # fmt: skip
        if config.agents == 1:
            row = {name: value.reshape(())[()] for name, value in row.items()}
        return row | components

    @property
    def _has_pictures(self) -> bool:
        """Whether pictures are drawn at this step; then there is time for the slow score, too."""
        every = self.config.plot_every
        return self.event == self.total or (every > 0 and self.event % every == 0)

    @cached_property
    def hitting_times(self) -> "HittingTimes | None":
        world = self.source.world
        if world is None or not HittingTimes.exist(world):
            return None
        return HittingTimes(self.config, world)

    def results(self) -> dict[str, np.ndarray]:
        """Return the features of all states, the eigenvalues and the duals of every agent."""
        return {
            name: np.asarray(x) for name, x in self._evaluate(self.state, self.evaluated).items()
        }

    def snapshot(self) -> Mapping[str, np.ndarray]:
        """Return what the pictures of this step are drawn from."""
        source, results = self.source, self.results()
        arrays = {
            "step": np.int64(self.event),
            "visits": source.visits[:MAX_SNAPSHOT_STATES],
            **{name: results[name].astype(np.float32) for name in ("learned", "eigenvalues")},
        }
        if self.config.objective == "allo":
            arrays["duals"] = results["duals"].astype(np.float32)
        if source.world is not None:
            arrays |= {"walls": ~source.world.layout.free, "cells": source.world.cells}
        if source.truth is not None:
            truth = source.truth
            arrays |= {
                "truth": truth.vectors.astype(np.float32),
                "spaces": truth.spaces.astype(np.int32),
                "weights": truth.weights.astype(np.float32),
                "kernel_eigenvalues": truth.values.astype(np.float32),
                "similarities": similarity(results["learned"], truth).astype(np.float32),
            }
        return arrays

    def outcome(self, last: Mapping[str, Any]) -> str | None:
        """Return the result in words, from the last metrics."""
        if "similarity_mean" not in last:
            values = ", ".join(f"{value:.4f}" for value in last["eigenvalue"][0])
            return f"Eigenvalues {values}."
        means = np.atleast_1d(last["similarity_mean"])
        return f"Mean similarity {', '.join(f'{value:.4f}' for value in means)}."

    def agent_name(self, number: int) -> str:
        """Return the name of one agent of several."""
        seed, which = divmod(number, len(self.config.barrier))
        name = f"seed {self.config.seed + seed}"
        if len(self.config.barrier) == 1:
            return name
        return f"{name}, barrier {self.config.barrier[which]:g}"

    def _tree(self) -> dict[str, Any]:
        learner = self.state
        weights = {"online": learner.weights, "eigenvalues": self._eigenvalues(learner)}
        tree = {"weights": weights, "learner": learner._replace(weights=None)}
        if self.config.agents == 1:
            tree = jax.tree.map(lambda x: np.asarray(x)[0], tree)  # a view: no program runs
        return {**tree, "event": np.int64(self.event), "data": self.source.digest}

    def restore(self, checkpoint: Checkpoint) -> str:
        """Continue from a checkpoint; return in words what could not be restored: nothing."""
        tree = trees.unflatten(self._tree(), checkpoint.arrays)
        if not np.array_equal(tree["data"], self.source.digest):
            raise BadRun(
                f"run: the trajectories of {self.config.data or self.config.grid} have changed "
                f"since {checkpoint.name} was trained on them. Put the file back as it was, or "
                f"start another run."
            )
        learner = tree["learner"]._replace(weights=tree["weights"]["online"])
        self.state = learner if self.config.agents > 1 else jax.tree.map(lambda x: x[None], learner)
        self.event = int(tree["event"])
        return ""


# --- scores --------------------------------------------------------------------------------------


def similarity(features: np.ndarray, truth: Eigenpairs) -> np.ndarray:
    """Return the share of each feature that lies in its true eigenspace, [agents, d]."""
    features = features.astype(np.float64)
    return np.stack([similarities(x, truth.vectors, truth.spaces, truth.weights) for x in features])


def eigenvalue_error(values: np.ndarray, truth: Eigenpairs) -> np.ndarray:
    """Return the largest relative error of eigenvalues [agents, d] after the first, [agents].

    The first eigenvalue is 0; if it is the only one, its error is not relative.
    """
    exact = truth.values[: values.shape[1]]
    if values.shape[1] == 1:
        return np.abs(values[:, 0] - exact[0])
    return np.abs(values[:, 1:] / exact[1:] - 1).max(1)


class HittingTimes:
    """The exact expected steps from state to state, and how well learned eigenpairs rank them."""

    def __init__(self, config: ALLO, world: GridWorld) -> None:
        # Eigenvalues of one step of the walk, and those of the pairs in its episodes.
        self._steps = np.linspace(1 - 1e-6, -1, 4_001)
        self._pairs = truncated_eigenvalues(self._steps, config.discount, config.episode_length)
        self._ranks = _rank_pairs(hitting_times(world.transition_matrix()))

    @staticmethod
    def exist(world: GridWorld) -> bool:
        """Return whether every state can be reached from every other, and they are few enough."""
        return 1 < world.states <= MAX_HITTING_STATES and is_strongly_connected(world.layout)

    def correlation(self, features: np.ndarray, values: np.ndarray, weights: np.ndarray) -> float:
        """Return the rank correlation of the exact times and those that eigenpairs give.

        features [states, d], values [d] and weights [states].
        """
        norms = np.sqrt((features.astype(np.float64) ** 2 * weights[:, None]).sum(0))
        vectors = features / np.where(norms > 0, norms, 1.0)
        steps = np.interp(values.astype(np.float64), self._pairs, self._steps)
        ranks = _rank_pairs(hitting_times_of_eigenpairs(vectors, steps))
        return float(np.corrcoef(ranks, self._ranks)[0, 1])


def _rank_pairs(times: np.ndarray) -> np.ndarray:
    """Return the rank of each time between two different states."""
    values = times[~np.eye(len(times), dtype=bool)]
    ranks = np.empty(values.size)
    ranks[np.argsort(values, kind="stable")] = np.arange(values.size)
    return ranks


# --- what the commands call ----------------------------------------------------------------------


def make(config: ALLO) -> ALLORun:
    """Return the run that `config` describes."""
    return ALLORun(config)


def player(config: ALLO, weights: Mapping[str, np.ndarray]) -> Any:
    raise BadConfig(
        ["allo learns a representation and has no policy to play. Use `loopless export`."]
    )


def export(
    config: ALLO, weights: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays of an encoder, its eigenvalues, and a card that says how to use them."""
    shape, dtype = observation_type(config)
    network = network_of(config, shape, dtype)
    net = rebuilder(lambda: network(jax.random.key(0)))(jnp.asarray(weights["online"]))
    arrays, card, how_to_start = describe_network(net.layers(), net.images)
    values = np.asarray(weights["eigenvalues"], np.float32)
    scales = 1 / np.sqrt(np.maximum(values, MIN_EIGENVALUE))
    scales[0] = 0
    arrays |= {"eigenvalues": values, "scales": scales.astype(np.float32)}
    card |= {
        "grid": config.grid if config.data is None else None,
        "data": None if config.data is None else str(config.data),
        "observation": {"shape": list(shape), "dtype": dtype},
        "components": config.components,
        "discount": config.discount,
        "activation": config.activation,
        "use": (INPUTS[config.inputs] if config.data is None else "") + how_to_start + USE,
    }
    return arrays, card
