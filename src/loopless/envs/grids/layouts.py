"""What a grid is made of: walls, start, goals, one-way doors and portals, and where moves lead.

A layout holds only tuples and text, so that it is hashable and can be written into a file (`text`)
and read back (`parser.py`). `generators.py` makes layouts, `world.GridWorld` makes tables of them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

DIRECTIONS = "URDL"  # actions 0 … 3: up, right, down, left
STEPS = ((-1, 0), (0, 1), (1, 0), (0, -1))  # how far each action moves, in rows and columns

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
    """A drawing of `rows` of equal length, X for a wall and . for a free cell, and what is in it.

    Without a `start` an episode begins on any free cell that is not a goal.
    """

    name: str
    rows: tuple[str, ...]
    start: Cell | None = None
    goals: tuple[Cell, ...] = ()
    doors: tuple[Door, ...] = ()
    portals: tuple[Portal, ...] = ()

    @property
    def shape(self) -> tuple[int, int]:
        """Return height and width."""
        return len(self.rows), len(self.rows[0]) if self.rows else 0

    @property
    def free(self) -> np.ndarray:
        """[height, width]: where an agent can be."""
        cells = [[cell != "X" for cell in row] for row in self.rows]
        return np.array(cells, bool).reshape(self.shape)

    @property
    def cells(self) -> list[Cell]:
        """Return the free cells, row by row: the i-th is state i."""
        return [(int(row), int(column)) for row, column in np.argwhere(self.free)]

    def is_free(self, cell: Cell) -> bool:
        """Return whether there is such a cell and no wall on it."""
        (row, column), (height, width) = cell, self.shape
        return 0 <= row < height and 0 <= column < width and self.rows[row][column] != "X"

    def outcomes(self, cell: Cell, direction: int) -> list[tuple[Cell, float]]:
        """Return where a move may lead, with probabilities; walls and closed doors stop it."""
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
        """Return the layout with these goals only."""
        return replace(self, goals=tuple(goals))

    def text(self) -> str:
        """Return the layout in the comma format, which `parser.parse_layout` reads."""
        exits = {cell: i for i, cell in enumerate({e: None for p in self.portals for e in p.exits})}
        height, width = self.shape
        cells = [[self._tokens((r, c), exits) for c in range(width)] for r in range(height)]
        return "\n".join(",".join(row) for row in cells) + "\n"

    def _tokens(self, cell: Cell, exits: dict[Cell, int]) -> str:
        """Return one cell of the comma format."""
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
    """Return the neighbor in `direction`, wall or not."""
    down, right = STEPS[direction]
    return cell[0] + down, cell[1] + right


def opposite(direction: int) -> int:
    return (direction + 2) % 4


def unreachable(layout: Layout) -> list[Cell]:
    """Return the free cells that no episode reaches from the start.

    Without a start an episode may begin anywhere; then these are the cells outside the largest
    part, and two cells belong together if there is a way between them in either direction.
    """
    onward, back = _ways(layout)
    if layout.start is not None:
        largest = _reach(onward, layout.start)
    else:
        either = {cell: onward[cell] | back[cell] for cell in onward}
        left, largest = set(onward), set()
        while left:
            part = _reach(either, min(left))
            left -= part
            largest = max(largest, part, key=len)
    return [cell for cell in layout.cells if cell not in largest]


def is_strongly_connected(layout: Layout) -> bool:
    """Return whether every free cell can be reached from every other."""
    cells = layout.cells
    return all(len(_reach(ways, cells[0])) == len(cells) for ways in _ways(layout))


def _ways(layout: Layout) -> tuple[dict[Cell, set[Cell]], dict[Cell, set[Cell]]]:
    """Return for each free cell where one move may lead, and where one may come from."""
    cells = layout.cells
    onward: dict[Cell, set[Cell]] = {cell: set() for cell in cells}
    back: dict[Cell, set[Cell]] = {cell: set() for cell in cells}
    for cell in cells:
        for direction in range(4):
            for target, _ in layout.outcomes(cell, direction):
                onward[cell].add(target)
                back[target].add(cell)
    return onward, back


def _reach(ways: dict[Cell, set[Cell]], first: Cell) -> set[Cell]:
    """Return every cell that can be reached from `first`."""
    reached, waiting = {first}, [first]
    while waiting:
        new = ways[waiting.pop()] - reached
        reached |= new
        waiting += new
    return reached
