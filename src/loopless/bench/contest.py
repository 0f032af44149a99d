"""One case from start to finish: check every contender, race those that run, judge, keep the rows.

Imports `contender`, `result`, `timing`. Tests: `tests/bench/test_bench_contest.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loopless.bench.contender import Case, Contender
from loopless.bench.result import Measurement, Result
from loopless.bench.timing import Budget, Race, Timing

Judge = Callable[[Sequence[Measurement]], Sequence[Measurement]]


def _nothing() -> None:
    pass


@dataclass
class Entry:
    """A contender at the start line: its row so far, and its call if there is one to time."""

    row: Measurement
    call: Callable[[], Any] | None = None


@dataclass(frozen=True)
class Contest:
    """Where the rows of a run go, how long each may take, and who is told of progress."""

    result: Result
    budget: Budget
    say: Callable[[str], None]

    def run(
        self,
        section: str,
        case: Case,
        contenders: Iterable[Contender],
        judge: Judge = list,
        between: Callable[[], None] = _nothing,
    ) -> None:
        self.say(f"{section}: {case.label}")
        self.settle([enter(each, section, case) for each in contenders], judge, between)

    def settle(
        self,
        entries: Iterable[Entry],
        judge: Judge = list,
        between: Callable[[], None] = _nothing,
    ) -> None:
        """Race what has been checked. Ctrl-C passes through, once its rows are kept."""
        rows, interrupted = race(entries, self.budget, between)
        self.result.measurements += judge(rows)
        if interrupted:
            raise KeyboardInterrupt

    def with_budget(self, **changes: Any) -> Contest:
        return replace(self, budget=replace(self.budget, **changes))


def enter(contender: Contender, section: str, case: Case) -> Entry:
    """Prepare a contender and check its answers. Whatever goes wrong ends up in its row."""
    row = Measurement(
        section=section,
        case=case.label,
        contender=contender.name,
        library=contender.library,
        role=contender.role,
        note=contender.note,
        claim=contender.claim,
    )
    largest = contender.largest
    if largest is not None and case.size > largest:
        return Entry(replace(row, status="skipped", reason=f"slow: not run over {largest:,}"))
    try:
        call = contender.prepare(case)
        output = call.run()
        verdict = None if call.read is None else case.check(contender, call, output)
    except ImportError as problem:
        return Entry(replace(row, status="unavailable", reason=first_line(problem)))
    except Exception as problem:
        reason = f"{type(problem).__name__}: {first_line(problem)}"
        return Entry(replace(row, status="failed", reason=reason))
    if verdict is None:
        return Entry(row, call.run)
    status = "disagrees" if verdict.reason else "ok"
    checked = replace(row, status=status, reason=verdict.reason, max_error=verdict.error)
    return Entry(checked, call.run)


def race(
    entries: Iterable[Entry], budget: Budget, between: Callable[[], None] = _nothing
) -> tuple[list[Measurement], bool]:
    """Time the entries against each other: their rows, and whether Ctrl-C ended it early."""
    entries = list(entries)
    calls = {e.row.contender: e.call for e in entries if e.call is not None}
    contest = Race(calls, budget, between=between)
    interrupted = False
    try:
        contest.run()
    except KeyboardInterrupt:
        interrupted = True
    timings = contest.timings()
    return [_timed(entry.row, timings.get(entry.row.contender)) for entry in entries], interrupted


def _timed(row: Measurement, timing: Timing | None) -> Measurement:
    if timing is None:
        return row
    return replace(
        row,
        value=timing.median,
        lower_quartile=timing.lower_quartile,
        upper_quartile=timing.upper_quartile,
        samples=timing.samples,
        calls_per_sample=timing.calls_per_sample,
    )


def first_line(problem: BaseException) -> str:
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]
