"""Grids by name, and the generators behind the names.

    GridRoom-1                    one open room of 15 × 15
    GridRoom-4                    four rooms after Sutton et al. 1999, as ALLO's authors have them
    GridRoom-16, -32, -64         16, 32 or 64 rooms of 4 × 4, joined by one-cell passages
    GridCorridor-12               three dead-end corridors that meet
    GridMaze-<side>-seed<seed>    a maze without cycles, side × side cells with its walls, side odd

The same name gives the same grid on every machine: the only source of random numbers is
`random.Random.random`, which Python promises never to change.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar

from loopless.envs import EnvError, refuse
from loopless.envs.grids import GRIDS, MAZES
from loopless.envs.grids.layouts import (
    DIRECTIONS,
    Cell,
    Door,
    Layout,
    ahead,
    is_strongly_connected,
    opposite,
)
from loopless.refusals import check_count, did_you_mean

_MAZE = re.compile(r"GridMaze-(\d+)-seed(\d+)")

Item = TypeVar("Item")


def generate(name: str) -> Layout:
    """Return the grid of that name; EnvError with the nearest names if there is none."""
    if maze := _MAZE.fullmatch(name):
        layout = grid_maze(int(maze[1]), int(maze[2]))
    elif name == "GridRoom-1":
        layout = open_room(15)
    elif name == "GridRoom-4":
        layout = four_rooms()
    elif name == "GridCorridor-12":
        layout = corridors(6, 3, 2)
    elif name in GRIDS:
        rows, columns, doors, seed = _ROOMS[name]
        layout = rooms(rows, columns, 4, doors=doors, seed=seed)
    else:
        raise EnvError(
            f"grid: no grid {name!r}.{did_you_mean(name, (*GRIDS, MAZES), most=3)} Grids are "
            f"{', '.join((*GRIDS, MAZES))}, or a file with a layout."
        )
    return replace(layout, name=name)


# Rows and columns of rooms, passages, seed. The seeds were chosen so that the first eigenvalues are
# distinct, and each of the first eleven eigenvectors is well determined.
_ROOMS = {
    "GridRoom-16": (4, 4, 15, 17),
    "GridRoom-32": (4, 8, 32, 18),
    "GridRoom-64": (8, 8, 64, 8),
}


def open_room(side: int) -> Layout:
    """Return side × side free cells with a wall around."""
    return _layout(side + 2, side + 2, {(r + 1, c + 1) for r in range(side) for c in range(side)})


def four_rooms() -> Layout:
    """Return four rooms of unequal size, each with two doors: 104 free cells in 13 × 13."""
    upper = {(r, c) for r in range(1, 6) for c in range(1, 12) if c != 6}
    lower = {(r, c) for r in range(7, 12) for c in range(1, 12) if c != 7}
    return _layout(13, 13, upper | lower | {(2, 6), (6, 3), (6, 10), (9, 7)})


def corridors(west: int, north: int, south: int) -> Layout:
    """Return corridors of these lengths, one cell wide, that meet in one more cell."""
    arms = {(north + 1, c + 1) for c in range(west)}
    spine = {(r + 1, west + 1) for r in range(north + south + 1)}
    return _layout(north + south + 3, west + 3, arms | spine)


def rooms(rows: int, columns: int, side: int, *, doors: int | None = None, seed: int = 0) -> Layout:
    """Return rows × columns rooms of side × side, joined by one-cell passages at random places.

    By default there are just enough passages to join all rooms: one less than rooms. More `doors`
    join pairs of neighbors that have no passage yet.
    """
    least, most = rows * columns - 1, 2 * rows * columns - rows - columns
    doors = least if doors is None else doors
    refuse(
        "grid: rooms",
        [f"doors must be from {least} to {most}; received {doors}"]
        if not least <= doors <= most
        else [],
    )
    random = Random(seed)
    pitch = side + 1
    free = {
        (r, c)
        for r in range(1, rows * pitch)
        for c in range(1, columns * pitch)
        if r % pitch and c % pitch
    }
    walls = [((r, c), (r, c + 1)) for r in range(rows) for c in range(columns - 1)]
    walls += [((r, c), (r + 1, c)) for r in range(rows - 1) for c in range(columns)]
    walls = _shuffled(random, walls)
    tree = _tree(walls)
    chosen = tree + [wall for wall in walls if wall not in tree][: doors - least]
    for (row, column), (below, _) in chosen:
        along = 1 + _below(random, side)
        if below == row:
            free.add((row * pitch + along, (column + 1) * pitch))
        else:
            free.add(((row + 1) * pitch, column * pitch + along))
    return _layout(rows * pitch + 1, columns * pitch + 1, free)


def grid_maze(side: int, seed: int) -> Layout:
    """Return a maze with one way between any two cells, of side × side with its walls.

    It grows from a corner by opening a random wall between a cell of the maze and one outside
    (Prim 1957), which makes many short dead ends and few long corridors.
    """
    odd = side % 2 and side >= 3
    problems = [] if odd else [f"side must be odd and at least 3; received {side}"]
    refuse("grid: maze", problems, check_count("seed", seed, 0))
    random, inner = Random(seed), range(side // 2)
    joined: set[Cell] = set()
    free: set[Cell] = set()
    walls = [((0, 0), (0, 0))]  # each from a cell of the maze to the cell behind the wall
    while walls:
        (row, column), (below, right) = walls.pop(_below(random, len(walls)))
        here = below, right
        if here in joined:
            continue
        joined.add(here)
        free |= {(2 * below + 1, 2 * right + 1), (row + below + 1, column + right + 1)}
        around = [ahead(here, direction) for direction in range(4)]
        walls += [
            (here, other)
            for other in around
            if other[0] in inner and other[1] in inner and other not in joined
        ]
    return _layout(side, side, free)


def with_random_doors(layout: Layout, doors: int, seed: int = 42) -> Layout:
    """Return `layout` with `doors` passages between neighbors made one-way, chosen by `seed`.

    Every cell can still be reached from every other; EnvError if that allows fewer than `doors`.
    """
    refuse("grid: doors", check_count("doors", doors, 0), check_count("door_seed", seed, 0))
    random = Random(seed)
    taken = {(door.cell, door.direction) for door in layout.doors}
    passages = [
        (cell, direction)
        for cell in layout.cells
        for direction in (DIRECTIONS.index("R"), DIRECTIONS.index("D"))
        if layout.outcomes(cell, direction) == [(ahead(cell, direction), 1.0)]
        and (ahead(cell, direction), opposite(direction)) not in taken
        and (cell, direction) not in taken
    ]
    changed = layout
    for cell, direction in _shuffled(random, passages):
        if len(changed.doors) == len(layout.doors) + doors:
            break
        if random.random() < 0.5:
            cell, direction = ahead(cell, direction), opposite(direction)
        candidate = replace(changed, doors=(*changed.doors, Door(cell, direction)))
        changed = candidate if is_strongly_connected(candidate) else changed
    placed = len(changed.doors) - len(layout.doors)
    if placed < doors:
        raise EnvError(
            f"grid: {layout.name}: {doors} one-way doors were requested, but only {placed} fit "
            f"without cutting a cell off. Use fewer doors, or a grid with more ways around."
        )
    return changed


def _layout(height: int, width: int, free: set[Cell]) -> Layout:
    rows = ["".join("." if (r, c) in free else "X" for c in range(width)) for r in range(height)]
    return Layout("grid", tuple(rows))


def _tree(walls: Sequence[tuple[Cell, Cell]]) -> list[tuple[Cell, Cell]]:
    """Return the `walls` between rooms, in order, whose opening joins parts that were apart."""
    part = {room: room for wall in walls for room in wall}

    def root(room: Cell) -> Cell:
        while part[room] != room:
            room = part[room]
        return room

    opened = []
    for room, other in walls:
        if root(room) != root(other):
            part[root(room)] = root(other)
            opened.append((room, other))
    return opened


def _below(random: Random, n: int) -> int:
    return int(random.random() * n)


def _shuffled(random: Random, items: Sequence[Item]) -> list[Item]:
    shuffled = list(items)
    for last in range(len(shuffled) - 1, 0, -1):
        other = _below(random, last + 1)
        shuffled[last], shuffled[other] = shuffled[other], shuffled[last]
    return shuffled
