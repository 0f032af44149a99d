"""How the suite `avatarl` is shown: titles of its sections, and its part of the README.

Imports `markdown`. Tests: `tests/suites/avatarl/test_bench_avatarl.py`, `tests/test_readme.py`.
"""

from __future__ import annotations

from loopless.bench.markdown import cell, grid, line, measured_on, section, target_table
from loopless.bench.result import Result

TITLES = {
    "loss": "Loss and gradient, forward and backward: median time, ± half the quartiles",
    "memory": "Memory beyond logits and gradient, in arrays of the logits' size",
    "operations": "Operations that PyTorch dispatches, forward and backward",
    "training": "Training end to end: critic, model, loss, gradient, AdamW; tokens a second",
    "proposals": "Proposals of the founding note and of those after it, beside the looped original",
}


def rendered(result: Result) -> list[str]:
    """Times, memory, operations, what was proposed, then every target."""
    lines = [*grid("loss and gradient", section(result, "loss")), ""]
    lines += [*grid("memory beyond logits and gradient", section(result, "memory")), ""]
    if counted := section(result, "operations"):
        lines += [*grid("operations dispatched", counted), ""]
    if trained := section(result, "training"):
        lines += [*grid("training, end to end", trained), ""]
    proposed = section(result, "proposals")
    for case in dict.fromkeys(row.case for row in proposed):
        lines += [line([case, "claimed", "measured", "answer"]), line(["---", "---", "--:", "---"])]
        lines += [
            line([row.contender, row.claim, cell(row).removesuffix(" (wrong)"), _answer(row)])
            for row in proposed
            if row.case == case
        ]
        lines.append("")
    return [*lines, *target_table(result.measurements), "", measured_on(result)]


def _answer(row) -> str:
    return {"ok": "the original's"}.get(row.status, f"another: {row.reason}")
