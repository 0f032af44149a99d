"""Measure where the time goes: named parts of a training loop, and steps per second.

At any moment one part runs; beginning another one ends it, so that the shares add up to the wall
time. A rate is taken over the last few seconds: an average since the start would mix compilation
with learning, and look like a slow-down where there is none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, NamedTuple

from loopless.runs.glossary import METRICS
from loopless.runs.progress.quantities import duration

if TYPE_CHECKING:
    from rich.table import Table

OTHER = "other"  # what runs when no part was named
SECOND = 1_000_000_000
LONGEST = 6  # windows for which marks are kept


class Split(NamedTuple):
    """What happened between two moments."""

    seconds: float
    steps: int
    shares: dict[str, float]  # of the seconds, for each part; they add up to 1

    @property
    def rate(self) -> float:
        """Return steps per second; NaN if no time passed."""
        return self.steps / self.seconds if self.seconds > 0 else float("nan")

    def metrics(self) -> dict[str, float]:
        """Return rate and shares by their names in the log; parts without one count as `other`."""
        logged = {f"time_{OTHER}": 0.0}
        for part, share in self.shares.items():
            name = f"time_{part}" if f"time_{part}" in METRICS else f"time_{OTHER}"
            logged[name] = logged.get(name, 0.0) + share
        return {"steps_per_second": self.rate, **logged}


class _Mark(NamedTuple):
    time: int
    step: int
    spent: dict[str, int]


class _Part:
    """The sums of one part, and the `with` block that runs it."""

    __slots__ = ("_clock", "calls", "name", "spent")

    def __init__(self, clock: Clock, name: str):
        self._clock, self.name = clock, name
        self.spent = self.calls = 0

    def __enter__(self) -> None:
        clock = self._clock
        clock._outer.append(clock._current)
        clock._resume(self)
        self.calls += 1

    def __exit__(self, *_) -> None:
        self._clock._resume(self._clock._outer.pop())


class Clock:
    """Splits one thread's time into parts.

        clock = Clock(step=0)        # a resumed run begins elsewhere
        with clock("env"):           # nests: the inner part's time is not the outer's
            ...
        clock.switch("learn")        # the same without a block, at a quarter of a microsecond
        clock.tick(step)             # once a chunk: how far the run is
        clock.window().rate          # steps a second over the last five seconds
        clock.lap().metrics()        # rate and shares since the last lap, for a row of the log
        clock.total().shares         # {"env": 0.41, "learn": 0.55, "other": 0.04}

    Work on a device counts for the part that waits for it. Each thread needs a clock of its own;
    `window` and `total` may be read from another thread.
    """

    def __init__(
        self,
        step: int = 0,
        *,
        window_s: float = 5.0,
        now: Callable[[], int] = perf_counter_ns,
    ):
        self._now, self._window_s = now, window_s
        self._parts = {OTHER: _Part(self, OTHER)}
        self._current = self._parts[OTHER]
        self._outer: list[_Part] = []
        self._since = now()
        self._first = self._last = self._lap = _Mark(self._since, step, {})
        self._marks = deque([self._first])

    def __call__(self, part: str) -> _Part:
        return self._parts.get(part) or self._add(part)

    def switch(self, part: str = OTHER) -> None:
        """End the part that runs, and begin this one."""
        into = self._parts.get(part) or self._add(part)
        now = self._now()
        self._current.spent += now - self._since
        self._since = now
        into.calls += 1
        self._current = into

    def move(self, source: str, target: str, seconds: float) -> None:
        """Move seconds that were counted for `source` to `target`, where they were spent."""
        spent = round(seconds * SECOND)
        self(source).spent -= spent
        self(target).spent += spent
        self(target).calls += 1

    def tick(self, step: int) -> None:
        """Record that the run is at `step` now."""
        self._resume(self._current)
        spent = {part.name: part.spent for part in self._parts.values()}
        self._last = _Mark(self._since, step, spent)
        # Twenty marks in a window are enough; the mark at the start of the longest window stays.
        if self._since - self._marks[-1].time >= self._window_s * SECOND / 20:
            self._marks.append(self._last)
            horizon = self._since - LONGEST * self._window_s * SECOND
            while len(self._marks) > 2 and self._marks[1].time <= horizon:
                self._marks.popleft()

    def window(self, seconds: float | None = None) -> Split:
        """Return what happened in the last few seconds up to the last tick."""
        marks, last = (
            list(self._marks),
            self._last,
        )  # in this order: `last` is the latest
        horizon = last.time - (self._window_s if seconds is None else seconds) * SECOND
        before = [mark for mark in marks if mark.time <= horizon and mark.time < last.time]
        return self._between(before[-1] if before else marks[0], last)

    def lap(self) -> Split:
        """Return what happened between the last call of `lap` and the last tick."""
        began, self._lap = self._lap, self._last
        return self._between(began, self._last)

    def total(self) -> Split:
        """Return what happened from the start to the last tick."""
        return self._between(self._first, self._last)

    @property
    def step(self) -> int:
        """Return the step of the last tick."""
        return self._last.step

    @property
    def seconds(self) -> float:
        """Return how long this clock has been running."""
        return (self._now() - self._first.time) / SECOND

    def table(self, box=None) -> Table:
        """Return a table of the calls, total and mean time of each part, the longest first."""
        from rich.table import Table

        self._resume(self._current)
        wall = max(sum(part.spent for part in self._parts.values()), 1)
        table = Table(box=box, pad_edge=False)
        table.add_column("part", no_wrap=True)
        for name in ("calls", "total", "mean", "share"):
            table.add_column(name, justify="right", no_wrap=True)
        for part in sorted(self._parts.values(), key=lambda part: -part.spent):
            mean = duration(part.spent / SECOND / part.calls) if part.calls else "–"
            table.add_row(
                part.name,
                f"{part.calls:,}" if part.calls else "–",
                duration(part.spent / SECOND),
                mean,
                f"{part.spent / wall:.1%}",
            )
        return table

    def _add(self, name: str) -> _Part:
        return self._parts.setdefault(name, _Part(self, name))

    def _resume(self, part: _Part) -> None:
        """Continue with `part`, whose call was counted before."""
        now = self._now()
        self._current.spent += now - self._since
        self._since = now
        self._current = part

    @staticmethod
    def _between(first: _Mark, last: _Mark) -> Split:
        wall = last.time - first.time
        spent = {name: last.spent[name] - first.spent.get(name, 0) for name in last.spent}
        shares = {name: part / wall if wall > 0 else 0.0 for name, part in spent.items()}
        return Split(wall / SECOND, last.step - first.step, shares)
