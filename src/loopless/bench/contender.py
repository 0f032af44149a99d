"""Who competes, on what: a contender, the case that it is given, and the call that is timed.

Suites make these; `contest` runs them. Imports `result` for the roles. Tests:
`tests/bench/test_bench_contest.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from loopless.bench.result import Role


@dataclass(frozen=True)
class Call:
    """What is timed, and how its output reads as NumPy for the case's check.

    `read` is None for a call that answers nothing.
    """

    run: Callable[[], Any]
    read: Callable[[Any], Any] | None


@dataclass(frozen=True)
class Verdict:
    """What a check found: `reason` is empty if all is right; `error` where one is known."""

    reason: str = ""
    error: float | None = None


class Case(Protocol):
    """One column of a table: the work, its size, and whether an output is right."""

    @property
    def label(self) -> str: ...

    @property
    def size(self) -> int: ...

    def check(self, contender: Contender, call: Any, output: Any) -> Verdict: ...


@dataclass(frozen=True)
class Contender:
    """`prepare` imports what it needs and lays a case out as it likes it, untimed."""

    name: str
    library: str
    role: Role
    prepare: Callable[[Any], Call]
    tolerance: float = 0.0
    note: str = ""
    claim: str = ""
    largest: int | None = None
