"""The figures that the original drew in its loop: eigenvectors, learning curves, duals; by pyplot.

Imports matplotlib. Tests: `tests/suites/allo_speed/test_bench_allo.py`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from loopless.envs.grids.world import make_grid
from suites.allo_speed.cases import GRID

CURVES = ("allo", "graph", "errors", "dual", "barrier_term", "gradient_norm")
DPI = 300


def draw(
    folder: Path, features: np.ndarray, duals: np.ndarray, history: list[dict[str, float]]
) -> None:
    """Three figures, drawn and written while the caller waits."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    world, d = make_grid(GRID), features.shape[1]
    across = 5
    figure, axes = pyplot.subplots(-(-d // across), across, figsize=(20, 8), squeeze=False)
    for at, axis in enumerate(axes.flat):
        if at < d:
            image = axis.imshow(world.on_the_grid(features[:, at]), cmap="RdBu_r")
            axis.set_title(f"Eigenvector {at}")
            pyplot.colorbar(image, ax=axis)
    figure.tight_layout()
    figure.savefig(folder / "eigenvectors.png", dpi=DPI)
    pyplot.close(figure)

    figure, axes = pyplot.subplots(2, 3, figsize=(15, 8))
    for name, axis in zip(CURVES, axes.flat, strict=True):
        axis.plot([row[name] for row in history])
        axis.set_title(name)
    figure.tight_layout()
    figure.savefig(folder / "learning_curves.png", dpi=DPI)
    pyplot.close(figure)

    figure, axes = pyplot.subplots(1, 2, figsize=(14, 5))
    for at in range(d):
        values = np.array([row[f"dual_{at}"] for row in history])
        axes[0].plot(-0.5 * values, label=f"{at}")
        axes[1].semilogy(np.abs(values - duals[at, at]) + 1e-9)
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(folder / "duals.png", dpi=DPI)
    pyplot.close(figure)
