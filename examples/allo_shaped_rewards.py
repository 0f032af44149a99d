"""Does a Laplacian representation help an agent to reach a far goal? Shape its rewards, and look.

The first eigenvectors of the random walk tell how far it is from one cell to another: distances of
the features ψ = φ/√λ account for walls. So ALLO learns them from random walks that know of no goal,
and DQN gets, beside its reward of 1 at the goal, a reward for coming nearer to it in the features:

    r' = r + scale · (γ Φ(s') − Φ(s)),     Φ(s) = −|ψ(s) − ψ(goal)|,   Φ(goal) = 0 at the end

which changes no optimal policy (Ng, Harada & Russell 1999). Both agents are judged by the share
of greedy episodes that arrive.

    python examples/allo_shaped_rewards.py --out shaped_rewards.png
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from loopless.envs.grids.gym import GridEnv
from loopless.envs.grids.world import GridWorld, make_grid
from loopless.runs.progress.clock import Clock
from loopless.train import dqn
from loopless.train.allo.config import ALLO
from loopless.train.allo.run import ALLORun
from loopless.train.dqn.config import DQN

GAMMA = 0.99
PLAIN, SHAPED = "FarGoal-v0", "FarGoalShaped-v0"


def drawing(grid: str) -> str:
    """Return the grid as text, with start S and goal G as far apart as possible."""
    world = make_grid(grid)
    steps = np.array([distances(world, state) for state in range(world.states)])
    start, goal = np.unravel_index(steps.argmax(), steps.shape)
    rows = [["." if free else "X" for free in row] for row in world.layout.free]
    for state, letter in ((start, "S"), (goal, "G")):
        row, column = world.cells[state]
        rows[row][column] = letter
    return "\n".join(map("".join, rows))


def distances(world: GridWorld, state: int) -> np.ndarray:
    """Return the fewest moves from `state` to each state, [states]."""
    found = np.where(np.arange(world.states) == state, 0, world.states)
    for moves in range(1, world.states):
        onward = np.unique(world.targets[found == moves - 1])
        found[onward] = np.minimum(found[onward], moves)
    return found


def represented(grid: str, steps: int, seed: int) -> np.ndarray:
    """Learn features [states, d] in which distance means time to reach, from random walks."""
    far = {"discount": 0.99, "episode_length": 500}  # long gaps tell slow walks apart
    config = ALLO(grid=grid, steps=steps, seed=seed, components=8, log_every=steps, **far)
    run = ALLORun(config)
    row = run.advance(Clock())
    print(f"ALLO on {grid}: mean similarity {row['similarity_mean']:.4f}")
    found = run.snapshot()
    features, values = found["learned"][0], found["eigenvalues"][0]
    return features[:, 1:] / np.sqrt(np.maximum(values[1:], 1e-3))


class Shaped(GridEnv):
    """The same task, with a reward for coming nearer to the goal in the representation."""

    def __init__(self, potential: np.ndarray, **fields: Any) -> None:
        super().__init__(**fields)
        self.potential = potential

    def step(self, action: Any) -> tuple:
        before = self.potential[self._position]
        obs, reward, arrived, late, info = super().step(action)
        after = 0.0 if arrived else self.potential[self._position]
        return obs, reward + GAMMA * after - before, arrived, late, info


def learned(config: DQN) -> np.ndarray:
    """Train; return rows of (environment steps, whether the greedy agent arrives).

    One greedy episode is enough, because nothing in it is random.
    """
    run, rows, clock = dqn.make(config), [], Clock()
    try:
        while run.step < run.total:
            run.advance(clock)
            acting = run.learner.acting()
            weights = {name: np.asarray(x) for name, x in acting.items()}
            judge = dqn.player(replace(config, env=PLAIN), weights)
            rows.append((run.step, judge.episodes(1, 10_000)[0].mean()))
    finally:
        run.close()
    return np.array(rows)


def main(arguments: list[str] | None = None) -> dict[str, np.ndarray]:
    """Train, plot, and return the curves of both agents, [seeds, rows, 2]."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--grid", default="GridRoom-16")
    parser.add_argument("--allo-steps", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--every", type=int, default=2_000)
    parser.add_argument("--out", type=Path, default=Path("shaped_rewards.png"))
    args = parser.parse_args(arguments)

    layout = drawing(args.grid)
    features = represented(args.grid, args.allo_steps, 0)
    fields = {"layout": layout, "obs": "one-hot", "max_steps": 200}
    goal = int(np.flatnonzero(GridEnv(**fields).task.world.goals)[0])
    potential = -args.scale * np.linalg.norm(features - features[goal], axis=1)
    for env_id, entry, more in ((PLAIN, GridEnv, {}), (SHAPED, Shaped, {"potential": potential})):
        gymnasium.registry.pop(env_id, None)
        gymnasium.register(env_id, entry, kwargs=fields | more)

    config = DQN(
        mode="hosted", steps=args.steps, gamma=GAMMA, double=True, n_step=5, updates=4,
        hidden=(128,), learning_starts=1_000, buffer_size=50_000, explore_steps=args.steps // 2,
        learning_rate=1e-3, learning_rate_end=1e-4, eval_every=0, log_every=args.every,
    )  # fmt: skip
    curves = {
        name: np.array([
            learned(replace(config, env=env_id, seed=seed))
            for seed in range(args.seeds)
        ])
        for name, env_id in (("goal alone", PLAIN), ("shaped by the representation", SHAPED))
    }  # fmt: skip
    draw(args.out, layout, potential, curves)
    return curves


def draw(out: Path, layout: str, potential: np.ndarray, curves: dict[str, np.ndarray]) -> None:
    """Draw the potential on the grid, and how soon each agent arrives."""
    world = make_grid(layout)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    colours = plt.get_cmap("viridis").with_extremes(bad="#B8B8B8")
    image = left.imshow(world.on_the_grid(potential), colours)
    figure.colorbar(image, ax=left, label="potential")
    for letter in "SG":
        text = layout.replace("\n", "")
        row, column = divmod(text.index(letter), world.layout.shape[1])
        left.text(column, row, letter, ha="center", va="center", color="white", weight="bold")
    left.set_axis_off()
    left.set_title("nearness to the goal, as learned")
    for (name, found), colour in zip(curves.items(), ("#0072B2", "#D55E00"), strict=True):
        steps, arrived = found[0, :, 0], found[:, :, 1]
        right.plot(steps, arrived.mean(0), color=colour, label=name, linewidth=2)
        right.fill_between(steps, arrived.min(0), arrived.max(0), color=colour, alpha=0.15)
    right.set_xlabel("environment steps")
    right.set_ylabel("greedy agents that arrive")
    right.set_title(f"DQN, {len(found)} seeds: mean and range")
    right.legend(frameon=False, loc="upper left")
    figure.savefig(out, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()
