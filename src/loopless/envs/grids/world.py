"""A grid world as tables: what every state looks like, where every move leads, and how likely.

Everything else about grids reads these tables: collection (`collect.py`), exact eigenvectors
(`laplacian.py`), and the environments that use `GridTask` (`envs.compiled.tables.Grid`,
`gym.GridEnv`).
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from loopless.envs import EnvError, refuse
from loopless.envs.grids.generators import generate, with_random_doors
from loopless.envs.grids.layouts import Layout, parse_layout, read_layout, unreachable
from loopless.refusals import check_choice, check_count

ACTIONS = ("up", "right", "down", "left")
OBSERVATIONS = ("xy", "one-hot", "pixels")
_WALL, _FREE, _AGENT, _GOAL = (64, 64, 64), (255, 255, 255), (255, 0, 0), (0, 255, 0)


@dataclass(frozen=True)
class GridWorld:
    """The free cells of a `layout` as states 0 … S−1, row by row; actions up, right, down, left.

    A wall, an edge or a closed door leaves the agent where it is.
    """

    layout: Layout

    def __post_init__(self) -> None:
        layout = self.layout
        used = [layout.start] if layout.start else []
        used += [*layout.goals, *(door.cell for door in layout.doors)]
        used += [cell for portal in layout.portals for cell in (portal.cell, *portal.exits)]
        walls = [cell for cell in dict.fromkeys(used) if not layout.is_free(cell)]
        refuse(
            f"grid: {layout.name}",
            [f"row {row}, column {column} is not a free cell" for row, column in walls],
            [] if layout.cells else ["there is no free cell"],
        )
        apart = unreachable(layout)
        if apart:
            raise EnvError(
                f"grid: {layout.name}: {len(apart)} free cells cannot be reached, the first in row "
                f"{apart[0][0]}, column {apart[0][1]} (from 0). Wall them in, or open a way."
            )

    @property
    def states(self) -> int:
        return len(self.cells)

    @cached_property
    def cells(self) -> np.ndarray:
        """[states, 2] int32: the row and the column of each state."""
        return np.argwhere(self.layout.free).astype(np.int32)

    @cached_property
    def index(self) -> np.ndarray:
        """[height, width] int32: the state of each cell, −1 for walls."""
        free = self.layout.free
        return np.where(free, np.cumsum(free).reshape(free.shape) - 1, -1).astype(np.int32)

    @cached_property
    def _moves(self) -> tuple[np.ndarray, np.ndarray]:
        cells = self.layout.cells
        moves = [[self.layout.outcomes(cell, action) for action in range(4)] for cell in cells]
        most = max(len(outcomes) for row in moves for outcomes in row)
        targets = np.zeros((self.states, 4, most), np.int32)
        chances = np.zeros((self.states, 4, most))
        for state, row in enumerate(moves):
            for action, outcomes in enumerate(row):
                targets[state, action] = self.index[outcomes[0][0]]
                for k, (cell, chance) in enumerate(outcomes):
                    targets[state, action, k] = self.index[cell]
                    chances[state, action, k] = chance
        return targets, chances

    @property
    def targets(self) -> np.ndarray:
        """[states, actions, K] int32: where a move may lead; K is 1 if nothing is random."""
        return self._moves[0]

    @property
    def chances(self) -> np.ndarray:
        """[states, actions, K] float64: how likely each of `targets` is; every row sums to 1."""
        return self._moves[1]

    @cached_property
    def goals(self) -> np.ndarray:
        """[states] bool: where an episode ends."""
        goals = np.zeros(self.states, bool)
        goals[[self.index[cell] for cell in self.layout.goals]] = True
        return goals

    @cached_property
    def starts(self) -> np.ndarray:
        """[states] float64: how likely an episode begins there: at S, or anywhere but on goals."""
        allowed = ~self.goals
        if self.layout.start is not None:
            allowed = np.arange(self.states) == self.index[self.layout.start]
        elif not allowed.any():
            raise EnvError(f"grid: {self.layout.name}: every free cell is a goal, none a start.")
        return allowed / allowed.sum()

    def policy(self, policy=None) -> np.ndarray:
        """Return `policy` [states, actions] checked and in float64; None is the uniform one."""
        if policy is None:
            return np.full((self.states, 4), 0.25)
        table = np.asarray(policy, np.float64)
        problems = [] if table.shape == (self.states, 4) else [f"its shape is {table.shape}"]
        if not problems and not (table >= 0).all():
            problems.append("it holds negative numbers or NaN")
        if not problems and not np.allclose(table.sum(1), 1, rtol=0, atol=1e-6):
            problems.append(f"row {np.abs(table.sum(1) - 1).argmax()} does not sum to 1")
        refuse(f"grid: policy is [{self.states}, 4] of probabilities", problems)
        return table / table.sum(1, keepdims=True)

    def transition_matrix(self, policy=None) -> np.ndarray:
        """Return P [states, states] float64: how likely a step of `policy` leads from s to s'.

        Goals do not stop this walk; where an episode ends is for the task to say.
        """
        joint = self.policy(policy)[:, :, None] * self.chances
        matrix = np.zeros((self.states, self.states))
        np.add.at(matrix, (np.arange(self.states)[:, None, None], self.targets), joint)
        return matrix

    def xy(self, scaling: Literal["half", "centred"] = "half") -> np.ndarray:
        """Return [states, 2] float32: column and row of each state, as input of an encoder.

        "half" is xy/size − ½, in [−½, ½) on each axis; "centred" is (xy − size/2) / (longer side/2)
        and keeps the cells square.
        """
        refuse("grid: xy", check_choice("scaling", scaling, ("half", "centred")))
        size = np.array(self.layout.shape[::-1])
        xy = self.cells[:, ::-1]
        scaled = xy / size - 0.5 if scaling == "half" else (xy - size / 2) / (size.max() / 2)
        return scaled.astype(np.float32)

    def one_hot(self) -> np.ndarray:
        """Return [states, states] float32: the identity."""
        return np.eye(self.states, dtype=np.float32)

    def pictures(self, scale: int = 1) -> np.ndarray:
        """Return [states, height·scale, width·scale, 3] uint8, goals green and the agent red."""
        refuse("grid: pictures", check_count("scale", scale))
        ground = np.where(self.layout.free[..., None], _FREE, _WALL).astype(np.uint8)
        rows, columns = self.cells.T
        ground[rows[self.goals], columns[self.goals]] = _GOAL
        pictures = np.repeat(ground[None], self.states, 0)
        pictures[np.arange(self.states), rows, columns] = _AGENT
        return pictures.repeat(scale, 1).repeat(scale, 2)

    def on_the_grid(self, values: np.ndarray, fill: Any = np.nan) -> np.ndarray:
        """Return `values` [states, ...] laid out as [height, width, ...], with `fill` on walls."""
        values = np.asarray(values)
        shape, dtype = (*self.layout.shape, *values.shape[1:]), np.result_type(values, type(fill))
        grid = np.full(shape, fill, dtype)
        grid[tuple(self.cells.T)] = values
        return grid


def make_grid(
    source: str | Path | Layout,
    *,
    doors: int = 0,
    door_seed: int = 42,
    goals: Any = None,
    lenient: bool = False,
) -> GridWorld:
    """Return the grid of a name ("GridRoom-4"), a file, a drawing of several lines, or a layout.

    As many passages as `doors` says become one-way, chosen by `door_seed`. `goals`, cells
    (row, column), replace those of the layout; () means none.
    """
    layout = _layout_of(source, lenient)
    if goals is not None:
        layout = layout.with_goals(tuple((int(row), int(column)) for row, column in goals))
    if doors:
        layout = with_random_doors(layout, doors, door_seed)
    return GridWorld(layout)


def _layout_of(source: str | Path | Layout, lenient: bool) -> Layout:
    if isinstance(source, Layout):
        return source
    if isinstance(source, str) and "\n" in source:
        return parse_layout(source, "drawing", lenient=lenient)
    looks_like_a_path = isinstance(source, Path) or "/" in source or source.endswith(".txt")
    if looks_like_a_path or Path(source).is_file():
        return read_layout(source, lenient=lenient)
    return generate(str(source))


@dataclass(frozen=True)
class GridTask:
    """An agent walks a grid to a goal. Arriving pays 1 and terminates, all else pays 0.

    layout: a name ("GridRoom-4"), a file, or a drawing of several lines.
    goal: (row, column); by default that of the layout, or else its last free cell.
    obs: "xy" [2] float32, "one-hot" [states] float32, or "pixels" [height, width, 3] uint8.
    doors, door_seed: how many passages become one-way, and the seed that chooses them.
    max_steps: the number of steps after which an episode is truncated.

    An episode starts at S if the layout has one, else anywhere but on goals. The optimal value of a
    start is γ^(distance − 1) if no move is random.
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
            object.__setattr__(self, "goal", (row, column))  # a list would not be hashable
        _ = self.world  # so that a wrong layout is an error now, not at the first step

    @cached_property
    def world(self) -> GridWorld:
        layout = make_grid(self.layout, doors=self.doors, door_seed=self.door_seed).layout
        goals = layout.goals if self.goal is None else (self.goal,)
        return GridWorld(layout.with_goals(goals or (layout.cells[-1],)))

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
    def cumulative_chances(self) -> np.ndarray:
        """[states, actions, K] float32: running sums of the world's `chances`, the last one 1."""
        return running_sums(self.world.chances).astype(np.float32)

    @cached_property
    def start_states(self) -> np.ndarray:
        """[n] int32: where an episode may start, all equally likely."""
        return np.flatnonzero(self.world.starts).astype(np.int32)

    @cached_property
    def distances(self) -> np.ndarray:
        """[states] int64: the fewest moves to a goal, if all succeed; −1 if there is no way."""
        can_follow = self.world.transition_matrix() > 0
        distances = np.where(self.world.goals, 0, -1)
        for moves in range(1, self.world.states):
            next_states = (distances < 0) & can_follow[:, distances == moves - 1].any(1)
            if not next_states.any():
                break
            distances[next_states] = moves
        return distances


def running_sums(chances: np.ndarray) -> np.ndarray:
    """Return running sums over the last axis that end at exactly 1, to draw outcomes with."""
    sums = chances.cumsum(-1)
    return sums / sums[..., -1:]
