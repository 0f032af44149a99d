"""The page whole: head, hero, problems, speed, runs. One string, with nothing to fetch.

The policy in its head forbids what it does not need: scripts, fonts, any request. Imports the
other files here. Tests: `tests/report/test_report_page.py`, and in a browser
`tests/report/test_report_browser.py`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.resources import files

from loopless import __version__
from loopless.bench.machine import is_busy
from loopless.report import checked, hero, learning, speed
from loopless.report.gathering import Contents
from loopless.report.markup import Markup, join, tag
from loopless.report.words import day, prose, several

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def page(contents: Contents, title: str = "loopless report") -> str:
    """The page, as HTML."""
    style = files("loopless.report").joinpath("page.css").read_text(encoding="utf-8")
    head = join(
        [
            Markup('<meta charset="utf-8"/>'),
            tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            Markup('<link rel="icon" href="data:,"/>'),
            tag("title", title),
            tag("style", Markup(style)),
        ]
    )
    body = [
        _header(contents, title),
        tag(
            "main",
            hero.shown(hero.cards(contents.results, contents.runs)),
            _busy(contents),
            _problems(contents.problems),
            speed.section(contents.results),
            learning.section(contents.runs),
            checked.section(contents.verdicts),
        ),
        tag("footer", f"Written by loopless {__version__}. This page is one file and loads none."),
    ]
    return f"<!doctype html>\n{tag('html', tag('head', head), tag('body', *body), lang='en')}\n"


def _header(contents: Contents, title: str) -> Markup:
    made = [
        several(len(contents.runs), "run"),
        several(len(contents.results), "suite") + " of benchmarks",
        *([several(len(contents.verdicts), "function") + " verified"] * bool(contents.verdicts)),
        day(datetime.now(UTC).isoformat()),
    ]
    names = ["Speed", "Runs", *(["Verified"] if contents.verdicts else [])]
    links = [tag("a", name, href=f"#{name.lower()}") for name in names]
    return tag(
        "header",
        tag("h1", title),
        tag("p", " · ".join(made), class_="faint"),
        tag("nav", *links, aria_label="Parts of this page"),
    )


def _busy(contents: Contents) -> Markup | None:
    """Large numbers are not to be believed before this is read."""
    busy = [result.suite for result in contents.results if is_busy(result.machine)]
    if not busy:
        return None
    said = "The machine had other work while this was measured: "
    return tag("aside", said, tag("b", ", ".join(busy)), ". Measure again alone.", role="note")


def _problems(problems: list[str]) -> Markup | None:
    """What the reader does not see here, and why."""
    if not problems:
        return None
    said = several(len(problems), "thing") + " could not be read and " + (
        "is left out" if len(problems) == 1 else "are left out"
    )  # fmt: skip
    return tag(
        "aside",
        tag("b", said),
        tag("ul", *(tag("li", prose(problem)) for problem in problems)),
        role="note",
    )
