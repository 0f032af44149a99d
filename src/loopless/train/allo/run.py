"""A run of ALLO: the compiled program called chunk by chunk, its rows of metrics, its snapshots.

Imports `allo`, `allo_data`, `allo_scores` and `runs`. Tests: `tests/train/test_allo_runs.py`.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loopless.runs import trees
from loopless.runs.checkpoint import Checkpoint
from loopless.runs.failures import BadRun
from loopless.runs.progress.clock import Clock
from loopless.train.allo import scores
from loopless.train.allo.algorithm import Learner, build
from loopless.train.allo.config import ALLO
from loopless.train.allo.data import Source, on_device, source_of
from loopless.train.engine import run
from loopless.train.engine.agents import advance_agents, map_agents, place

MOST_SHOWN = 4_096  # states of a snapshot


class Schedule:
    """How many steps come before the next row of metrics, or before the outputs are shuffled."""

    def __init__(self, config: ALLO) -> None:
        self.events, self.config = config.steps, config

    def after(self, step: int) -> int:
        config = self.config
        ends = [config.steps, (step // config.log_every + 1) * config.log_every]
        if config.permute_at is not None and step < config.permute_at:
            ends.append(config.permute_at)
        return min(ends) - step


class Run(run.Run):
    """All agents, seed by seed and for each seed barrier by barrier, as one program."""

    shown = ("similarity_mean", "eigenvalue_error", "graph_loss")
    judged_by = "similarity_mean"

    def __init__(self, config: ALLO, source: Source | None = None) -> None:
        super().__init__(config, Schedule(config), 1)
        self.source = source_of(config) if source is None else source
        sampler, data = on_device(config, self.source)
        self.algorithm = algorithm = build(config, sampler, self.source.table)
        # Each seed has walks of its own, and agents that differ by their barrier share them.
        own = len(data) > 1
        agents = [one for one in data for _ in config.barrier]
        shared = jax.tree.map(lambda *x: jnp.stack(x), *agents) if own else data[0]
        self.data = place(shared, 0 if own else None, config.agents)
        seeds = [jax.random.key(config.seed + i) for i in range(config.seeds)]
        self.keys = jnp.stack([key for key in seeds for _ in config.barrier])
        barriers = jnp.tile(jnp.asarray(config.barrier, jnp.float32), config.seeds)
        self.state: Learner = jax.jit(map_agents(algorithm.init, (0, 0)))(self.keys, barriers)
        axes = (0, None, 0 if own else None, 0, None, None)
        self._chunk = jax.jit(advance_agents(algorithm.chunk, axes), donate_argnums=0)
        self._shuffle = jax.jit(map_agents(algorithm.shuffled, (0, 0)))
        self._judge = jax.jit(map_agents(algorithm.judged, (0, None)))
        self._eigenvalues = jax.jit(map_agents(algorithm.eigenvalues, (0,)))
        self.table = place(jnp.asarray(self.source.table), None, config.agents)
        self.seen = self.table if self.source.truth is not None else self.table[:MOST_SHOWN]

    @property
    def learner(self) -> Learner:
        return self.state

    def advance(self, clock: Clock) -> Mapping[str, Any]:
        steps = self.chunks.after(self.event)
        with clock("learn"):
            if self.event == self.config.permute_at:
                self.state = self._shuffle(self.state, self.keys)
            self.state, report = self._chunk(
                self.state, self.table, self.data, self.keys, np.int32(self.event), np.int32(steps)
            )
            jax.block_until_ready(self.state)
        self.event += steps
        with clock("log"):
            return self.describe(report)

    def describe(self, report: Any) -> dict[str, Any]:
        config, truth, judged = self.config, self.source.truth, self.judged()
        errors = np.abs(np.asarray(self.state.errors)).reshape(config.agents, -1).max(1)
        row: dict[str, Any] = {
            **{name: np.asarray(value) for name, value in report._asdict().items()},
            "orthogonality_error": errors,
            "updates": np.asarray(self.state.updates),
            "skipped_updates": np.asarray(self.state.skipped),
            "barrier": np.asarray(self.state.multipliers.barrier),
        }
        components = {"eigenvalue": judged["eigenvalues"]}
        if config.objective == "allo":
            components["dual"] = judged["duals"]
        if truth is not None:
            components["similarity"] = scores.similarity(judged["learned"], truth)
            row["similarity_mean"] = components["similarity"].mean(1)
            row["eigenvalue_error"] = scores.eigenvalue_error(judged["eigenvalues"], truth)
            if self._is_drawn and self.hitting_times is not None:
                row["hitting_time_correlation"] = self._correlations(judged, truth.weights)
        if config.agents == 1:
            row = {name: value.reshape(())[()] for name, value in row.items()}
        return row | components

    @property
    def _is_drawn(self) -> bool:
        """Whether this step has pictures, and so the scores that take longer."""
        every = self.config.plot_every
        return self.event == self.total or (every > 0 and self.event % every == 0)

    def _correlations(self, judged: Mapping[str, np.ndarray], weights: np.ndarray) -> np.ndarray:
        assert self.hitting_times is not None
        agents = zip(judged["learned"], judged["eigenvalues"], strict=True)
        return np.array([self.hitting_times.correlation(*agent, weights) for agent in agents])

    @cached_property
    def hitting_times(self) -> scores.HittingTimes | None:
        world = self.source.world
        if world is None or not scores.HittingTimes.exist(world):
            return None
        return scores.HittingTimes(self.config, world)

    def judged(self) -> dict[str, np.ndarray]:
        """Of every agent: the features of all states, eigenvalues and duals."""
        found = self._judge(self.state, self.seen)
        return {name: np.asarray(x) for name, x in found.items()}

    def snapshot(self) -> Mapping[str, np.ndarray]:
        source, judged = self.source, self.judged()
        found = {
            "step": np.int64(self.event),
            "visits": source.visits[:MOST_SHOWN],
            **{name: judged[name].astype(np.float32) for name in ("learned", "eigenvalues")},
        }
        if self.config.objective == "allo":
            found["duals"] = judged["duals"].astype(np.float32)
        if source.world is not None:
            found |= {"walls": ~source.world.layout.free, "cells": source.world.cells}
        if source.truth is not None:
            truth = source.truth
            found |= {
                "truth": truth.vectors.astype(np.float32),
                "spaces": truth.spaces.astype(np.int32),
                "weights": truth.weights.astype(np.float32),
                "kernel_eigenvalues": truth.values.astype(np.float32),
                "similarities": scores.similarity(judged["learned"], truth).astype(np.float32),
            }
        return found

    def outcome(self, last: Mapping[str, Any]) -> str | None:
        if "similarity_mean" not in last:
            values = ", ".join(f"{value:.4f}" for value in last["eigenvalue"][0])
            return f"Eigenvalues {values}."
        means = np.atleast_1d(last["similarity_mean"])
        return f"Mean similarity {', '.join(f'{value:.4f}' for value in means)}."

    def agent_name(self, number: int) -> str:
        seed, which = divmod(number, len(self.config.barrier))
        barrier = (
            f", barrier {self.config.barrier[which]:g}" if len(self.config.barrier) > 1 else ""
        )
        return f"seed {self.config.seed + seed}{barrier}"

    # --- checkpoints ---------------------------------------------------------------------------

    def evaluate(self) -> Mapping[str, Any]:
        raise NotImplementedError("every row of metrics judges all that there is")

    def arrays(self) -> Mapping[str, Any]:
        return trees.flatten(self._tree())

    def _tree(self) -> dict[str, Any]:
        learner = self.state
        acting = {"online": learner.weights, "eigenvalues": self._eigenvalues(learner)}
        found = {"weights": acting, "learner": learner._replace(weights=None)}
        if self.config.agents == 1:
            found = jax.tree.map(lambda x: np.asarray(x)[0], found)  # a view: no program runs
        return {**found, "event": np.int64(self.event), "data": self.source.digest}

    def restore(self, checkpoint: Checkpoint) -> str:
        found = trees.unflatten(self._tree(), checkpoint.arrays)
        if not np.array_equal(found["data"], self.source.digest):
            origin = self.config.data or self.config.grid
            raise BadRun(
                f"run: the trajectories of {origin} are others than {checkpoint.name} was trained "
                f"on. Put the file back as it was; or start a run of its own."
            )
        learner = found["learner"]._replace(weights=found["weights"]["online"])
        self.state = learner if self.config.agents > 1 else jax.tree.map(lambda x: x[None], learner)
        self.event = int(found["event"])
        return ""
