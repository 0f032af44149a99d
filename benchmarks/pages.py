"""Write the tables of our pages from the committed results.

    python benchmarks/pages.py README.md benchmarks/RESULTS.md

The text between `<!-- bench:NAME -->` and `<!-- end -->` is made from benchmarks/results: the
tables of the suite NAME, or the headlines of several suites ("five", "own", "further", or all:
"headlines"). The picture docs/images/gains.svg is redrawn, too. A test checks that pages and
results agree.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import log10
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from loopless.bench import table
from loopless.bench.result import Headline, Measurement, Result, load
from loopless.bench.sources import age
from loopless.bench.suites import load as load_suite
from loopless.bench.suites import names
from loopless.bench.table import times

RESULTS = Path("benchmarks/results")
PICTURE = Path("docs/images/gains.svg")
BLOCK = re.compile(r"(<!-- bench:(\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
GROUPS = {
    "headlines": ("five", "own", "further"),
    "five": ("five",), "own": ("own",), "further": ("further",), "compiled": ("compiled",),
}  # fmt: skip
OLD_PRESETS, PRESETS = "benchmarks/presets", "src/loopless/train/presets"
NOT_RUN, NOT_MEASURED = "–", "not measured"
Axis = Literal["case", "contender"]
Lines = list[str]


@dataclass(frozen=True)
class Gain:
    """Two rows of a case, ours and the original's, and perhaps a third with the name to show."""

    suite: str
    section: str
    case: str
    ours: str
    original: str
    third: tuple[str, str] | None = None


def _own(section: str, case: str, third: tuple[str, str] | None = None) -> Gain:
    return Gain("own_code", section, case, "loopless in its place", "the original", third)


_DELETED = ("the original, its debug line deleted", "its debug line deleted")
HOT_SPOTS: dict[str, tuple[Gain | None, Gain | None]] = {  # in place; the whole program
    "esper-lite's GAE": (
        _own("in_place", "esper-lite's GAE, 64 envs × 512 steps"),
        _own("only_the_function", "PPO, 4 envs × 128 steps, 4 × 4 updates"),
    ),
    "ALLO's replay": (_own("in_place", "ALLO's replay, 256 of 1000 episodes × 1000 steps"), None),
    "SLM-Lab's Q-loss": (
        _own("in_place", "SLM-Lab's calc_q_loss, batch 32, [64]", _DELETED),
        _own("only_the_function", "DQN [64], batch 32, 32 updates in four steps", _DELETED),
    ),
    "AvataRL's loss": (
        _own("in_place", "AvataRL's loss and gradient, 256 tokens of 50304"),
        Gain(
            "avatarl", "training", "0.2M model, V = 512, k = 4, 8 windows of 64",
            "PyTorch, eager: our loss", "PyTorch, eager: the looped original",
        ),
    ),
    "ALLO's training": (
        None,
        Gain(
            "allo_speed", "whole", "1M transitions, 20,000 steps, pictures",
            "loopless", "original form",
        ),
    ),
}  # fmt: skip


def update(text: str, results: Path) -> str:
    """Return the page with every marked table renewed from the files in `results`."""

    def renew(match: re.Match) -> str:
        start, name, end = match.groups()
        lines = (
            headline_table(GROUPS[name], results)
            if name in GROUPS
            else suite_page(load(results / f"{name}.json"))
        )
        return start + "\n".join(lines) + "\n" + end

    return BLOCK.sub(renew, text)


def suite_page(result: Result) -> Lines:
    """Return the tables that a suite lays out, then every target, and when it was measured.

    A result may be older than its suite: rows of sections that the suite has no more are left out.
    """
    suite = load_suite(result.suite)
    wanted = suite.TITLES.keys() - {table.ABLATION}
    judged = [row for row in result.measurements if row.section in wanted]
    parts = [*suite.page(result), target_table(judged), [measured_on(result)]]
    return [line for part in filter(None, parts) for line in (*part, "")][:-1]


