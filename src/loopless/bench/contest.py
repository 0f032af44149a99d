"""Run one case from start to finish: check every contender, time those that run, store the rows.

A suite makes cases and contenders, and hands them to a `Contest`. The timing is in `timing.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from subprocess import SubprocessError
from typing import Any, Protocol

from loopless.bench.result import Measurement, Result, Role
from loopless.bench.timing import Budget, Race, Timing

Judge = Callable[[Sequence[Measurement]], Sequence[Measurement]]
Untimed = Callable[[], None] | None
SCALES = {"s": 1.0, "MB": 1e-6, "kB": 1e-3, "%": 100.0}  # from seconds, bytes and shares


@dataclass(frozen=True)
class Call:
    """What is timed, and how to read its output as NumPy for the case's check.

    `read` is None for a call that has no output to check.
    """

    run: Callable[[], Any]
    read: Callable[[Any], Any] | None


@dataclass(frozen=True)
class Verdict:
    """The result of a check: `reason` is empty if the output is right; `error` is its error."""

    reason: str = ""
    error: float | None = None


class Case(Protocol):
    """One column of a table: the work, its name, and a check of outputs.

    It also needs a `size` if a contender has a `largest`.
    """

    @property
    def label(self) -> str: ...

    def check(self, contender: Contender, call: Any, output: Any) -> Verdict: ...


@dataclass(frozen=True)
class Contender:
    """One way to do the work of a case: ours, a peer's, a loop's.

    `prepare` is not timed: it imports what it needs and brings the case into the layout that it
    wants. A contender is skipped on cases whose size is over `largest`. `claim` is what the author
    of a proposal promised.
    """

    name: str
    library: str
    role: Role
    prepare: Callable[[Any], Call]
    tolerance: float = 0.0
    note: str = ""
    claim: str = ""
    largest: int | None = None


@dataclass
class Entry:
    """A contender's row so far, and its call if there is one to time."""

    row: Measurement
    call: Callable[[], Any] | None = None


@dataclass(frozen=True)
class Contest:
    """Where the rows of a run go, how long each may take, and how progress is reported.

    Without `peers`, contenders of that role are left out of every case.
    """

    result: Result
    budget: Budget
    say: Callable[[str], None]
    peers: bool = True

    def run(
        self,
        section: str,
        case: Case,
        contenders: Iterable[Contender],
        judge: Judge = list,
        between: Untimed = None,
    ) -> None:
        """Check and time the contenders on a case, and store the rows as `judge` returns them.

        `between` runs untimed before each sample.
        """
        self.say(f"{section}: {case.label}")
        racing = [each for each in contenders if self.peers or each.role != "peer"]
        self.settle([enter(each, section, case) for each in racing], judge, between)

    def settle(
        self, entries: Iterable[Entry], judge: Judge = list, between: Untimed = None
    ) -> None:
        """Time entries that have been checked. Ctrl-C is raised again once the rows are stored."""
        rows, interrupted = race(entries, self.budget, between)
        self.keep(judge(rows))
        if interrupted:
            raise KeyboardInterrupt

    def measure(self, row: Measurement, number: Callable[[], float]) -> Measurement:
        """Return the row with `number()`, in seconds, bytes or a share, scaled to the row's unit.

        A failure ends up in the row.
        """
        self.say(f"{row.section}: {row.contender}")
        try:
            return replace(row, value=SCALES.get(row.unit, 1.0) * number(), samples=1)
        except (RuntimeError, OSError, ValueError, KeyError, SubprocessError) as problem:
            status = "unavailable" if "No module named" in str(problem) else "failed"
            return replace(row, status=status, reason=str(problem))

    def keep(self, rows: Iterable[Measurement]) -> None:
        """Add rows to the result."""
        self.result.measurements += rows

    def with_budget(self, **changes: Any) -> Contest:
        """Return this contest with changes to its budget."""
        return replace(self, budget=replace(self.budget, **changes))


def enter(contender: Contender, section: str, case: Case) -> Entry:
    """Prepare a contender and check its output. Whatever goes wrong ends up in its row."""
    row = Measurement(
        section, case.label, contender.name, contender.library, contender.role,
        note=contender.note, claim=contender.claim,
    )  # fmt: skip
    largest = contender.largest
    if largest is not None and getattr(case, "size", 0) > largest:
        return Entry(replace(row, status="skipped", reason=f"slow: not run over {largest:,}"))
    try:
        call = contender.prepare(case)
        output = call.run()
        verdict = Verdict() if call.read is None else case.check(contender, call, output)
    except Exception as problem:
        kind = type(problem).__name__
        line = (str(problem).strip() or kind).splitlines()[0]
        if isinstance(problem, ImportError):
            return Entry(replace(row, status="unavailable", reason=line))
        return Entry(replace(row, status="failed", reason=f"{kind}: {line}"))
    return Entry(checked(row, verdict), call.run)


def checked(row: Measurement, verdict: Verdict) -> Measurement:
    """Return the row with the verdict of a check."""
    status = "disagrees" if verdict.reason else "ok"
    return replace(row, status=status, reason=verdict.reason, max_error=verdict.error)


def race(
    entries: Iterable[Entry], budget: Budget, between: Untimed = None
) -> tuple[list[Measurement], bool]:
    """Time the entries against each other; return rows, and whether Ctrl-C ended it early."""
    entries = list(entries)
    calls = {entry.row.contender: entry.call for entry in entries if entry.call is not None}
    contest = Race(calls, budget, between=between or (lambda: None))
    interrupted = False
    try:
        contest.run()
    except KeyboardInterrupt:
        interrupted = True
    timings = contest.timings()
    rows = [_with_timing(entry.row, timings.get(entry.row.contender)) for entry in entries]
    return rows, interrupted


def _with_timing(row: Measurement, timing: Timing | None) -> Measurement:
    if timing is None:
        return row
    measured = asdict(timing)
    return replace(row, value=measured.pop("median"), **measured)
