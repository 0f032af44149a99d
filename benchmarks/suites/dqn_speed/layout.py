"""How the suite `training` is shown: titles of its sections, and its part of the README.

Imports `markdown`. Tests: `tests/test_readme.py`.
"""

from __future__ import annotations

from loopless.bench.markdown import grid, measured_on, section, target_table
from loopless.bench.result import Result

TITLES = {
    "steps": "CartPole-v1, one environment, learning as it goes: steps a second",
    "memory": "Peak memory of a process that trains",
    "growth": "Memory left behind by a chunk after warm-up",
    "split": "Share of the training thread's time that is neither environment, acting nor learning",
}


def rendered(result: Result) -> list[str]:
    """Steps a second, memory, then every target with what was measured."""
    return [
        *grid("CartPole-v1, one environment", section(result, "steps")),
        "",
        *grid("a process", section(result, "memory")),
        "",
        *target_table(result.measurements),
        "",
        measured_on(result),
    ]
