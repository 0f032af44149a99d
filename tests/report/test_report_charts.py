"""Scales and ticks: every number has its place, and labels are round."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopless.report import bars, curves
from loopless.report.hero import speed_cards
from loopless.report.markup import Markup, tag
from loopless.runs.pictures.series import Curve

positive = st.floats(1e-12, 1e12)


@given(st.lists(positive, min_size=1, max_size=9))
def test_bars_are_as_long_as_their_logarithms(values):
    scale = bars.Scale(values)
    places = [scale.at(value) for value in sorted(values)]
    assert places == sorted(places)
    assert min(places) >= bars.SHORTEST
    assert max(places) <= 100
    assert 2 <= len(scale.decades()) <= bars.MOST_TICKS + 1


def test_a_decade_is_the_same_length_everywhere():
    scale = bars.Scale([2e-6, 1e-2])
    steps = [scale.at(10.0 * x) - scale.at(x) for x in (1e-5, 1e-4, 1e-3)]
    np.testing.assert_allclose(steps, 25.0)  # of four decades


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
    assert bars._decade(value, unit) == said


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9))
def test_ticks_lie_within_and_are_evenly_spread(low, width):
    high = low + width
    found = curves.ticks(low, high)
    slack = 1e-6 * (abs(low) + width)
    assert all(low - slack <= tick <= high + slack for tick in found)
    if high - low > 1e-9 * abs(high):
        assert 2 <= len(found) <= 7
        np.testing.assert_allclose(np.diff(found), np.diff(found)[0], rtol=1e-3)


@pytest.mark.parametrize(
    "line", [[1.0], [3.0, 3.0, 3.0], [0.0, 0.0], [1e-9, 1e9], [math.nan, 1.0, 2.0]]
)
@pytest.mark.parametrize("logarithmic", [False, True])
def test_any_curve_can_be_drawn(line, logarithmic):
    values = np.array(line)
    made = curves.Named("it", Curve(np.arange(len(line)) * 10, values, values, values))
    drawn = curves.chart("Title", "unit", [made], logarithmic=logarithmic)
    assert "nan" not in drawn
    assert "inf" not in drawn


def test_text_cannot_become_markup():
    evil = '"><script>alert(1)</script>'
    drawn = tag("p", evil, title=evil)
    assert "<script" not in drawn
    assert tag("p", Markup("<b>x</b>"), None, class_="a", hidden=False) == (
        '<p class="a"><b>x</b></p>'
    )


def test_a_quick_result_has_a_headline_of_its_own():
    from made_up_page import result

    (card,) = speed_cards([result()])
    assert (card.number, card.says) == ("100×", "the speed of the loop")
