"""HTML from Python: what a run or a file says is text, and cannot become markup.

Imports the standard library. Tests: `tests/report/test_report_charts.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


EMPTY = frozenset({"img", "br", "meta", "line", "rect", "path", "polygon", "polyline", "circle"})


def tag(kind: str, /, *children: object, **attributes: object) -> Markup:
    """An element. `class_` is class, `data_label` is data-label; None and False leave one out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if kind in EMPTY and not children:
        return Markup(f"<{kind}{written}/>")
    return Markup(f"<{kind}{written}>{join(children)}</{kind}>")


def join(children: Iterable[object], between: str = "") -> Markup:
    """Pieces side by side: markup as it is, all else as text, None as nothing."""
    return Markup(between.join(_text(child) for child in children if child is not None))


def _text(child: object) -> str:
    return str(child) if isinstance(child, Markup) else escape(str(child), quote=False)
