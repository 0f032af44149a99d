"""Learn Laplacian features of your own trajectories: a file with observations and ends is enough.

A point walks on a ring, and all that is recorded is where a camera sees it: (cos θ, sin θ), in
episodes of unequal length. The eigenvectors of such a walk are known: 1, then sin and cos of θ,
of 2θ, …, each pair with one eigenvalue. ALLO finds them from the file alone; the picture shows
each learned eigenvector beside the nearest wave of its frequency.

    python examples/allo_own_trajectories.py --out own_trajectories.png

The same from the command line, with any file that holds `obs` and `terminals`:

    loopless train allo --data walks.npz --terminals single
"""

import argparse
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from loopless.runs.progress.clock import Clock
from loopless.train.allo.config import ALLO
from loopless.train.allo.run import ALLORun

CELLS = 60


def write_walks(path: Path, rows: int, seed: int = 0) -> None:
    """Write episodes one after the other: obs [steps, 2], and terminals [steps], true at ends."""
    rng = np.random.default_rng(seed)
    obs, terminals = [], []
    for _ in range(rows):
        moves = rng.choice([-2, -1, 1, 2], size=rng.integers(40, 120))
        cells = np.cumsum([rng.integers(CELLS), *moves]) % CELLS
        angles = 2 * np.pi * cells / CELLS
        obs.append(np.stack([np.cos(angles), np.sin(angles)], 1))
        terminals.append(np.arange(len(cells)) == len(cells) - 1)
    np.savez(path, obs=np.concatenate(obs).astype(np.float32), terminals=np.concatenate(terminals))


def waves(angles: np.ndarray, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the wave of its frequency that is nearest to each feature, and how near, up to 1."""
    found = np.zeros_like(features)
    for at in range(features.shape[1]):
        number = (at + 1) // 2
        basis = np.stack([np.cos(number * angles), np.sin(number * angles)], 1)
        found[:, at] = basis @ np.linalg.lstsq(basis, features[:, at], rcond=None)[0]
    near = np.linalg.norm(found, axis=0) / np.linalg.norm(features, axis=0)
    return found, near


def main(arguments: list[str] | None = None) -> np.ndarray:
    """Write the file, learn from it, plot; return how near each feature is to its wave."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--steps", type=int, default=5_000)
    parser.add_argument("--components", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("own_trajectories.png"))
    args = parser.parse_args(arguments)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "walks.npz"
        write_walks(path, args.rows)
        config = ALLO(
            data=path, terminals="single", steps=args.steps, log_every=args.steps,
            components=args.components, hidden=(128, 128),
        )  # fmt: skip
        run = ALLORun(config)
        run.advance(Clock())
    features = run.snapshot()["learned"][0].astype(np.float64)
    table = run.source.table
    angles = np.arctan2(table[:, 1], table[:, 0])
    found, near = waves(angles, features)

    order = np.argsort(angles)
    figure, axes = plt.subplots(2, -(-args.components // 2), figsize=(12, 5), layout="constrained")
    for at, axis in enumerate(axes.flat):
        axis.set_axis_off()
        if at < args.components:
            axis.set_axis_on()
            axis.plot(angles[order], found[order, at], color="#D55E00", label="nearest wave")
            axis.plot(angles[order], features[order, at], ".", color="#0072B2", label="learned")
            axis.set_title(f"{at + 1}: {near[at]:.3f} of it is wave {(at + 1) // 2}", fontsize=10)
            axis.set_xlabel("θ")
            axis.set_ylim(-1.7, 1.7)
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="lower right", frameon=False)
    figure.savefig(args.out, dpi=120)
    plt.close(figure)
    return near


if __name__ == "__main__":
    print(main())
