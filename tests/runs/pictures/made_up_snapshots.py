"""Snapshots as a run leaves them that learns eigenvectors: the true ones, ever less noisy."""

from pathlib import Path

import numpy as np

from loopless.envs.grids.laplacian import eigenpairs, geometric_pairs
from loopless.envs.grids.world import make_grid
from loopless.kernels.laplacian.duals import similarities
from loopless.runs.pictures import snapshots
from loopless.runs.pictures.plots import Run


def made_up(grid="GridRoom-4", d=11, seeds=1, count=12, steps=20_000):
    """One snapshot after the other."""
    world = make_grid(grid)
    found = eigenpairs(geometric_pairs(world.transition_matrix(), 0.9)).first(d)
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((seeds, world.states, d))
    signs = rng.choice([-1.0, 1.0], d)
    for at in range(1, count + 1):
        amount = 2 * np.exp(-6 * (at / count) / (1 + np.arange(d) / 4))
        learned = 3 * (signs * found.vectors[:, :d] + amount * noise)
        scores = [similarities(one, found.vectors, found.spaces, found.weights) for one in learned]
        yield {
            "step": np.int64(at * steps // count),
            "learned": learned.astype(np.float32),
            "walls": ~world.layout.free,
            "cells": world.cells,
            "visits": rng.multinomial(1_000_000, found.weights),
            "truth": found.vectors.astype(np.float32),
            "spaces": found.spaces.astype(np.int32),
            "weights": found.weights.astype(np.float32),
            "similarities": np.array(scores, np.float32),
            "kernel_eigenvalues": found.values.astype(np.float32),
            "eigenvalues": np.tile(found.values[:d] + amount / 9, (seeds, 1)).astype(np.float32),
            "duals": np.tile(-2 * found.values[:d] * (1 - np.exp(-at / count)), (seeds, 1)),
        }


def write(folder: Path, without=(), **options) -> Run:
    """A run with such snapshots, and the same numbers in its log."""
    folder.mkdir(exist_ok=True)
    found = list(made_up(**options))
    for snapshot in found:
        snapshots.save(folder, {name: x for name, x in snapshot.items() if name not in without})
    train = {"step": np.array([int(one["step"]) for one in found])}
    logged = {"similarity": "similarities", "eigenvalue": "eigenvalues"}
    train |= {
        metric: np.stack([one[name] for one in found])
        for metric, name in logged.items()
        if name not in without
    }
    return Run(folder, train, {})
