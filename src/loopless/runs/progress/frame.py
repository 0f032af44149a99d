"""What the progress display says: a few lines that fit any width, or one plain line.

These are pure functions of a `View`. Cells are packed into lines like words into a paragraph, so
that no width is special; numbers keep their width, so that nothing jumps between frames.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rich.text import Text

from loopless.runs.progress.clock import OTHER
from loopless.runs.progress.quantities import clock_time, count, number, size

WIDEST = 100  # wider lines are harder to read, not more informative
SHORTEST_BAR = 10
GAP = "  "
LEAST_SHARE = 0.005
LABELS = {
    "return_mean": "return",
    "eval_return": "eval",
    "similarity_mean": "similarity",
    "eigenvalue_error": "eigenvalue error",
    "graph_loss": "graph",
    "validation_loss": "validation nats/token",
    "tokens_per_second": "tokens/s",
}


class View(NamedTuple):
    """All that one frame shows."""

    name: str
    step: int
    total: int
    rate: float  # steps a second
    elapsed_s: float
    left_s: float
    shares: Mapping[str, float]
    memory_bytes: int
    values: Mapping[str, float]

    @property
    def done(self) -> float:
        return min(max(self.step / self.total, 0.0), 1.0) if self.total > 0 else 1.0

    @property
    def percentage(self) -> str:
        # Rounded down: it says 100 % only at the end.
        return f"{math.floor(100 * self.done)}%"


def lines(view: View, width: int, *, ascii_only: bool = False) -> list[Text]:
    """Return the frame for a terminal of this width, one `Text` for each line."""
    width = min(width, WIDEST)
    name = Text(view.name, style="bold")
    name.truncate(max(8, width // 3), overflow="ellipsis")
    where = [
        Text(f"{view.percentage:>4}", style="bold"),
        Text(f"{count(view.step):>5} / {count(view.total)}"),
    ]
    head = [name] if view.name else []
    room = width - sum(cell.cell_len + len(GAP) for cell in (*head, *where))
    if room >= SHORTEST_BAR:
        first = _pack([*head, _bar(view.done, room, ascii_only), *where], width)
    else:
        first = [*_pack([*head, *where], width), _bar(view.done, width, ascii_only)]
    pace = [
        Text(f"{count(view.rate):>5} steps/s", style="cyan"),
        _pair("elapsed", f"{clock_time(view.elapsed_s):>5}"),
        _pair("ETA", f"{clock_time(view.left_s):>5}", "cyan"),
    ]
    numbers = [_pair(label, f"{value:>6}", "bold") for label, value in _metrics(view)]
    spent = [_pair(part, f"{share:>3.0%}") for part, share in _shares(view)]
    memory = _pair("memory", size(view.memory_bytes))
    return first + _pack([*pace, *numbers], width) + _pack([*spent, memory], width)


def plain(view: View) -> str:
    """Return the frame as one line of plain ASCII, for logs."""
    parts = [
        f"{view.name} {view.percentage}".strip(),
        f"step {view.step}/{view.total}",
        f"{count(view.rate)} steps/s",
        *(f"{label} {value}" for label, value in _metrics(view)),
        " ".join(f"{part} {share:.0%}" for part, share in _shares(view)),
        f"memory {size(view.memory_bytes)}",
        f"elapsed {clock_time(view.elapsed_s)}",
        f"ETA {clock_time(view.left_s)}",
    ]
    return ", ".join(filter(None, parts)).replace("–", "?")


def summary(view: View, outcome: str, steps: int) -> str:
    """Return the last line of a run that made `steps` steps since it was started or resumed."""
    of_total = f" of {view.total:,}" if view.step < view.total else ""
    rate = f" ({count(steps / view.elapsed_s)} steps/s)" if steps and view.elapsed_s > 0 else ""
    parts = [
        f"{view.name}: {outcome}" if view.name else outcome,
        f"{view.step:,}{of_total} steps",
        f"{clock_time(view.elapsed_s)}{rate}",
        *(f"{label} {value}" for label, value in _metrics(view)),
    ]
    return ", ".join(parts)


def _metrics(view: View) -> list[tuple[str, str]]:
    """Return the metrics that have a value, with their names on a terminal."""
    return [
        (LABELS.get(metric, metric), number(value))
        for metric, value in view.values.items()
        if not math.isnan(value)
    ]


def _shares(view: View) -> list[tuple[str, float]]:
    """Return the parts that take noticeable time, unnamed work last."""
    shares = sorted(view.shares.items(), key=lambda pair: pair[0] == OTHER)
    return [(part, share) for part, share in shares if share >= LEAST_SHARE]


def _bar(done: float, width: int, ascii_only: bool) -> Text:
    full, rest = "#-" if ascii_only else "━─"  # different without colour, too
    filled = math.floor(done * width)
    return Text.assemble((full * filled, "cyan"), (rest * (width - filled), "dim"))


def _pair(label: str, value: str, style: str = "") -> Text:
    return Text.assemble((label, "dim"), " ", (value, style))


def _pack(cells: Iterable[Text], width: int) -> list[Text]:
    """Put cells side by side while they fit, then on the next line."""
    packed: list[Text] = []
    for cell in cells:
        cell.truncate(width)
        if packed and packed[-1].cell_len + len(GAP) + cell.cell_len <= width:
            packed[-1].append(GAP).append_text(cell)
        else:
            packed.append(Text(no_wrap=True).append_text(cell))
    return packed
