"""How the suite `allo_learning` is shown: titles of its sections, and its part of the README.

Imports `markdown`. Tests: `tests/test_readme.py`.
"""

from __future__ import annotations

from loopless.bench.markdown import NOT_RUN, line, measured_on, target_table
from loopless.bench.result import Measurement, Result

TITLES = {
    "result 1": "Mazes of corridors that ALLO learns and GGDO does not: similarity to the truth",
    "result 2": "Rooms and mazes: similarity to the true eigenvectors",
    "result 3": "Eigenvalues by the multipliers",
    "result 4": "Outputs permuted midway, and barriers from 0.1 to 10",
    "result 5": "One-way doors: similarity to the correct vectors of the asymmetric walk",
    "result 6": "From pixels",
}


def rendered(result: Result) -> list[str]:
    """How runs ended, and every target with what was measured."""
    return [
        line(["learned", "by", "agents", "similarity", "agents' range", "seconds", "command"]),
        line(["---", "---", "--:", "--:", "--:", "--:", "---"]),
        *(line(_cells(row)) for row in result.measurements),
        "",
        *target_table(result.measurements),
        "",
        measured_on(result),
    ]


def _cells(row: Measurement) -> list[str]:
    if row.value is None:
        return [row.case, row.contender, NOT_RUN, row.status, NOT_RUN, NOT_RUN, f"`{row.note}`"]
    final = row.details["final"]
    return [
        row.case,
        row.contender,
        str(len(final)),
        f"{row.value:.4f}",
        f"{min(final):.4f} … {max(final):.4f}",
        f"{row.details['wall_s']:.0f}",
        f"`{row.note}`",
    ]