def tables(*wanted: tuple[str, Sequence[str], Axis]) -> Callable[[Result], list[Lines]]:
    """Return a function that lays out a page: a table for each head, its sections, and its rows."""
    across: dict[Axis, Axis] = {"case": "contender", "contender": "case"}

    def page(result: Result) -> list[Lines]:
        return [
            grid(head, section(result, *sections), down, across[down])
            for head, sections, down in wanted
        ]

    return page


def section(result: Result, *names: str) -> list[Measurement]:
    """Return the rows of these sections."""
    return [row for row in result.measurements if row.section in names]


def grouped(
    rows: Iterable[Measurement], key: Callable[[Measurement], str]
) -> dict[str, list[Measurement]]:
    """Return the rows of each key, in the order in which keys first occur."""
    groups: dict[str, list[Measurement]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def markdown_row(cells: Iterable[str]) -> str:
    """Return one line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]], right: str) -> Lines:
    """Return a Markdown table; `right` has an r for each column that is set to the right."""
    rule = ["--:" if side == "r" else "---" for side in right]
    return [markdown_row(cells) for cells in (head, rule, *rows)]


def grid(
    head: str, rows: Sequence[Measurement], down: Axis = "contender", across: Axis = "case"
) -> Lines:
    """Return a table of measurements with their units, in the order of `rows`; [] without any."""
    if not rows:
        return []
    columns = list(dict.fromkeys(getattr(row, across) for row in rows))
    cells = {(getattr(row, down), getattr(row, across)): cell(row) for row in rows}
    lines = [
        [name, *(cells.get((name, column), NOT_RUN) for column in columns)]
        for name in dict.fromkeys(getattr(row, down) for row in rows)
    ]
    return markdown_table([head, *columns], lines, "l" + "r" * len(columns))


def proposals(result: Result, what: str, title: str = "") -> list[Lines]:
    """Return a table of proposals for each case: what was claimed, measured, and perhaps gained."""
    parts = []
    for case, rows in grouped(section(result, table.ABLATION), attrgetter("case")).items():
        gains = any(map(_gain, rows))
        lines = [[row.contender, row.claim, cell(row), *[_gain(row)] * gains] for row in rows]
        head = [f"{title}; {case}" if title else case, "claimed", what, *["gain"] * gains]
        parts.append(markdown_table(head, lines, "llr" + "r" * gains))
    return parts


def _gain(row: Measurement) -> str:
    numbers = [target.measured for target in row.targets if target.measured is not None]
    return f"{numbers[0]:.2f}×" if numbers else ""


def cell(row: Measurement) -> str:
    """Write one measurement, and whether its answer was wrong."""
    if row.value is None:
        return row.status
    wrong = " (wrong)" if row.status == "disagrees" else ""
    return table.quantity(row.value, row.unit) + wrong


def command(row: Measurement) -> str:
    """Write the command of a training run; in older results the presets are at another path."""
    return f"`{row.note.replace(OLD_PRESETS, PRESETS)}`"


def outcome_cells(
    row: Measurement, digits: int, seconds: Callable[[dict[str, Any]], float]
) -> list[str]:
    """Return a row of a results page: who learned what, how well, how long, by which command."""
    if row.value is None:
        return [row.case, row.contender, NOT_RUN, row.status, NOT_RUN, NOT_RUN, command(row)]
    final = row.details["final"]
    span = f"{min(final):.{digits}f} … {max(final):.{digits}f}"
    cells = [str(len(final)), f"{row.value:.{digits}f}", span, f"{seconds(row.details):.0f}"]
    return [row.case, row.contender, *cells, command(row)]


def target_table(rows: Iterable[Measurement]) -> Lines:
    """Return every target with what was measured."""
    lines = []
    for row in rows:
        for target in row.targets:
            unjudged = "not measured" if target.measured is None else "stated"
            verdict = {True: "met", False: "**missed**", None: unjudged}[target.met]
            where = f"{row.contender}, {row.case}"
            lines.append([where, target.target, table.measured(target), verdict])
    return markdown_table(["case", "target", "measured", ""], lines, "llrl")


def measured_on(result: Result) -> str:
    """Say on what machine, on what day and from which commit a suite was measured."""
    when = age(result)
    threads = result.settings["threads"]
    where = f"{result.machine['cpu']}, {threads} thread{'s' if threads > 1 else ''}"
    return f"Measured on {when.day} from commit {when.commit}: {where}."


def headlines(groups: Sequence[str], results: Path) -> list[tuple[Result, Headline]]:
    """Return the headlines of these groups, each with its result."""
    measured = [load(results / f"{name}.json") for name in names(needed=True)]
    return [
        (result, headline)
        for group in groups
        for result in measured
        for headline in result.headlines
        if headline.group == group
    ]


def headline_table(groups: Sequence[str], results: Path) -> Lines:
    """Return a table for each group of headlines, and below them when each suite was measured."""
    lines, measured = [], []
    for group in groups:
        chosen = headlines((group,), results)
        if group == "compiled":  # a result may be older than the rows
            chosen = [pair for pair in chosen if headline_rows(*pair)]
        measured += [result for result, _ in chosen]
        if group == "five":
            gains = [HOT_SPOTS[hot_spot(headline)] for _, headline in chosen]
            needed = dict.fromkeys(gain.suite for pair in gains for gain in pair if gain)
            others = {name: load(results / f"{name}.json") for name in needed}
            measured += others.values()
            lines += [*hot_spot_table(chosen, others), ""]
        else:
            tables = {"own": program_table, "further": peer_table, "compiled": fastest_peer_table}
            lines += [*tables[group](chosen), ""]
    if not measured:
        return ["Not measured yet."]
    return [*lines, f"Measured: {', '.join(dict.fromkeys(map(day_and_commit, measured)))}."]


def day_and_commit(result: Result) -> str:
    """Say when and from which commit a suite was measured, and whether only quickly."""
    when, quick = age(result), ", quick" if result.settings.get("quick") else ""
    return f"{when.suite} {when.day} ({when.commit}{quick})"


def hot_spot(headline: Headline) -> str:
    """Return the short name of one of the five, which `HOT_SPOTS` has."""
    return headline.what.split(":")[0]


def hot_spot_table(
    chosen: Sequence[tuple[Result, Headline]], others: Mapping[str, Result]
) -> Lines:
    """Return what each hot spot gains: by itself, in the original's class, in its program."""
    lines = []
    for result, headline in chosen:
        rows = headline_rows(result, headline)
        alone = comparison(rows.get(headline.ours), rows.get(headline.beside[0][0]))
        gains = [
            gain and gain_cell(others[gain.suite], gain) for gain in HOT_SPOTS[hot_spot(headline)]
        ]
        lines.append([headline.what, alone, *(gain or NOT_RUN for gain in gains)])
    return markdown_table(
        ["", "the function alone", "in place", "the whole program"], lines, "llll"
    )


def gain_cell(result: Result, gain: Gain) -> str:
    """Write how the original's number became ours, and the third row beside it."""
    rows = rows_of(result, gain.section, gain.case)
    original = rows.get(gain.original)
    text = comparison(rows.get(gain.ours), original)
    if gain.third is None or text == NOT_MEASURED:
        return text
    name, shown = gain.third
    return f"{text}; {shown}: {faster(rows.get(name), original)}"


def comparison(ours: Measurement | None, original: Measurement | None) -> str:
    """Write both numbers and their ratio, or that they were not measured."""
    gain = faster(ours, original)
    return gain if ours is None or original is None else f"{cell(original)} → {cell(ours)}: {gain}"


def faster(ours: Measurement | None, original: Measurement | None) -> str:
    """Write how many times as fast ours is, or that it was not measured."""
    if ours is None or original is None or ours.value is None or original.value is None:
        return NOT_MEASURED
    return f"**{times(table.ratio(ours, original))}**"


def program_table(chosen: Sequence[tuple[Result, Headline]]) -> Lines:
    """Return whole programs before and after."""
    lines = []
    for result, headline in chosen:
        rows = headline_rows(result, headline)
        before, after = rows.get(headline.beside[0][0]), rows.get(headline.ours)
        numbers = [cell(row) if row else NOT_MEASURED for row in (before, after)]
        lines.append([headline.what, *numbers, faster(after, before)])
    return markdown_table(["whole program", "before", "after", "gain"], lines, "lrrr")


def peer_table(chosen: Sequence[tuple[Result, Headline]]) -> Lines:
    """Return ours beside peers."""
    lines = []
    for result, headline in chosen:
        rows = headline_rows(result, headline)
        ours = rows.get(headline.ours)
        beside = [
            f"{shown} {table.value_text(rows.get(name))}: {faster(ours, rows.get(name))}"
            for name, shown in headline.beside
        ]
        lines.append([headline.what, cell(ours) if ours else NOT_MEASURED, ", ".join(beside)])
    return markdown_table(["", "loopless", "beside"], lines, "lrl")


def fastest_peer_table(chosen: Sequence[tuple[Result, Headline]]) -> Lines:
    """Return ours beside the fastest peer of each case."""
    lines = []
    for result, headline in chosen:
        rows = headline_rows(result, headline)
        ours, peer = rows.get(headline.ours), table.best(list(rows.values()), "peer")
        beside = f"{peer.contender} {cell(peer)}: {faster(ours, peer)}" if peer else NOT_MEASURED
        lines.append([headline.what, cell(ours) if ours else NOT_MEASURED, beside])
    return markdown_table(["", "loopless", "the fastest compiled peer"], lines, "lrl")


def headline_rows(result: Result, headline: Headline) -> dict[str, Measurement]:
    """Return the rows of a headline's case, by contender."""
    return rows_of(result, headline.section, headline.case)


def rows_of(result: Result, section: str, case: str) -> dict[str, Measurement]:
    """Return the rows of a case, by contender."""
    place = section, case
    return {row.contender: row for row in result.measurements if (row.section, row.case) == place}


WIDTH, LEFT, RIGHT, ROW, TOP = 760, 300, 70, 34, 14
STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#24292f}.axis{font-size:12px;fill:#57606a}"
    ".bar{fill:#1f6feb}.line{stroke:#d0d7de}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.axis{fill:#9198a1}"
    ".bar{fill:#4493f8}.line{stroke:#3d444d}}"
)


