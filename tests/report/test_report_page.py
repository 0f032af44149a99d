"""The page says what is there, says what is not, and lets nothing from a file become markup."""

import base64
import html.parser
import re
import shutil

import pytest
from made_up_page import PNG, result, write_result, write_run

from loopless.report.gathering import Contents, gather
from loopless.report.markup import prose
from loopless.report.page import page

VOID = {"img", "br", "meta", "link"}


class Nesting(html.parser.HTMLParser):
    """Fails at a tag that is closed where it was not opened."""

    def __init__(self):
        super().__init__()
        self.open, self.texts, self.attributes = [], [], []

    def handle_starttag(self, tag, attrs):
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    runs = [write_run(folder / "runs" / name) for name in ("first", "second")]
    contents = gather([folder / "runs"], [write_result(folder / "returns.json")])
    assert [run.folder for run in contents.runs] == runs
    assert not contents.problems
    return page(contents)


def text_of(made):
    parser = Nesting()
    parser.feed(made)
    return re.sub(r"\s+", " ", " ".join(parser.texts))


def test_every_element_is_closed_where_it_was_opened(made):
    parser = Nesting()
    parser.feed(made)
    assert parser.open == []


@pytest.mark.parametrize(
    "said",
    [
        "100×",  # the loop, in the hero and in the table
        "the speed of the loop",
        "10.0 µs instead of 1.00 ms",
        "5×",  # the fastest peer that is right
        "2.00 µs wrong",
        "unavailable: no <module>",
        "12.00 MB",
        "1 met",
        "A CPU · 1 thread · 16 November 2026 · commit abcdef012",
        "quick run",
        "dqn on CartPole-v1",
        "30k steps in 1:35",
        "evaluation return 487.2",
        "3 more curves",
        "env 25%",
        "[64, 64]",
        "return <b>x</b>",
        "loopless train",
    ],
)
def test_what_was_measured_and_learned_is_told(made, said):
    assert said in text_of(made)


def test_runs_that_are_judged_alike_share_a_picture(made):
    assert "Evaluation return of all runs" in text_of(made)


@pytest.mark.parametrize(
    ("text", "set_as"),
    [
        ("use `a <b>` here", "use <code>a &lt;b&gt;</code> here"),
        ("one ` alone", "one ` alone"),
        ("<none>", "&lt;none&gt;"),
    ],
)
def test_commands_in_backticks_are_set_as_such(text, set_as):
    assert prose(text) == set_as


def test_pictures_are_inside_the_page(made):
    assert f"data:image/png;base64,{base64.b64encode(PNG).decode()}" in made


def test_nothing_is_to_be_fetched_or_run(made):
    parser = Nesting()
    parser.feed(made)
    names = ("src", "href", "srcset", "xlink:href")
    addresses = [value for name, value in parser.attributes if name in names]
    assert addresses
    assert [a for a in addresses if not a.startswith(("#", "data:"))] == []
    assert "<script" not in made
    assert re.findall(r"url\((?!#)", made) == []
    assert "@import" not in made


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        (Contents([], [result()], []), "No run was given"),
        (Contents([], [], []), "No benchmark was given"),
        (Contents([], [result()], ["bench: x.json is broken."]), "1 thing could not be read"),
    ],
)
def test_what_is_missing_is_said_in_words(contents, said):
    assert said in text_of(page(contents))


def test_a_run_without_a_log_is_shown_as_one(tmp_path):
    run = write_run(tmp_path / "run")
    (run / "metrics.jsonl").write_bytes(b"")
    shutil.rmtree(run / "plots")
    (run / "snapshots").mkdir()
    contents = gather([run], [])
    said = text_of(page(contents))
    assert not contents.problems
    assert "Nothing is logged yet" in said
    assert "No picture is drawn yet" in said


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("run.json", b"{", "run.json is broken"),
        ("config.toml", b"= 3", "config.toml"),
        ("metrics.jsonl", b"not a row\n", "line 1 is no row of a log"),
        ("plots/eigenvectors.png", b"x" * 7_000_000, "eigenvectors.png is left out"),
    ],
)
def test_a_broken_file_is_named_and_the_rest_is_shown(tmp_path, name, content, problem):
    good, broken = write_run(tmp_path / "good"), write_run(tmp_path / "broken")
    (broken / name).write_bytes(content)
    contents = gather([good, broken], [])
    assert [p for p in contents.problems if problem in p]
    assert good in [run.folder for run in contents.runs]
    assert problem in text_of(page(contents))


@pytest.mark.parametrize(("load", "said"), [(9.0, True), (3.9, False), (None, False)])
def test_numbers_of_a_busy_machine_are_called_so(load, said):
    found = result()
    found.machine |= {"load": load, "cores": 2}
    shown = text_of(page(Contents([], [found], [])))
    assert ("busy machine" in shown) is said
    assert ("The machine had other work" in shown) is said


def test_seeds_become_one_curve_with_a_band(tmp_path):
    run = write_run(tmp_path / "run")
    row = '{"step": %d, "time": 1, "kind": "train", "return_mean": [1, 2, %d]}\n'
    (run / "metrics.jsonl").write_text("".join(row % (at, at) for at in range(1, 9)))
    assert "IQM of 3 seeds" in text_of(page(gather([run], [])))
