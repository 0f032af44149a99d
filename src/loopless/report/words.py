"""How the page names things: metrics, pictures, settings, times and dates.

Imports `markup`. Tests: `tests/report/test_report_page.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from loopless.report.markup import Markup, join, tag

CAPITALS = {"td": "TD", "q": "Q", "kl": "KL"}
LABELS = {
    "return_mean": "training",
    "eval_return": "evaluation",
    "length_mean": "training",
    "target_mean": "targets",
    "similarity_mean": "mean similarity",
}
TITLES = {
    "q_mean": "Q-values",
    "length": "Episode length",
    "return": "Return",
    "validation": "Validation loss",
    "validation_characters": "Validation loss, by character",
    "similarity": "Similarity to the true eigenvectors",
    "eigenvectors_forming": "Eigenvectors as they form",
}


def words(name: str) -> str:
    return " ".join(CAPITALS.get(word, word) for word in name.split("_"))


def label(metric: str) -> str:
    return LABELS.get(metric, words(metric))


def title(picture: str) -> str:
    said = TITLES.get(picture, words(picture))
    return said[:1].upper() + said[1:]


def day(date: Any) -> str:
    """16 November 2026, from what `isoformat` wrote; as it is if it did not."""
    try:
        found = datetime.fromisoformat(str(date))
    except ValueError:
        return str(date)
    return f"{found.day} {found:%B %Y}"


def setting(value: Any) -> str:
    """A value of a config as one writes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return f"[{', '.join(map(setting, value))}]"
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else str(value)


def prose(text: str) -> Markup:
    """Text whose `commands` in backticks are set as such."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # one that is not closed
        return join([text])
    return join(tag("code", piece) if at % 2 else piece for at, piece in enumerate(pieces))


def several(number: int, one: str, many: str = "") -> str:
    """1 run, 4 runs."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
