"""What a judgement comes to, as plain data: for the screen, for JSON, for a test's message.

Imports the standard library. Tests: `tests/verify/test_verify_command.py`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

AGREES, DIFFERS, FRAGILE = "agrees", "differs", "fragile"


@dataclass
class Finding:
    """One property: how the function did."""

    name: str
    status: str  # agrees, differs, or fragile: wrong where it should not have been asked
    cases: int
    wrong: int = 0
    words: str = ""  # what was seen, where the answers cannot be put beside each other


@dataclass
class Failing:
    """The smallest case that fails, as a table: a row for each step or sample."""

    name: str  # of the property
    numbers: dict[str, Any]
    columns: list[str]
    rows: list[list[str]]
    wrong: list[bool]  # which rows differ


@dataclass
class Timing:
    """Seconds for one call of each, on the same case."""

    case: str
    theirs: float
    ours: float


@dataclass
class Report:
    """All that was found out about one function."""

    function: str
    claim: str
    called: dict[str, str]  # its parameters → what they were given
    how: str  # library and layout
    findings: list[Finding] = field(default_factory=list)
    diagnosis: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failing: Failing | None = None
    timing: Timing | None = None

    @property
    def equal(self) -> bool:
        return bool(self.findings) and all(f.status != DIFFERS for f in self.findings)

    @property
    def cases(self) -> int:
        return sum(finding.cases for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        ratio = self.timing.theirs / self.timing.ours if self.timing else None
        return {"equal": self.equal, "cases": self.cases, "ratio": ratio, **asdict(self)}
