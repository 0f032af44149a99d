"""What a grid is made of: walls, start, goals, one-way doors and portals, and where moves lead.

A layout holds only tuples and text, so that it is hashable and can be written into a file (`text`)
and read back (`read_layout`). `generators.py` makes layouts, `world.GridWorld` makes tables of
them. Text has one of two formats, read strictly, with errors that say where:

    one character a cell       X or # wall, S start, G goal, . or a blank free
    cells between commas       the same, and several marks in one cell:
        DRU:0.3                one-way doors right and up; moving back works with chance 0.3 (or 0)
        E7                     exit 7 of portals
        PU:7@2_8               moving up leads to exit 7 or 8, with weights 2 and 1

Short lines are filled up with free cells, because editors strip blanks at line ends. Older readers
take every unknown character for a free cell, and ignore a door into a wall; so does `lenient=True`,
except that an unknown mark between commas is always an error.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from loopless.envs import EnvError
from loopless.files import atomic

LARGEST = 1 << 24  # bytes of a file with a layout
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
        """Return the layout in the comma format, which `parse_layout` reads."""
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


# --- from text

_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?"
_TOKEN = re.compile(
    rf"""(?P<blank>\s+|\.) | (?P<wall>[X#]) | (?P<start>S) | (?P<goal>G)
    | D(?P<doors>[{DIRECTIONS}]+)(?::(?P<chance>{_NUMBER}))?
    | E(?P<exit>\d+)
    | P(?P<portal>[{DIRECTIONS}]):(?P<targets>\d+(?:@{_NUMBER})?(?:_\d+(?:@{_NUMBER})?)*)""",
    re.VERBOSE,
)
_MARKS = (
    "X or # (wall), . or blank (free), S (start), G (goal), D and directions of "
    f"{DIRECTIONS} (doors, DR or DR:0.3), E and a number (exit), P, a direction and exits "
    "(portal, PU:7@2_8)"
)
_MOST_PROBLEMS = 8  # listed in an error; the rest are counted


@dataclass
class _Reading:
    """What has been read so far, and the problems with it."""

    lenient: bool
    places: dict[Cell, tuple[int, int]] = field(default_factory=dict)  # line and column, from 1
    walls: set[Cell] = field(default_factory=set)
    starts: list[Cell] = field(default_factory=list)
    goals: list[Cell] = field(default_factory=list)
    doors: list[Door] = field(default_factory=list)
    exits: dict[int, Cell] = field(default_factory=dict)
    entrances: list[tuple[Cell, int, str]] = field(default_factory=list)
    problems: list[tuple[tuple[int, int], str]] = field(default_factory=list)

    def report(self, place: Cell | tuple[int, int], what: str, *, is_cell: bool = True) -> None:
        """Add a problem with a cell, or at a line and column."""
        self.problems.append((self.places[place] if is_cell else place, what))


def read_layout(path: str | Path, *, lenient: bool = False) -> Layout:
    """Return the layout in a file; EnvError, with line and column, if it is wrong."""
    path = Path(path)
    try:
        text = atomic.read_small(path, LARGEST).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise EnvError(f"grid: {path} cannot be read: {error}.") from error
    return parse_layout(text, str(path), lenient=lenient)


def parse_layout(text: str, name: str = "layout", *, lenient: bool = False) -> Layout:
    """Return the layout that `text` draws; EnvError lists all problems by line and column."""
    lines = [(i, line) for i, line in enumerate(text.splitlines(), 1)]
    has_commas = "," in text
    lines = _without_empty_ends(lines, all_of_them=has_commas)
    reading = _Reading(lenient)
    for row, (number, line) in enumerate(lines):
        read = _read_cells if has_commas else _read_characters
        read(reading, row, number, line)
    width = 1 + max((column for _, column in reading.places), default=-1)
    rows = tuple(
        "".join("X" if (row, column) in reading.walls else "." for column in range(width))
        for row in range(len(lines))
    )
    if not reading.problems and not any("." in row for row in rows):
        raise EnvError(f"grid: {name}: there is no free cell. Draw free cells as . or blanks.")
    if len(reading.starts) > 1:
        line, column = reading.places[reading.starts[0]]
        for cell in reading.starts[1:]:
            reading.report(cell, f"a second start; the first is in line {line}, column {column}")
    bare = Layout(name, rows)
    doors = _doors(reading, bare)
    portals = _portals(reading, bare)
    _refuse(name, reading)
    start = reading.starts[0] if reading.starts else None
    layout = Layout(name, rows, start, tuple(reading.goals), doors, portals)
    for cell in unreachable(layout):
        place = reading.places.get(cell, (lines[cell[0]][0], cell[1] + 1))
        reading.report(place, "a free cell that cannot be reached; wall it in", is_cell=False)
    _refuse(name, reading)
    return layout


def _without_empty_ends(lines: list[tuple[int, str]], *, all_of_them: bool):
    """Return lines without the empty ones around the drawing, or without all of the empty ones."""
    if all_of_them:
        return [(i, line) for i, line in lines if line.strip()]
    full = [k for k, (_, line) in enumerate(lines) if line]
    return lines[full[0] : full[-1] + 1] if full else []


def _read_characters(reading: _Reading, row: int, number: int, line: str) -> None:
    for column, character in enumerate(line):
        cell = row, column
        reading.places[cell] = number, column + 1
        if character in "X#":
            reading.walls.add(cell)
        elif character == "S":
            reading.starts.append(cell)
        elif character == "G":
            reading.goals.append(cell)
        elif character not in ". " and not reading.lenient:
            reading.report(
                cell,
                f"unknown cell {character!r}; use X or # (wall), . or blank (free), S (start) "
                f"or G (goal)",
            )


def _read_cells(reading: _Reading, row: int, number: int, line: str) -> None:
    begin = 0  # of the cell in its line
    for column, text in enumerate(line.split(",")):
        cell = row, column
        reading.places[cell] = number, begin + 1 + len(text) - len(text.lstrip())
        at = 0
        while at < len(text):
            token = _TOKEN.match(text, at)
            if token is None:
                place = number, begin + at + 1
                what = f"unknown mark {text[at:].strip()!r}; known are {_MARKS}"
                reading.report(place, what, is_cell=False)
                break
            _read_mark(reading, cell, token)
            at = token.end()
        begin += len(text) + 1
        if cell in reading.walls and text.strip() not in ("X", "#"):
            reading.report(cell, f"a wall with something in it: {text.strip()!r}")


def _read_mark(reading: _Reading, cell: Cell, token: re.Match) -> None:
    if token["wall"]:
        reading.walls.add(cell)
    elif token["start"]:
        reading.starts.append(cell)
    elif token["goal"]:
        reading.goals.append(cell)
    elif token["doors"]:
        chance = float(token["chance"] or 0)
        if chance > 1:
            reading.report(cell, f"a door that succeeds with {chance:g}; probabilities are up to 1")
        reading.doors += [Door(cell, DIRECTIONS.index(d), chance) for d in token["doors"]]
    elif token["exit"]:
        number = int(token["exit"])
        if number in reading.exits:
            line, column = reading.places[reading.exits[number]]
            reading.report(cell, f"exit {number} again; it is in line {line}, column {column}")
        reading.exits[number] = cell
    elif token["portal"]:
        reading.entrances.append((cell, DIRECTIONS.index(token["portal"]), token["targets"]))


def _doors(reading: _Reading, layout: Layout) -> tuple[Door, ...]:
    doors = []
    for door in reading.doors:
        if layout.is_free(ahead(door.cell, door.direction)):
            doors.append(door)
        elif not reading.lenient:
            reading.report(door.cell, f"the door {DIRECTIONS[door.direction]} leads into a wall")
    return tuple(doors)


def _portals(reading: _Reading, layout: Layout) -> tuple[Portal, ...]:
    portals: dict[tuple[Cell, int], Portal] = {}
    for cell, direction, targets in reading.entrances:
        exits, weights = [], []
        for target in targets.split("_"):
            number, _, weight = target.partition("@")
            if int(number) not in reading.exits:
                reading.report(
                    cell, f"a portal to exit {number}, and no cell has the mark E{number}"
                )
                continue
            exits.append(reading.exits[int(number)])
            weights.append(float(weight or 1))
        if weights and not sum(weights) > 0:
            reading.report(cell, "a portal whose weights are all 0")
        if (cell, direction) in portals:
            reading.report(cell, f"a second portal {DIRECTIONS[direction]} from one cell")
        portals[cell, direction] = Portal(cell, direction, tuple(exits), tuple(weights))
    return tuple(portals.values())


def _refuse(name: str, reading: _Reading) -> None:
    if reading.problems:
        ordered = sorted(reading.problems)
        lines = [f"line {line}, column {column}: {what}" for (line, column), what in ordered]
        rest = len(lines) - _MOST_PROBLEMS
        more = f"; and {rest} more" if rest > 0 else ""
        raise EnvError(f"grid: {name}: {'; '.join(lines[:_MOST_PROBLEMS])}{more}.")
