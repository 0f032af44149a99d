"""Charts of the page: scales, themes, descriptions, and whatever a log may hold."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_page import result
from support import made_up_runs

from loopless.report.charts import MOST_TICKS, Scale, bars, curves, format_decade
from loopless.report.markup import Markup, tag
from loopless.report.page import speed_cards
from loopless.runs.pictures import plots
from loopless.runs.pictures.plots import Run

positive = st.floats(1e-12, 1e12)


@given(st.lists(positive, min_size=1, max_size=9))
def test_bars_end_inside_the_axis_in_the_order_of_their_values(values):
    scale = Scale(values)
    ends = [scale.clip(value) for value in sorted(values)]
    assert ends == sorted(ends)
    assert scale.low < min(ends)
    assert max(ends) <= scale.high
    assert 2 <= len(scale.decades) <= MOST_TICKS + 1


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (1e-9, "s", "1 ns"),
        (1e-6, "s", "1 µs"),
        (1e-4, "s", "100 µs"),
        (1e-2, "s", "10 ms"),
        (100.0, "s", "100 s"),
        (1e3, "s", "1,000 s"),
        (100.0, "steps/s", "100"),
        (1e4, "steps/s", "10k"),
        (1e6, "tokens/s", "1M"),
    ],
)
def test_decades_are_said_in_units(value, unit, said):
    assert format_decade(value, unit) == said


@pytest.mark.parametrize(
    "line", [[1.0], [3.0, 3.0, 3.0], [0.0, 0.0], [1e-9, 1e9], [math.nan, 1.0, 2.0]]
)
def test_any_curve_can_be_drawn(line, tmp_path):
    rows = [
        {"step": at, "time": 1.0, "kind": "train", "loss": value}
        for at, value in enumerate(line)
        if not math.isnan(value)
    ]
    run = Run.read(made_up_runs.write(tmp_path, rows))
    chart = curves("Loss", "nats", "ends", lambda: plots.lines(run, "loss"), large=True)
    assert chart.count("<svg") == 2
    assert not re.search(r"\b(nan|inf)\b", chart, re.IGNORECASE)


def test_nothing_to_draw_is_no_chart(tmp_path):
    run = Run.read(made_up_runs.write(tmp_path, []))
    assert curves("Loss", "", "", lambda: plots.lines(run, "loss"), large=False) is None


@pytest.fixture(scope="module")
def bar_chart():
    rows = [row for row in result().measurements if row.section == "shapes"]
    return bars(rows, Scale([row.value for row in rows if row.value]), 'Title of "this"')


def test_a_chart_has_a_title_and_a_description(bar_chart):
    label = "Title of &quot;this&quot;"
    assert f'aria-label="{label}"><title>{label}</title><desc>loopless, NumPy 10.0 µs;' in bar_chart
    assert "<title>a wrong peer: 2.00 µs; off by 3</title>" in bar_chart


def test_colours_follow_the_theme(bar_chart):
    assert {"var(--accent)", "var(--loop)", "var(--peer)", "var(--floor)", "var(--bad)"} <= set(
        re.findall(r"var\(--\w+\)", bar_chart)
    )
    assert re.findall(r": ?#[0-9a-f]{6}", bar_chart) == []


def test_names_inside_two_charts_differ(bar_chart):
    rows = [row for row in result().measurements if row.section == "shapes"]
    other = bars(rows, Scale([1e-6, 1e-3]), "Another title")
    names = [set(re.findall(r'\bid="([^"]+)"', chart)) for chart in (bar_chart, other)]
    assert names[0]
    assert not names[0] & names[1]


def test_text_cannot_become_markup():
    evil = '"><script>alert(1)</script>'
    drawn = tag("p", evil, title=evil)
    assert "<script" not in drawn
    assert tag("p", Markup("<b>x</b>"), None, class_="a", hidden=False) == (
        '<p class="a"><b>x</b></p>'
    )


def test_a_quick_result_has_a_headline_of_its_own():
    (card,) = speed_cards([result()])
    assert (card.number, card.says) == ("100×", "the speed of the loop")
