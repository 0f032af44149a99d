"""The site: it builds with warnings as errors, fetches nothing, and shows what the code says."""

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from site_pages import filling, maths, tables

from loopless.runs.glossary import METRICS
from loopless.train.registry import TRAINERS
from pages import headline_table

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages of the built site, by name."""
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return {str(path.relative_to(place)): path.read_text() for path in place.rglob("*.*ml")} | {
        path.name: path.read_text() for path in place.rglob("*.css")
    }


PAGES = sorted((ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_as_it_lies_holds_what_the_code_and_the_results_say(page):
    text = page.read_text()
    assert filling.fill(text) == text, "run `make pages`"


def test_a_page_that_fell_behind_is_noticed():
    page = "<!-- make:loopless.normalize -->\n\nold words\n\n<!-- end -->"
    assert "normalize(x, valid=None" in filling.fill(page)
    with pytest.raises(ValueError, match="nothing makes 'flag'"):
        filling.fill("<!-- make:flag dqn -->\n<!-- end -->")


def text_of(page):
    return html.unescape(re.sub(r"<[^>]+>", "", page))


def fetched(page):
    """Addresses elsewhere that a browser would load by itself; links to follow are none."""
    tags = re.findall(r"<(?:link|script|img|iframe|source)\b[^>]*>", page)
    own = re.compile(r'\b(?:src|href)="((?:https?:)?//[^"]+)"')
    styles = re.findall(r"(?:url\(|@import )[\"']?((?:https?:)?//[^\"')]+)", page)
    return [address for tag in tags for address in own.findall(tag)] + styles


@pytest.mark.slow
def test_nothing_is_fetched_from_elsewhere(site):
    assert {name: found for name, page in site.items() if (found := fetched(page))} == {}


@pytest.mark.parametrize(
    "page",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/css">',
        "a { background: url(https://elsewhere.example/a.png) }",
    ],
)
def test_what_would_be_fetched_is_noticed(page):
    assert fetched(page)


@pytest.mark.slow
def test_formulae_are_drawn_by_the_browser(site):
    page = site["areas/returns.html"]
    assert '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">' in page
    assert "$" not in re.sub(r"<(code|script)\b.*?</\1>", "", page, flags=re.DOTALL)


@pytest.mark.slow
def test_the_tables_of_the_site_are_those_of_the_committed_results(site):
    rows = [row for row in headline_table(("five", "own", "further"), RESULTS)[:-1] if row]
    for row in rows:
        for cell in row.strip("| ").split(" | "):
            assert cell.strip("-:").replace("*", "") in text_of(site["speed.html"])


@pytest.mark.slow
def test_every_proposal_of_the_notes_stands_beside_its_claim(site):
    page = " ".join(text_of(site["speed.html"]).split())
    for path in RESULTS.glob("*.json"):
        for row in tables.load(path).measurements:
            assert row.role != "proposal" or " ".join(row.claim.split()) in page


@pytest.mark.slow
def test_the_glossary_has_every_metric(site):
    assert [name for name in METRICS if f"<code>{name}</code>" not in site["metrics.html"]] == []


@pytest.mark.slow
def test_every_command_is_documented(site):
    named = re.findall(r'<h2 id="[\w-]+">loopless (\w+)<', site["commands.html"])
    assert named == list(tables.subcommands())
    assert {"bench", "train", "resume"} <= set(named)


def test_flags_are_spelled_as_they_are_given():
    words = tables.commands()
    assert "| `--as` | What it should be: gae," in words
    assert "| `FUNCTION` | Your function, as MODULE:FUNCTION" in words
    assert "| `--peers` | Measure other libraries too, those that are installed. | on |" in words


@pytest.mark.slow
@pytest.mark.parametrize("trainer", TRAINERS)
def test_every_flag_of_a_trainer_is_documented(site, trainer):
    rows = tables.flags(trainer).splitlines()[2:]
    assert all(len(row.split(" | ")) == 3 and row.split(" | ")[1] for row in rows)
    assert all(re.search(r"`--([\w.-]+)`", row)[1] in site["runs.html"] for row in rows)


def test_a_formula_that_the_converter_cannot_read_is_an_error():
    with pytest.raises(ValueError, match=r"cannot read \\nosuch"):
        maths.mathml(r"x \nosuch y")
