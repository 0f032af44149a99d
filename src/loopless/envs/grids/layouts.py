"""What a grid world is drawn as: walls, start, goals, one-way doors and portals, and its moves.

A layout holds nothing but tuples and text, so that it is hashable and can be written into a file
again with all that makes it one (`text`). Where a move leads is said here once; `grid.GridWorld`
makes tables of it. Imports NumPy only. Layouts are read by `grid_parser` and made by
`grid_generators`. Tests: `tests/envs/test_grid_layouts.py`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

DIRECTIONS = "URDL"  # actions 0 … 3: up, right, down, left
STEPS = ((-1, 0), (0, 1), (1, 0), (0, -1))  # rows and columns that each moves by

Cell = tuple[int, int]  # row and column, from 0 at the top left


class Door(NamedTuple):
    """A passage that is free in `direction`; the way back succeeds with probability `chance`."""

    cell: Cell
    direction: int
    chance: float = 0.0


class Portal(NamedTuple):
    """Moving in `direction` from `cell` leads to one of `exits`, by their weights."""

    cell: Cell
    direction: int
    exits: tuple[Cell, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True)
class Layout:
    """A drawing of `rows` of one length, X for a wall and . for a free cell, and what is in it.

    Without a `start` an episode begins at any free cell that is no goal.
    """

    name: str
    rows: tuple[str, ...]
    start: Cell | None = None
    goals: tuple[Cell, ...] = ()
    doors: tuple[Door, ...] = ()
    portals: tuple[Portal, ...] = ()

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width."""
        return len(self.rows), len(self.rows[0]) if self.rows else 0

    @property
    def free(self) -> np.ndarray:
        """[height, width]: where an agent can be."""
        cells = [[cell != "X" for cell in row] for row in self.rows]
        return np.array(cells, bool).reshape(self.shape)

    @property
    def cells(self) -> list[Cell]:
        """The free cells, row by row: the i-th is state i."""
        return [(int(row), int(column)) for row, column in np.argwhere(self.free)]

    def is_free(self, cell: Cell) -> bool:
        """Whether there is such a cell and no wall on it."""
        (row, column), (height, width) = cell, self.shape
        return 0 <= row < height and 0 <= column < width and self.rows[row][column] != "X"

    def outcomes(self, cell: Cell, direction: int) -> list[tuple[Cell, float]]:
        """Where a move may lead, with probabilities: walls and closed doors leave one in place."""
        if (portal := self._portals.get((cell, direction))) is not None:
            total = sum(portal.weights)
            return [(e, w / total) for e, w in zip(portal.exits, portal.weights, strict=True) if w]
        there = ahead(cell, direction)
        if not self.is_free(there):
            return [(cell, 1.0)]
        door = self._doors.get((there, opposite(direction)))
        if door is None or door.chance == 1:
            return [(there, 1.0)]
        if door.chance == 0:
            return [(cell, 1.0)]
        return [(there, door.chance), (cell, 1.0 - door.chance)]

    def with_goals(self, goals: Iterable[Cell]) -> "Layout":
        """The same with other goals, or with none."""
        return replace(self, goals=tuple(goals))

    def text(self) -> str:
        """The layout in the comma format, from which `grid_parser.parse_layout` makes it again."""
        exits = {cell: i for i, cell in enumerate({e: None for p in self.portals for e in p.exits})}
        height, width = self.shape
        cells = [[self._tokens((r, c), exits) for c in range(width)] for r in range(height)]
        return "\n".join(",".join(row) for row in cells) + "\n"

    def _tokens(self, cell: Cell, exits: dict[Cell, int]) -> str:
        """One cell of the comma format."""
        if not self.is_free(cell):
            return "X"
        tokens = ["S"] if cell == self.start else []
        tokens += ["G"] if cell in self.goals else []
        tokens += [
            f"D{DIRECTIONS[d.direction]}" + (f":{d.chance!r}" if d.chance else "")
            for d in self.doors
            if d.cell == cell
        ]
        tokens += [f"E{exits[cell]}"] if cell in exits else []
        tokens += [
            f"P{DIRECTIONS[p.direction]}:"
            + "_".join(f"{exits[e]}@{w!r}" for e, w in zip(p.exits, p.weights, strict=True))
            for p in self.portals
            if p.cell == cell
        ]
        return " ".join(tokens) or "."

    @cached_property
    def _doors(self) -> dict[tuple[Cell, int], Door]:
        return {(door.cell, door.direction): door for door in self.doors}

    @cached_property
    def _portals(self) -> dict[tuple[Cell, int], Portal]:
        return {(portal.cell, portal.direction): portal for portal in self.portals}


def ahead(cell: Cell, direction: int) -> Cell:
    """The neighbour in `direction`, wall or not."""
    down, right = STEPS[direction]
    return cell[0] + down, cell[1] + right


def opposite(direction: int) -> int:
    return (direction + 2) % 4


def unreachable(layout: Layout) -> list[Cell]:
    """The free cells that no episode comes to: apart from the start, or from the largest part.

    Without a start an episode may begin anywhere, and cells count as together if there is a way
    between them in either direction.
    """
    cells = layout.cells
    onward: dict[Cell, set[Cell]] = {cell: set() for cell in cells}
    for cell in cells:
        for direction in range(4):
            for there, _ in layout.outcomes(cell, direction):
                onward[cell].add(there)
                if layout.start is None:
                    onward[there].add(cell)
    left, largest = set(cells), set()
    while left and layout.start is None:
        part = reached(onward, min(left))
        left -= part
        largest = max(largest, part, key=len)
    if layout.start is not None:
        largest = reached(onward, layout.start)
    return [cell for cell in cells if cell not in largest]


def is_strongly_connected(layout: Layout) -> bool:
    """Whether every free cell can be reached from every other."""
    cells = layout.cells
    onward: dict[Cell, set[Cell]] = {cell: set() for cell in cells}
    back: dict[Cell, set[Cell]] = {cell: set() for cell in cells}
    for cell in cells:
        for direction in range(4):
            for there, _ in layout.outcomes(cell, direction):
                onward[cell].add(there)
                back[there].add(cell)
    return all(len(reached(ways, cells[0])) == len(cells) for ways in (onward, back))


def reached(ways: dict[Cell, set[Cell]], first: Cell) -> set[Cell]:
    """All that can be come to from `first`."""
    seen, waiting = {first}, [first]
    while waiting:
        new = ways[waiting.pop()] - seen
        seen |= new
        waiting += new
    return seen
