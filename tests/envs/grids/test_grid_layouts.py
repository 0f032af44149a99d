"""Layouts from text: both formats, what they mean, and errors that say where."""

import pytest

from loopless.envs import EnvError
from loopless.envs.grids.layouts import (
    Door,
    Layout,
    Portal,
    is_strongly_connected,
    parse_layout,
    read_layout,
)
from loopless.envs.grids.world import make_grid

UP, RIGHT, DOWN, LEFT = range(4)

PORTALS = """\
X, X,           X,      X
X, S DR:0.25,   .,      X
X, PU:1@3_2@1,  E1 G,   X
X, E2,          DU,     X
"""


def test_one_character_a_cell():
    layout = parse_layout("XXXX\n#S X\nX.GX\nXXXX\n")
    assert layout.rows == ("XXXX", "X..X", "X..X", "XXXX")
    assert (layout.start, layout.goals) == ((1, 1), ((2, 2),))


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\r\n"])
def test_empty_lines_at_the_ends_are_no_rows(end):
    assert parse_layout(f"\n..\n.X{end}").rows == ("..", ".X")


def test_short_and_empty_lines_go_on_free():
    assert parse_layout("S\n\nXX\n   G").rows == ("....", "....", "XX..", "....")


def test_marks_between_commas():
    layout = parse_layout(PORTALS)
    assert layout.rows == ("XXXX", "X..X", "X..X", "X..X")
    assert layout.start == (1, 1)
    assert layout.goals == ((2, 2),)
    assert layout.doors == (Door((1, 1), RIGHT, 0.25), Door((3, 2), UP, 0.0))
    assert layout.portals == (Portal((2, 1), UP, ((2, 2), (3, 1)), (3.0, 1.0)),)


def test_several_directions_and_tokens_without_blanks():
    layout = parse_layout("DRD:0.5E1,E2\nPU:1PR:2,.\n")
    assert layout.doors == (Door((0, 0), RIGHT, 0.5), Door((0, 0), DOWN, 0.5))
    assert [(p.direction, p.exits) for p in layout.portals] == [
        (UP, ((0, 0),)), (RIGHT, ((0, 1),)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("cell", "direction", "expected"),
    [
        ((1, 1), UP, {(1, 1): 1.0}),  # a wall
        ((1, 1), RIGHT, {(1, 2): 1.0}),  # through the door
        ((1, 2), LEFT, {(1, 1): 0.25, (1, 2): 0.75}),  # and back
        ((2, 2), DOWN, {(2, 2): 1.0}),  # a door that never lets back
        ((3, 2), UP, {(2, 2): 1.0}),
        ((2, 1), UP, {(2, 2): 0.75, (3, 1): 0.25}),  # a portal, though the way up is free
        ((2, 1), RIGHT, {(2, 2): 1.0}),
        ((3, 1), DOWN, {(3, 1): 1.0}),  # the edge
    ],
)
def test_where_a_move_leads(cell, direction, expected):
    assert dict(parse_layout(PORTALS).outcomes(cell, direction)) == pytest.approx(expected)


@pytest.mark.parametrize("source", [PORTALS, "GridRoom-4", "X.\nGS\n"])
def test_the_text_of_a_layout_makes_it_again(source):
    layout = make_grid(source).layout
    again = parse_layout(layout.text(), layout.name)
    assert again == layout
    assert hash(again) == hash(layout)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("XX\n.q", r"line 2, column 2: unknown cell 'q'"),
        ("\n\n.q", r"line 3, column 2: unknown cell"),
        ("S.\n.S", r"line 2, column 2: a second start; the first is in line 1, column 1"),
        (".X.\nXXX", r"line 1, column 3: a free cell that cannot be reached"),
        ("XX\n##", r"there is no free cell"),
        ("", r"there is no free cell"),
        (". , Q\n.,.", r"line 1, column 5: unknown mark 'Q'"),
        (".,S Z\n.,.", r"line 1, column 5: unknown mark 'Z'"),
        (".,.\n.,DU DR", r"line 2, column 3: the door R leads into a wall"),
        (".,X\n.,DU", r"line 2, column 3: the door U leads into a wall"),
        (".,DL:1.5", r"line 1, column 3: a door that succeeds with 1.5"),
        (".,X G\n.,.", r"line 1, column 3: a wall with something in it: 'X G'"),
        (".,PU:4\n.,.", r"line 1, column 3: a portal to exit 4, and no cell has the mark E4"),
        ("E1,E1\n.,.", r"line 1, column 4: exit 1 again; it is in line 1, column 1"),
        ("E1,PU:1@0\n.,.", r"line 1, column 4: a portal whose weights are all 0"),
        ("E1,PU:1PU:1\n.,.", r"line 1, column 4: a second portal U"),
        ("S,DR,.\nX,X,X\nX,.,.", r"line 3, column 3: a free cell that cannot be reached"),
    ],
)
def test_errors_say_line_and_column(text, problem):
    with pytest.raises(EnvError, match=f"grid: a.txt: .*{problem}"):
        parse_layout(text, "a.txt")


def test_all_problems_are_told_at_once():
    with pytest.raises(EnvError, match=r"line 1, column 1: .*line 1, column 2: .*; and 4 more\.$"):
        parse_layout("qqqqqq\nqqqqqq")


def test_a_cell_behind_a_one_way_door_is_not_reached_from_the_start():
    with pytest.raises(EnvError, match="line 1, column 1: a free cell that cannot be reached"):
        parse_layout("DR,S")
    assert not is_strongly_connected(parse_layout("DR,."))
    assert is_strongly_connected(parse_layout("DR,.\n.,."))


def test_older_readers_are_followed_on_request():
    assert parse_layout("ab\n1 ", lenient=True).rows == ("..", "..")
    assert parse_layout("DU,.", lenient=True).doors == ()


def test_a_file_is_named_in_its_errors(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("..\n.?\n")
    with pytest.raises(EnvError, match=r"mine\.txt: line 2, column 2: unknown cell '\?'"):
        make_grid(file)
    file.write_text("..\n..\n")
    assert read_layout(file).rows == ("..", "..")
    with pytest.raises(EnvError, match=r"other\.txt cannot be read"):
        make_grid(str(tmp_path / "other.txt"))


def test_layouts_made_by_hand_are_checked_too():
    with pytest.raises(EnvError, match="row 0, column 1 is not a free cell"):
        make_grid(Layout("mine", (".X", ".."), goals=((0, 1),)))
    with pytest.raises(EnvError, match="1 free cells cannot be reached, the first in row 0"):
        make_grid(Layout("mine", (".X.",)))
    with pytest.raises(EnvError, match="there is no free cell"):
        make_grid(Layout("mine", ("XX",)))
