"""Grids by name: their sizes, their being the same everywhere, and random one-way doors."""

import hashlib

import numpy as np
import pytest

from loopless.envs import EnvError
from loopless.envs.grids import GRIDS
from loopless.envs.grids.generators import corridors, generate, grid_maze, rooms, with_random_doors
from loopless.envs.grids.laplacian import eigenpairs, geometric_pairs
from loopless.envs.grids.layouts import ahead, is_strongly_connected, opposite
from loopless.envs.grids.world import make_grid


@pytest.mark.parametrize(
    ("name", "shape", "states", "digest"),
    [
        ("GridRoom-1", (17, 17), 225, "6620ebb8"),
        ("GridRoom-4", (13, 13), 104, "e87b9f1b"),
        ("GridRoom-16", (21, 21), 271, "b67d7aab"),
        ("GridRoom-32", (21, 41), 544, "b0ddc03d"),
        ("GridRoom-64", (41, 41), 1088, "7bf8ceab"),
        ("GridCorridor-12", (8, 9), 12, "27c3ac59"),
        ("GridMaze-19-seed0", (19, 19), 161, "459f9167"),
        ("GridMaze-19-seed1", (19, 19), 161, "6ce33756"),
        ("GridMaze-7-seed3", (7, 7), 17, "053cb5ec"),
    ],
)
def test_a_name_gives_the_same_grid_on_every_machine(name, shape, states, digest):
    layout = generate(name)
    assert layout.name == name
    assert layout.shape == shape
    assert len(layout.cells) == states
    assert hashlib.sha256("\n".join(layout.rows).encode()).hexdigest()[:8] == digest


def test_four_rooms_look_like_this():
    assert generate("GridRoom-4").rows == (
        "XXXXXXXXXXXXX",
        "X.....X.....X",
        "X...........X",
        "X.....X.....X",
        "X.....X.....X",
        "X.....X.....X",
        "XXX.XXXXXX.XX",
        "X......X....X",
        "X......X....X",
        "X...........X",
        "X......X....X",
        "X......X....X",
        "XXXXXXXXXXXXX",
    )


@pytest.mark.parametrize("name", GRIDS)
def test_every_shipped_grid_is_whole(name):
    assert is_strongly_connected(make_grid(name).layout)


@pytest.mark.parametrize("name", ["GridRoom-4", "GridRoom-16", "GridCorridor-12"])
def test_the_first_eigenvalues_of_shipped_grids_stand_apart(name):
    world = make_grid(name)
    values = eigenpairs(geometric_pairs(world.transition_matrix(), 0.9)).values[1:12]
    assert (np.diff(values) / values[1:] > 0.007).all()


@pytest.mark.parametrize("seed", range(5))
def test_a_maze_has_one_way_between_any_two_cells(seed):
    layout = grid_maze(11, seed)
    cells = set(layout.cells)
    passages = sum(ahead(cell, d) in cells for cell in cells for d in (1, 2))
    assert is_strongly_connected(layout)
    assert passages == len(cells) - 1


def test_rooms_have_as_many_passages_as_asked():
    assert len(rooms(2, 3, 3).cells) == 6 * 9 + 5
    assert len(rooms(2, 3, 3, doors=7, seed=1).cells) == 6 * 9 + 7
    with pytest.raises(EnvError, match="doors must be from 5 to 7; received 8"):
        rooms(2, 3, 3, doors=8)


def test_corridors_meet_in_one_cell():
    assert corridors(2, 1, 1).rows == ("XXXXX", "XXX.X", "X...X", "XXX.X", "XXXXX")


@pytest.mark.parametrize("seed", range(4))
def test_random_doors_close_one_way_each_and_cut_nothing_off(seed):
    layout = generate("GridRoom-4")
    doored = with_random_doors(layout, 5, seed)
    assert len({frozenset({d.cell, ahead(d.cell, d.direction)}) for d in doored.doors}) == 5
    assert is_strongly_connected(doored)
    for door in doored.doors:
        there = ahead(door.cell, door.direction)
        assert doored.outcomes(door.cell, door.direction) == [(there, 1.0)]
        assert doored.outcomes(there, opposite(door.direction)) == [(there, 1.0)]
    assert doored == with_random_doors(layout, 5, seed)
    assert doored != with_random_doors(layout, 5, seed + 1)


def test_a_maze_has_no_room_for_one_way_doors():
    with pytest.raises(EnvError, match="2 one-way doors were requested, but only 0 fit"):
        make_grid("GridMaze-7-seed0", doors=2)


def test_unknown_names_get_the_nearest():
    with pytest.raises(EnvError, match=r"no grid 'gridroom4'. Did you mean GridRoom-4"):
        make_grid("gridroom4")


@pytest.mark.parametrize("name", ["GridMaze-8-seed0", "GridMaze-1-seed0"])
def test_sides_of_mazes_are_odd(name):
    with pytest.raises(EnvError, match="side must be odd and at least 3"):
        make_grid(name)
