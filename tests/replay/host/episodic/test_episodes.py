"""Segment ends and horizons against the loop that walks each row, for every convention."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopless.compiled import segments
from loopless.reference import episodic as reference
from loopless.replay.host.episodic.episodes import CONVENTIONS, mark_rows


def horizons(marks, last, convention, valid=None):
    """Return the horizons of rows whose last steps are given."""
    return mark_rows(marks, lengths_of(last), convention, valid)[0]


def odd_run(marks, last):
    """Return (row, step, length) of the first odd run, or None."""
    problem, *where = mark_rows(marks, lengths_of(last), "double")[2]
    return tuple(where) if problem == segments.ODD_RUN else None


def lengths_of(last):
    return np.diff(np.flatnonzero(last), prepend=-1)


def laid_end_to_end(rows):
    """Flat marks of `rows`, and where each ends."""
    last = np.zeros(sum(map(len, rows)), bool)
    last[np.cumsum([len(row) for row in rows]) - 1] = True
    return np.concatenate([np.array(row, bool) for row in rows]), last


def off_by_one(marks, last, convention, valid=None):
    """A mutant: the end of a segment may be overstepped by one."""
    return horizons(marks, last, convention, valid) + 1


def without_row_ends(marks, last, convention, valid=None):
    """A mutant: rows laid end to end flow into each other."""
    only = np.zeros_like(last)
    only[-1] = True
    return horizons(marks, only, convention, valid)


def capped_at_100_marks(marks, last, convention, valid=None):
    """A mutant: a table of 100 marks, and those after it are not seen."""
    return horizons(marks & (np.cumsum(marks) <= 100), last, convention, valid)


@st.composite
def several_rows(draw, convention):
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        row = draw(st.lists(st.booleans(), min_size=1, max_size=30))
        if convention == "double":  # pairs, with an odd run only where the row ends
            row = [mark for mark in row for _ in range(2 if mark else 1)]
            row = row[: len(row) - draw(st.integers(0, 1))] or [False]
        rows.append(row)
    return rows


def expected(rows, convention, valid=None):
    if valid is None:
        return [n for row in rows for n in reference.horizons(row, convention)]
    cuts = np.cumsum([0] + [len(row) for row in rows])
    return [
        n
        for i, row in enumerate(rows)
        for n in reference.horizons(row, convention, valid[cuts[i] : cuts[i + 1]])
    ]


@pytest.mark.parametrize("convention", CONVENTIONS)
@given(data=st.data())
def test_horizons_equal_the_loop(convention, data):
    rows = data.draw(several_rows(convention))
    marks, last = laid_end_to_end(rows)
    found = horizons(marks, last, convention)
    assert found.dtype == np.int32
    assert found.tolist() == expected(rows, convention)


@pytest.mark.parametrize("convention", CONVENTIONS)
@given(data=st.data())
def test_horizons_equal_the_loop_where_steps_are_not_valid(convention, data):
    rows = data.draw(several_rows(convention))
    marks, last = laid_end_to_end(rows)
    valid = data.draw(st.lists(st.booleans(), min_size=marks.size, max_size=marks.size))
    found = horizons(marks, last, convention, np.array(valid))
    assert found.tolist() == expected(rows, convention, valid)


@given(data=st.data())
def test_double_horizons_equal_the_legacy_rule_but_at_ends(data):
    row = [*data.draw(several_rows("double"))[0], False]
    marks, last = laid_end_to_end([row])
    if odd_run(marks, last):
        return
    found, legacy = horizons(marks, last, "double"), reference.legacy_horizons(row)
    ends = reference.segment_ends(row, "double")
    inner = [t for t in range(len(row)) if not ends[t]]
    assert [found[t] for t in inner] == [legacy[t] for t in inner]
    assert not any(found[t] for t in range(len(row)) if ends[t])


@given(rows=st.lists(st.lists(st.booleans(), min_size=1, max_size=12), min_size=1, max_size=4))
def test_odd_runs_are_found_where_the_loop_meets_them(rows):
    first = None
    for e, row in enumerate(rows):
        try:
            reference.segment_ends(row, "double")
        except ValueError as error:
            first = first or (e, str(error))
    found = odd_run(*laid_end_to_end(rows))
    if first is None:
        assert found is None
    else:
        assert found is not None
        row, step, length = found
        assert (row, f"{length} marks in a row from step {step} on") == first


MANY = ([False] * 3 + [True] * 2) * 60
MUTANTS = {
    "off by one": (off_by_one, [[False, False, True, True, False, False]]),
    "rows flow together": (without_row_ends, [[False] * 3, [False] * 4]),
    "100 marks": (capped_at_100_marks, [MANY]),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_comparison_catches_mutants(name):
    mutant, rows = MUTANTS[name]
    marks, last = laid_end_to_end(rows)
    assert horizons(marks, last, "double").tolist() == expected(rows, "double")
    assert mutant(marks, last, "double").tolist() != expected(rows, "double")


def test_the_comparison_catches_the_legacy_rule():
    row = [False, True, True, False, True, True, False]
    assert reference.legacy_horizons(row) != expected([row], "double")
