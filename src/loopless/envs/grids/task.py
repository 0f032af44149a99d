"""Reaching a goal in a grid: the rules that the compiled and the Gymnasium face share, as tables.

Imports NumPy only. Its faces are `grid_env.Grid` and `grid_gym.GridEnv`, which are compared in
`tests/envs/test_grid_faces.py`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from loopless.envs.grids.world import GridWorld, make_grid
from loopless.envs.refusals import EnvError, refuse
from loopless.refusals import check_choice, check_count

OBSERVATIONS = ("xy", "one-hot", "pixels")


@dataclass(frozen=True)
class GridTask:
    """An agent walks a grid to a goal. Arriving pays 1 and terminates, all else pays 0.

    layout: a name ("GridRoom-4"), a file, or a drawing of several lines.
    goal: (row, column); if left out the layout's own, and if it has none its last free cell.
    obs: "xy" [2] float32, "one-hot" [states] float32, or "pixels" [height, width, 3] bytes.
    doors, door_seed: so many passages become one-way, drawn by the seed.
    max_steps: after so many an episode is truncated.

    An episode starts at S if the layout has one, else anywhere but at goals. The value of a start
    is γ^(distance − 1), which in a grid without chance every shortest path gets.
    """

    layout: str = "GridRoom-4"
    goal: Any = None
    obs: str = "xy"
    doors: int = 0
    door_seed: int = 42
    max_steps: int = 200

    actions: ClassVar[int] = 4

    def __post_init__(self) -> None:
        refuse(
            "envs: grid",
            check_choice("obs", self.obs, OBSERVATIONS),
            check_count("max_steps", self.max_steps),
            check_count("doors", self.doors, 0),
            check_count("door_seed", self.door_seed, 0),
        )
        if self.goal is not None:
            try:
                row, column = (int(x) for x in self.goal)
            except (TypeError, ValueError):
                raise EnvError(
                    f"envs: grid: goal is (row, column); received {self.goal!r}."
                ) from None
            object.__setattr__(self, "goal", (row, column))  # from lists too: it must be hashable
        _ = self.world  # a wrong layout is an error now, not at the first step

    @cached_property
    def world(self) -> GridWorld:
        found = make_grid(self.layout, doors=self.doors, door_seed=self.door_seed)
        goals = found.layout.goals if self.goal is None else (self.goal,)
        return GridWorld(found.layout.with_goals(goals or (found.layout.cells[-1],)))

    @cached_property
    def observations(self) -> np.ndarray:
        """[states, ...]: what each state looks like."""
        if self.obs == "pixels":
            return self.world.pictures()
        return self.world.xy() if self.obs == "xy" else self.world.one_hot()

    @property
    def obs_shape(self) -> tuple[int, ...]:
        return self.observations.shape[1:]

    @property
    def obs_dtype(self) -> str:
        return str(self.observations.dtype)

    @cached_property
    def reached(self) -> np.ndarray:
        """[states, actions, K] float32: running sums of the chances, the last one 1."""
        sums = self.world.chances.cumsum(-1)
        return (sums / sums[..., -1:]).astype(np.float32)

    @cached_property
    def start_states(self) -> np.ndarray:
        """[n] int32: where an episode may start, each alike."""
        return np.flatnonzero(self.world.starts).astype(np.int32)

    @cached_property
    def distances(self) -> np.ndarray:
        """[states] int64: the fewest moves to a goal, counting any that may succeed; −1 if none."""
        onward = self.world.transition_matrix() > 0
        found = np.where(self.world.goals, 0, -1)
        for moves in range(1, self.world.states):
            there = (found < 0) & onward[:, found == moves - 1].any(1)
            if not there.any():
                break
            found[there] = moves
        return found
