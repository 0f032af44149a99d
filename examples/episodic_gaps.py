"""Do the gaps of an episodic buffer follow their closed form? Draw 10⁵ batches and look.

Walkers on a ring look for goals. A row holds several episodes, each of which ends when the walker
reaches its goal; the last state that acted and the final state are both marked. The picture shows
the gaps that were drawn beside P(gap) = Σ_starts P(start) (1−γ) γ^(gap−1) / (1−γⁿ).

    python examples/episodic_gaps.py --out episodic_gaps.png
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from loopless.reference.episodic import horizons
from loopless.replay.host.episodic.buffer import EpisodicReplayBuffer

CELLS = 12
DISCOUNTS = (0.2, 0.9, 0.99)


def walk(rng: np.random.Generator, steps: int) -> dict[str, np.ndarray]:
    """Return one row: episodes of a drifting walk, one after the other, `steps` in all."""
    cells, goals, marks = [], [], []
    while len(cells) < steps:
        cell, goal = int(rng.integers(CELLS)), int(rng.integers(CELLS))
        goal += cell == goal
        cells.append(cell)
        goals.append(goal)
        marks.append(False)
        while cell != goal % CELLS and len(cells) < steps:
            cell = (cell + int(rng.choice([-1, 1, 1]))) % CELLS
            cells.append(cell)
            goals.append(goal)
            marks.append(False)
        if cell == goal % CELLS:
            marks[-2:] = True, True
    angles = 2 * np.pi * np.array(cells) / CELLS
    return {
        "obs": np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32),
        "desired": np.array(goals, np.int64),
        "terminals": np.array(marks),
    }


def closed_form(rows: list[dict[str, np.ndarray]], discount: float) -> np.ndarray:
    """Return P(gap) for gap = 1, 2, …, by the law "episode"."""
    ahead = [np.array(horizons(row["terminals"].tolist(), "double")) for row in rows]
    longest = max(int(n.max()) for n in ahead)
    gaps = np.arange(1, longest + 1)
    law = np.zeros(longest)
    for n in ahead:
        n = n[n > 0, None]
        of_gap = np.where(gaps <= n, (1 - discount) * discount ** (gaps - 1) / (1 - discount**n), 0)
        law += of_gap.mean(0) / len(ahead)
    return law


def drawn(
    buffer: EpisodicReplayBuffer, discount: float, batches: int, batch_size: int, longest: int
) -> np.ndarray:
    """Return how often each gap is drawn, in calls of up to a thousand batches."""
    counts = np.zeros(longest + 1, np.int64)
    left = batches
    while left:
        call = min(left, 1000)
        gaps = buffer.sample(batch_size, discount=discount, batches=call)["gap"]
        counts += np.bincount(gaps.ravel(), minlength=longest + 1)
        left -= call
    return counts[1:]


def main(arguments: list[str] | None = None) -> dict[float, float]:
    """Draw, plot, and return χ² per degree of freedom for each discount: about 1 if they agree."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batches", type=int, default=100_000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("episodic_gaps.png"))
    args = parser.parse_args(arguments)

    rng = np.random.default_rng(args.seed)
    rows = [walk(rng, args.steps) for _ in range(args.rows)]
    fields = {"obs": ((2,), np.float32), "desired": ((), np.int64)}
    buffer = EpisodicReplayBuffer(args.rows * args.steps, fields, terminals="double")
    for row in rows:
        buffer.add_episode(**row)

    fits = {}
    figure, axes = plt.subplots(1, len(DISCOUNTS), figsize=(12, 3.6), layout="constrained")
    draws = args.batches * args.batch_size
    for axis, discount in zip(axes, DISCOUNTS, strict=True):
        law = closed_form(rows, discount)
        counts = drawn(buffer, discount, args.batches, args.batch_size, len(law))
        enough = law * draws >= 5
        squares = (counts - law * draws) ** 2 / np.where(enough, law * draws, 1)
        fits[discount] = float(squares[enough].sum() / (enough.sum() - 1))
        gaps = np.arange(1, len(law) + 1)
        axis.bar(gaps, counts / draws, width=1, color="#9ecae1", label=f"{draws:,} draws")
        axis.plot(gaps, law, ".", color="#d94801", markersize=4, label="closed form")
        axis.set_yscale("log")
        axis.set_ylim(0.3 / draws, 1.5)
        axis.set_title(f"γ = {discount}: χ² / df = {fits[discount]:.2f}")
        axis.set_xlabel("gap (steps)")
    axes[0].set_ylabel("frequency")
    axes[-1].legend()
    figure.savefig(args.out, dpi=120)
    plt.close(figure)
    return fits


if __name__ == "__main__":
    main()
