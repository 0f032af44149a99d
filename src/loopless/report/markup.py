"""Build HTML in which text from a run or a file cannot become markup; format dates and values."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from html import escape
from typing import Any


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


EMPTY = frozenset({"img", "br", "meta"})


def tag(kind: str, /, *children: object, **attributes: object) -> Markup:
    """Return an element. `class_` becomes class, and `data_label` data-label; None is left out."""
    listed = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if kind in EMPTY and not children:
        return Markup(f"<{kind}{listed}/>")
    return Markup(f"<{kind}{listed}>{join(children)}</{kind}>")


def join(children: Iterable[object], between: str = "") -> Markup:
    """Join pieces: markup stays as it is, text is escaped, None is left out."""
    return Markup(between.join(_text(child) for child in children if child is not None))


def _text(child: object) -> str:
    return str(child) if isinstance(child, Markup) else escape(str(child), quote=False)


def day(date: Any) -> str:
    """Format a date as 16 November 2026; text that is no ISO date stays as it is."""
    try:
        parsed = datetime.fromisoformat(str(date))
    except ValueError:
        return str(date)
    return f"{parsed.day} {parsed:%B %Y}"


def setting(value: Any) -> str:
    """Format a value of a config for readers."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return f"[{', '.join(map(setting, value))}]"
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else str(value)


def prose(text: str) -> Markup:
    """Return text as markup, with what stands in backticks as code."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # a backtick that is not closed
        return join([text])
    return join(tag("code", piece) if at % 2 else piece for at, piece in enumerate(pieces))


def several(number: int, noun: str) -> str:
    """Return a number with its noun: 1 run, 4 runs."""
    return f"{number:,} {noun if number == 1 else noun + 's'}"
