"""How the suite `avatarl_learning` is shown: titles of its sections, and its part of the README.

Imports `markdown`. Tests: `tests/suites/avatarl_learning/test_bench_text_learning.py`,
`tests/test_readme.py`.
"""

from __future__ import annotations

import statistics

from loopless.bench.markdown import NOT_RUN, line, measured_on, section, target_table
from loopless.bench.result import Measurement, Result

TITLES = {"learning": "Validation cross-entropy after equal tokens, averaged over seeds"}
SAMPLED = 600  # characters of a sample that are shown


def rendered(result: Result) -> list[str]:
    """How everyone ended, a sample of the first student, and every target."""
    rows, corpus = section(result, "learning"), result.settings["corpus"]
    head = ["learned by", "seeds", "nats a character", "range", "nats a token", "tokens/s"]
    lines = [line(head), line(["---", *["--:"] * (len(head) - 1)])]
    lines += [line(_cells(row)) for row in rows]
    size, digest = f"{corpus['bytes'] / 1e6:.1f} MB", corpus["sha256"][:12]
    case = rows[0].case if rows else ""
    lines += ["", f"{case}; {corpus['name']}, {size}, SHA-256 {digest}….", ""]
    for row in rows:
        if sample := row.details.get("sample"):
            text = _as_text(sample[:SAMPLED].rstrip())
            lines += [f"{row.contender}, of the first seed:", "", "```python", text, "```", ""]
    return [*lines, *target_table(result.measurements), "", measured_on(result)]


def _as_text(sample: str) -> str:
    """What a model wrote, as a page can hold it: control characters by their signs (␀ … ␟)."""
    shown = (c if c in "\n\t" or c >= " " else chr(0x2400 + ord(c)) for c in sample)
    return "".join(shown).replace("```", "'''")


def _cells(row: Measurement) -> list[str]:
    if row.value is None:
        return [row.contender, NOT_RUN, row.status, *[NOT_RUN] * 3]
    final = row.details.get("final")
    if not final:
        return [row.contender, NOT_RUN, f"{row.value:.3f}", *[NOT_RUN] * 3]
    each = [one["validation_per_character"] for one in final]
    return [
        row.contender,
        str(len(each)),
        f"{row.value:.3f}",
        f"{min(each):.3f} … {max(each):.3f}",
        f"{statistics.fmean(one['validation_loss'] for one in final):.3f}",
        f"{statistics.median(row.details['tokens_per_s']):,.0f}",
    ]
