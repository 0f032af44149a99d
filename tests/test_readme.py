"""The README's examples run, and the tables of our pages are those of the committed JSON."""

import re
from pathlib import Path

import pytest

from loopless import reference
from pages import PICTURE, draw_gains, update

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
RESULTS = ROOT / "benchmarks" / "results"
PAGES = {"README": README, "RESULTS": (ROOT / "benchmarks" / "RESULTS.md").read_text()}


@pytest.mark.parametrize("page", PAGES)
def test_tables_are_those_of_the_committed_results(page):
    assert update(PAGES[page], RESULTS) == PAGES[page]


@pytest.mark.parametrize("page", PAGES)
def test_a_changed_number_is_noticed(page):
    changed = re.sub(r"[\d.]+ µs", "0.01 µs", PAGES[page], count=1)
    assert changed != PAGES[page]
    assert update(changed, RESULTS) != changed


def test_the_picture_is_that_of_the_committed_results():
    assert (ROOT / PICTURE).read_text() == draw_gains(RESULTS)
    assert f"]({PICTURE})" in README


def test_every_committed_result_is_shown():
    shown = set(re.findall(r"<!-- bench:(\w+) -->", PAGES["RESULTS"]))
    assert shown == {path.stem for path in RESULTS.glob("*.json")}


def test_every_committed_result_is_made_by_make_bench():
    made = re.findall(r"bench (\w+) .*--json benchmarks/results/(\w+)\.json", MAKEFILE)
    assert all(suite == name for suite, name in made)
    assert {name for _, name in made} == {path.stem for path in RESULTS.glob("*.json")}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_text(page):
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", PAGES[page])


def example(word):
    """What the example of the README that holds `word` leaves behind."""
    (code,) = (
        code for code in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if word in code
    )
    names: dict = {}
    exec(code, names)
    return code, names


def test_it_is_short_enough_to_be_read():
    assert len(README.splitlines()) <= 200


def test_the_example_runs_and_is_right():
    code, names = example("ll.gae")
    rewards, values, next_values = (names[k] for k in ("rewards", "values", "next_values"))
    expected, _ = reference.gae(
        rewards, values[:-1], next_values, *names["ends"], gamma=0.99, lambda_=0.95
    )
    assert abs(names["advantages"].numpy() - expected).max() < 1e-4
    assert len(code.split("\n\n")) <= 3


@pytest.mark.slow
def test_the_first_example_updates_and_acts():
    code, names = example("ll.fuse")
    assert names["losses"].shape == (16,)
    states = [state["step"] for state in names["optimizer"].state.values()]
    assert states == [16, 16]
    assert names["action"] in (0, 1)
    assert names["log_prob"] <= 0
    assert len(code.splitlines()) <= 16
    assert README.index("ll.fuse") < README.index("<!-- bench:own -->") < README.index("\n## ")


def test_both_commands_are_shown():
    assert "make demo" in README
    assert "make test" in README
