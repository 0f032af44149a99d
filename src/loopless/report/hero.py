"""The top of the page: what was gained, in a few large numbers.

The README's headlines where the results hold them; of a suite that was run quick and holds none of
them, the first of the same section. Then how each run ended. Imports `bench`. Tests:
`tests/report/test_report_charts.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loopless.bench import table
from loopless.bench.result import Headline, Measurement, Result
from loopless.bench.table import Line, times, value_text
from loopless.report.gathering import RunView
from loopless.report.learning import result, what
from loopless.report.markup import Markup, tag
from loopless.runs.progress.quantities import clock_time, count

MOST_RUNS = 8  # the rest stand in the table below


@dataclass(frozen=True)
class Card:
    """A large number, what it says, of what, and the numbers behind it."""

    number: str
    says: str
    of: str
    numbers: str
    kind: str = "speed"


def cards(results: Sequence[Result], runs: Sequence[RunView]) -> list[Card]:
    found = list(dict.fromkeys(speed_cards(results)))
    return found + [card for run in runs[:MOST_RUNS] if (card := run_card(run))]


def speed_cards(results: Sequence[Result]) -> Iterator[Card]:
    """One for each headline; else one for each suite that can be compared."""
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


def run_card(run: RunView) -> Card | None:
    found = result(run)
    if found is None:
        return None
    name, value = found
    return Card(
        value, name, what(run), f"{count(run.step)} steps in {clock_time(run.seconds)}", "run"
    )


def shown(found: Sequence[Card]) -> Markup | None:
    if not found:
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
        for card in found
    ]
    return tag("div", *drawn, class_="hero")