def draw_gains(results: Path) -> str:
    """Return an SVG of bars on a logarithmic scale: how many times as fast each hot spot became."""
    gains = []
    for result, headline in headlines(("five",), results):
        rows = headline_rows(result, headline)
        gain = table.ratio(rows[headline.ours], rows[headline.beside[0][0]])
        gains.append((hot_spot(headline), gain))
    decades = max(1, int(log10(max(gain for _, gain in gains))) + 1)
    scale, bottom = (WIDTH - LEFT - RIGHT) / decades, TOP + ROW * len(gains)
    parts = []
    for decade in range(decades + 1):
        x, label = LEFT + decade * scale, f"{10**decade:,}×"
        parts += [
            f'<line class="line" x1="{x:.0f}" x2="{x:.0f}" y1="{TOP}" y2="{bottom}"/>',
            f'<text class="axis" x="{x:.0f}" y="{bottom + 18}" text-anchor="middle">{label}</text>',
        ]
    for number, (what, gain) in enumerate(gains):
        y, length = TOP + ROW * number, max(2.0, log10(gain) * scale)
        middle = y + ROW / 2 + 5
        box = f'x="{LEFT}" y="{y + 6}" width="{length:.0f}" height="{ROW - 12}" rx="3"'
        parts += [
            f'<text x="{LEFT - 12}" y="{middle:.0f}" text-anchor="end">{escape(what)}</text>',
            f'<rect class="bar" {box}/>',
            f'<text x="{LEFT + length + 8:.0f}" y="{middle:.0f}">{times(gain)}</text>',
        ]
    title = "How many times as fast as the loop it replaces, on one CPU core"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 30}" role="img" '
        f'aria-label="{title}"><title>{title}</title><style>{STYLE}</style>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def main(pages: Sequence[str]) -> None:
    """Write these pages and the picture anew."""
    for page in map(Path, pages):
        page.write_text(update(page.read_text(), RESULTS))
    PICTURE.write_text(draw_gains(RESULTS))


if __name__ == "__main__":
    main(sys.argv[1:])
