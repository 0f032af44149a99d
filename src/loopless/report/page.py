"""Write the page as one string, with nothing to fetch: headlines, problems, speed, runs, verdicts.

The policy in its head forbids what it does not need: scripts, fonts, any request. The large numbers
at the top are the headlines of the results; where a quick run lacks a headline's case, the first
line of the same section stands in. `speed`, `learning` and `verified` make the parts below.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files

from loopless import __version__
from loopless.bench import table
from loopless.bench.machine import is_busy
from loopless.bench.result import Headline, Measurement, Result
from loopless.bench.table import Line, times, value_text
from loopless.report import learning, speed, verified
from loopless.report.gathering import Contents, RunView
from loopless.report.learning import result, what
from loopless.report.markup import Markup, day, join, prose, several, tag
from loopless.runs.progress.quantities import clock_time, count

MOST_RUNS = 8  # with a card at the top; the rest are only in the table below
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def page(contents: Contents, title: str = "loopless report") -> str:
    """Return the page as HTML."""
    cards = list(dict.fromkeys(speed_cards(contents.results)))
    cards += [card for run in contents.runs[:MOST_RUNS] if (card := _run_card(run))]
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
            _hero(cards),
            _busy(contents),
            _problems(contents.problems),
            speed.section(contents.results),
            learning.section(contents.runs),
            verified.section(contents.verdicts),
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
    """Return a warning if the machine was busy while something was measured."""
    busy = [result.suite for result in contents.results if is_busy(result.machine)]
    if not busy:
        return None
    warning = "The machine had other work while this was measured: "
    return tag("aside", warning, tag("b", ", ".join(busy)), ". Measure again alone.", role="note")


def _problems(problems: list[str]) -> Markup | None:
    """Return a list of what could not be read."""
    if not problems:
        return None
    summary = several(len(problems), "thing") + " could not be read and " + (
        "is left out" if len(problems) == 1 else "are left out"
    )  # fmt: skip
    return tag(
        "aside",
        tag("b", summary),
        tag("ul", *(tag("li", prose(problem)) for problem in problems)),
        role="note",
    )


@dataclass(frozen=True)
class Card:
    """A large number, such as 57×; what it is, of which case or run, and the numbers behind it."""

    number: str
    says: str
    of: str
    numbers: str
    kind: str = "speed"


def speed_cards(results: Sequence[Result]) -> Iterator[Card]:
    """Yield a card for each headline, and one for each comparable suite that has none."""
    lines = table.lines(results)
    suites: set[str] = set()
    headlines = [(measured, each) for measured in results for each in measured.headlines]
    for measured, headline in sorted(headlines, key=lambda pair: pair[1].group):
        place = measured.suite, headline.section
        near = [line for line in lines if (line.suite, line.section) == place]
        if exact := _exact(headline, measured):
            yield exact
        elif near and measured.suite not in suites:
            yield _of_line(near[0])
        if exact or near:
            suites.add(measured.suite)
    firsts = {line.suite: line for line in reversed(lines) if line.suite not in suites}
    yield from map(_of_line, reversed(firsts.values()))


def _exact(headline: Headline, measured: Result) -> Card | None:
    place = headline.section, headline.case
    rows = {
        row.contender: row
        for row in measured.measurements
        if (row.section, row.case) == place and row.status == "ok" and table.is_speed(row)
    }
    beside = [(rows[name], shown) for name, shown in headline.beside if name in rows]
    if headline.ours not in rows or not beside:
        return None
    return _card(headline.what, rows[headline.ours], beside)


def _of_line(line: Line) -> Card:
    beside = [(row, shown) for row, shown in ((line.loop, "the loop"), (line.peer, "")) if row]
    named = [(row, shown or row.contender) for row, shown in beside]
    return _card(f"{line.suite.replace('_', ' ')}, {line.name}", line.ours, named)


def _card(of: str, ours: Measurement, beside: Sequence[tuple[Measurement, str]]) -> Card:
    (first, shown), *further = beside
    also = [f"{times(table.ratio(ours, row))} {name}" for row, name in further]
    numbers = f"{value_text(ours)} instead of {value_text(first)}"
    faster = times(table.ratio(ours, first))
    return Card(faster, f"the speed of {shown}", of, "; ".join([numbers, *also]))


def _run_card(run: RunView) -> Card | None:
    if (last := result(run)) is None:
        return None
    name, value = last
    duration = f"{count(run.step)} steps in {clock_time(run.seconds)}"
    return Card(value, name, what(run), duration, "run")


def _hero(cards: Sequence[Card]) -> Markup | None:
    if not cards:
        return None
    drawn = [
        tag(
            "div",
            tag("strong", card.number),
            tag("span", card.says),
            tag("p", card.of),
            tag("p", card.numbers, class_="faint"),
            class_=card.kind,
        )
        for card in cards
    ]
    return tag("div", *drawn, class_="hero")
