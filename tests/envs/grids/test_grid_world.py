"""The tables of a grid world beside plain loops over its layout."""

import numpy as np
import pytest

from loopless.envs import EnvError
from loopless.envs.grids.world import make_grid

PORTALS = "X,X,X\nX,S DR:0.25,.\nX,PU:1@3_2@1,E1 G\nX,E2,DU\n"
SOURCES = ["GridRoom-4", "GridMaze-7-seed0", PORTALS]


@pytest.fixture(params=SOURCES, ids=["rooms", "maze", "portals"])
def world(request):
    return make_grid(request.param)


def test_states_are_the_free_cells_row_by_row(world):
    state = 0
    for row, text in enumerate(world.layout.rows):
        for column, mark in enumerate(text):
            if mark == "X":
                assert world.index[row, column] == -1
            else:
                assert world.index[row, column] == state
                assert world.cells[state].tolist() == [row, column]
                state += 1
    assert world.states == state


def test_the_transition_matrix_adds_up_every_way(world):
    policy = np.random.default_rng(0).dirichlet(np.ones(4), world.states)
    expected = np.zeros((world.states, world.states))
    for state, cell in enumerate(world.layout.cells):
        for action in range(4):
            for there, chance in world.layout.outcomes(cell, action):
                expected[state, world.index[there]] += policy[state, action] * chance
    np.testing.assert_allclose(world.transition_matrix(policy), expected, atol=1e-15)
    np.testing.assert_allclose(expected.sum(1), 1)


def test_a_uniform_walk_without_doors_is_symmetric():
    matrix = make_grid("GridRoom-4").transition_matrix()
    np.testing.assert_array_equal(matrix, matrix.T)
    doored = make_grid("GridRoom-4", doors=5).transition_matrix()
    assert (doored != doored.T).sum() == 10


def test_goals_and_starts():
    world = make_grid("..\n.G")
    assert world.goals.tolist() == [False, False, False, True]
    assert world.starts == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])
    assert make_grid(PORTALS).starts.tolist() == [1, 0, 0, 0, 0, 0]
    assert not make_grid("..\n.G", goals=()).goals.any()
    assert make_grid("..\n.G", goals=[[0, 1]]).goals.tolist() == [False, True, False, False]
    with pytest.raises(EnvError, match="every free cell is a goal"):
        _ = make_grid("GG\n").starts
    with pytest.raises(EnvError, match="row 5, column 5 is not a free cell"):
        make_grid("..\n.G", goals=[(5, 5)])


def test_coordinates_are_column_and_row():
    world = make_grid("X..\n...\n")
    assert world.xy()[0].tolist() == pytest.approx([1 / 3 - 0.5, -0.5])
    assert world.xy("centred")[-1].tolist() == pytest.approx([0.5 / 1.5, 0.0])
    assert world.xy().dtype == np.float32
    big = make_grid("GridRoom-64").xy()
    assert -0.5 <= big.min() < big.max() < 0.5
    with pytest.raises(EnvError, match="scaling='whole' is unknown; choose half or centred"):
        world.xy("whole")


def test_a_picture_shows_walls_goals_and_the_agent():
    pictures = make_grid("X.\n.G\n").pictures(scale=2)
    assert pictures.shape == (3, 4, 4, 3)
    assert pictures.dtype == np.uint8
    assert pictures[0, 0, 0].tolist() == [64, 64, 64]
    assert pictures[0, 0, 2].tolist() == [255, 0, 0]
    assert pictures[0, 3, 1].tolist() == [255, 255, 255]
    assert pictures[0, 3, 3].tolist() == [0, 255, 0]
    assert pictures[2, 3, 3].tolist() == [255, 0, 0]
    assert len({picture.tobytes() for picture in pictures}) == 3


def test_values_are_laid_out_on_the_grid(world):
    laid = world.on_the_grid(np.arange(world.states))
    np.testing.assert_array_equal(np.where(np.isnan(laid), -1, laid), world.index)
    assert world.on_the_grid(np.ones((world.states, 2)), 0.0).shape == (*world.layout.shape, 2)


def test_every_state_has_its_own_one_hot(world):
    np.testing.assert_array_equal(world.one_hot(), np.eye(world.states))


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        (np.ones((3, 4)), r"its shape is \(3, 4\)"),
        (np.full((4, 4), 0.3), "row 0 does not sum to 1"),
        (np.tile([1.5, -0.5, 0, 0], (4, 1)), "negative"),
        (np.full((4, 4), np.nan), "NaN"),
    ],
)
def test_a_policy_is_probabilities(policy, problem):
    with pytest.raises(EnvError, match=rf"policy is \[4, 4\].*{problem}"):
        make_grid("..\n..").transition_matrix(policy)


def test_worlds_are_equal_and_hashable_by_their_layout():
    assert make_grid("GridRoom-4", doors=3) == make_grid("GridRoom-4", doors=3)
    assert hash(make_grid("GridRoom-4")) == hash(make_grid("GridRoom-4"))
    assert make_grid("GridRoom-4", doors=3) != make_grid("GridRoom-4", doors=3, door_seed=1)
