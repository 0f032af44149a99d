"""How the suite `replay` is shown: titles of its sections, and its part of the README.

Imports `markdown`. Tests: `tests/test_readme.py`.
"""

from __future__ import annotations

from loopless.bench.markdown import grid, measured_on, section, target_table
from loopless.bench.result import Result

TITLES = {
    "uniform": "Uniform draws, five fields as in CartPole: median time, ± half the quartile range",
    "one call": "Many small batches: one call of ours, a call a batch for the others",
    "prioritized": "Prioritized: draw, weights, update",
    "episodic": "Pairs of one segment at a truncated-geometric gap, 1000 rows × 1001 steps",
    "adding": "Adding to a full buffer",
    "ingest": "Filling an episodic buffer",
    "cold": "A call at a time, second-level cache emptied before it",
    "growth": "The same call on a small buffer and on a large one",
    "device": "Inside a jitted scan on the CPU",
}
HOST = ("uniform", "one call", "prioritized", "episodic", "adding")


def rendered(result: Result) -> list[str]:
    """Times on the host, times in a scan, then every target with what was measured."""
    return [
        *grid("host", section(result, *HOST)),
        "",
        *grid("in a jitted scan", section(result, "device"), "case", "contender"),
        "",
        *target_table(result.measurements),
        "",
        measured_on(result),
    ]
