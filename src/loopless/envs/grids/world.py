"""A grid world as tables: what every state looks like, where every move leads, and how likely.

Everything else about grids is a gather from these tables: collection (`grid_collect`), the exact
eigenvectors (`grid_laplacian`), and both faces of the task (`grid_env`, `grid_gym`). Imports NumPy
only. Loop twins are in `tests/envs/test_grid_world.py`.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from loopless.envs.grids.generators import generate, with_random_doors
from loopless.envs.grids.layouts import Cell, Layout, unreachable
from loopless.envs.grids.parser import parse_layout, read_layout
from loopless.envs.refusals import EnvError, refuse
from loopless.refusals import check_choice, check_count

ACTIONS = ("up", "right", "down", "left")
_WALL, _FREE, _AGENT, _GOAL = (64, 64, 64), (255, 255, 255), (255, 0, 0), (0, 255, 0)


@dataclass(frozen=True)
class GridWorld:
    """The free cells of a `layout` as states 0 … S−1, row by row; actions up, right, down, left.

    A wall, an edge or a closed door leaves the agent where it is.
    """

    layout: Layout

    def __post_init__(self) -> None:
        layout = self.layout
        named = [layout.start] if layout.start else []
        named += [*layout.goals, *(door.cell for door in layout.doors)]
        named += [cell for portal in layout.portals for cell in (portal.cell, *portal.exits)]
        walled = [cell for cell in dict.fromkeys(named) if not layout.is_free(cell)]
        refuse(
            f"grid: {layout.name}",
            [f"row {row}, column {column} is no free cell" for row, column in walled],
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

    def state_of(self, cell: Cell) -> int:
        """The state at a row and a column; EnvError if there is none."""
        if not self.layout.is_free(cell):
            raise EnvError(f"grid: {self.layout.name}: {cell} (row, column) is no free cell.")
        return int(self.index[cell])

    @cached_property
    def _moves(self) -> tuple[np.ndarray, np.ndarray]:
        cells = self.layout.cells
        found = [[self.layout.outcomes(cell, action) for action in range(4)] for cell in cells]
        most = max(len(some) for row in found for some in row)
        targets = np.zeros((self.states, 4, most), np.int32)
        chances = np.zeros((self.states, 4, most))
        for state, row in enumerate(found):
            for action, some in enumerate(row):
                targets[state, action] = self.index[some[0][0]]
                for k, (cell, chance) in enumerate(some):
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
        found = np.zeros(self.states, bool)
        found[[self.index[cell] for cell in self.layout.goals]] = True
        return found

    @cached_property
    def starts(self) -> np.ndarray:
        """[states] float64: how likely an episode begins there: at S, or anywhere but at goals."""
        allowed = ~self.goals
        if self.layout.start is not None:
            allowed = np.arange(self.states) == self.index[self.layout.start]
        elif not allowed.any():
            raise EnvError(f"grid: {self.layout.name}: every free cell is a goal, none a start.")
        return allowed / allowed.sum()

    def policy(self, policy=None) -> np.ndarray:
        """`policy` [states, actions] checked and in float64; None is the uniform one."""
        if policy is None:
            return np.full((self.states, 4), 0.25)
        table = np.asarray(policy, np.float64)
        wrong = [] if table.shape == (self.states, 4) else [f"its shape is {table.shape}"]
        if not wrong and not (table >= 0).all():
            wrong.append("it holds negative numbers or NaN")
        if not wrong and not np.allclose(table.sum(1), 1, rtol=0, atol=1e-6):
            wrong.append(f"row {np.abs(table.sum(1) - 1).argmax()} does not sum to 1")
        refuse(f"grid: policy is [{self.states}, 4] of probabilities", wrong)
        return table / table.sum(1, keepdims=True)

    def transition_matrix(self, policy=None) -> np.ndarray:
        """P [states, states] float64: how likely a step under `policy` leads from one to the other.

        Goals do not stop this walk: where an episode ends is a matter of the task.
        """
        joint = self.policy(policy)[:, :, None] * self.chances
        matrix = np.zeros((self.states, self.states))
        np.add.at(matrix, (np.arange(self.states)[:, None, None], self.targets), joint)
        return matrix

    def xy(self, scaling: Literal["half", "centred"] = "half") -> np.ndarray:
        """[states, 2] float32: column and row of each state, as an encoder's input.

        "half" is xy/size − ½, in [−½, ½) on each axis; "centred" is (xy − size/2) / (longer side/2)
        and keeps the cells square.
        """
        refuse("grid: xy", check_choice("scaling", scaling, ("half", "centred")))
        size = np.array(self.layout.shape[::-1])
        xy = self.cells[:, ::-1]
        scaled = xy / size - 0.5 if scaling == "half" else (xy - size / 2) / (size.max() / 2)
        return scaled.astype(np.float32)

    def one_hot(self) -> np.ndarray:
        """[states, states] float32: the identity."""
        return np.eye(self.states, dtype=np.float32)

    def pictures(self, scale: int = 1) -> np.ndarray:
        """[states, height·scale, width·scale, 3] uint8: the grid, goals green, the agent red."""
        refuse("grid: pictures", check_count("scale", scale))
        ground = np.where(self.layout.free[..., None], _FREE, _WALL).astype(np.uint8)
        rows, columns = self.cells.T
        ground[rows[self.goals], columns[self.goals]] = _GOAL
        found = np.repeat(ground[None], self.states, 0)
        found[np.arange(self.states), rows, columns] = _AGENT
        return found.repeat(scale, 1).repeat(scale, 2)

    def on_the_grid(self, values: np.ndarray, fill: Any = np.nan) -> np.ndarray:
        """`values` [states, ...] laid out as [height, width, ...], with `fill` on walls."""
        values = np.asarray(values)
        laid = np.full(
            (*self.layout.shape, *values.shape[1:]), fill, np.result_type(values, type(fill))
        )
        laid[tuple(self.cells.T)] = values
        return laid


def make_grid(
    source: str | Path | Layout,
    *,
    doors: int = 0,
    door_seed: int = 42,
    goals: Any = None,
    lenient: bool = False,
) -> GridWorld:
    """The grid of a name ("GridRoom-4"), of a file, of a drawing with several lines, or a layout.

    `doors` so many passages become one-way, drawn by `door_seed`; `goals`, cells (row, column),
    replace those of the layout, () by none.
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
