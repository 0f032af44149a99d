"""How the suite `returns` is shown: titles of its sections, and its part of the README.

Imports `markdown`, and names from `ours`. Tests: `tests/test_readme.py`.
"""

from __future__ import annotations

from loopless.bench.markdown import grid, measured_on, section, target_table
from loopless.bench.result import Result
from suites.returns.ours import FLOOR, NUMPY, TORCH

TITLES = {
    "shapes": "GAE, both outputs, [T, B] float32: median time, ± half the quartile range",
    "floor": "Against the machine's streaming speed, second-level cache emptied before each call",
    "overhead": "The whole public call, checks included",
    "gradients": "PyTorch with gradients to rewards, values and next values",
    "loops": "Against loops over environments and steps",
    "proposals": "Proposals of the founding note",
    "memory": "Peak memory beyond inputs and outputs, in arrays of that shape",
}


def rendered(result: Result) -> list[str]:
    """Times by shape, then every target with what was measured."""
    return [
        *grid("GAE, both outputs", section(result, "shapes")),
        "",
        *target_table(result.measurements),
        "",
        _warm_ratios(result),
        "",
        measured_on(result),
    ]


def _warm_ratios(result: Result) -> str:
    """The same ratio to the floor as is judged on cold caches, from the table's warm times."""
    judged = {row.case for row in section(result, "floor")}
    times = {(row.case, row.contender): row.value for row in section(result, "shapes")}
    parts = []
    for (case, name), value in times.items():
        floor = times.get((case, FLOOR))
        if case in judged and name in (NUMPY, TORCH) and value and floor:
            parts.append(f"{name}, {case}: {value / floor:.2f}")
    return f"Warm, as in the table, × the floor (not judged): {'; '.join(parts)}."
