"""How the suite `learning` is shown: titles of its sections, and its part of the README.

Imports `markdown`. Tests: `tests/test_readme.py`.
"""

from __future__ import annotations

import statistics

from loopless.bench.markdown import NOT_RUN, line, measured_on, section, target_table
from loopless.bench.result import Measurement, Result

TITLES = {
    "learning": "Mean return of the last weights over 100 episodes, averaged over seeds",
    "modes": "Mean area under the learning curve",
}


def rendered(result: Result) -> list[str]:
    """How runs ended, how the modes compare, and every target with what was measured."""
    return [
        line(
            ["trained", "by", "seeds", "final return", "seeds' range", "seconds a run", "command"]
        ),
        line(["---", "---", "--:", "--:", "--:", "--:", "---"]),
        *(line(_cells(row)) for row in section(result, "learning")),
        "",
        *target_table(result.measurements),
        "",
        measured_on(result),
    ]


def _cells(row: Measurement) -> list[str]:
    if row.value is None:
        return [row.case, row.contender, NOT_RUN, row.status, NOT_RUN, NOT_RUN, f"`{row.note}`"]
    final, digits = row.details["final"], 2 if abs(row.value) < 10 else 1
    return [
        row.case,
        row.contender,
        str(len(final)),
        f"{row.value:.{digits}f}",
        f"{min(final):.{digits}f} … {max(final):.{digits}f}",
        f"{statistics.median(row.details['wall_s']):.0f}",
        f"`{row.note}`",
    ]
