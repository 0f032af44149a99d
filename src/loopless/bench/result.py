"""What a run measured, as plain data that goes to JSON and comes back equal."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from loopless.files import atomic

SCHEMA = 2

RENAMED = {  # suites whose older results bear another name
    "training": "dqn_speed",
    "learning": "dqn_learning",
    "ppo_training": "ppo_speed",
    "allo": "allo_speed",
}

Role = Literal["ours", "reference", "peer", "yardstick", "floor", "proposal"]
Status = Literal["ok", "disagrees", "unavailable", "failed", "skipped"]


@dataclass(frozen=True)
class Target:
    """What was promised of one number, and whether it holds; `met` is None if it was not judged."""

    target: str
    measured: float | None
    met: bool | None


@dataclass(frozen=True)
class Measurement:
    """One contender in one case of a section. `value` is the median, in `unit`.

    `details` is what a suite keeps of a row beyond that, such as its curves; plain JSON.
    """

    section: str
    case: str
    contender: str
    library: str
    role: Role
    status: Status = "ok"
    unit: str = "s"
    value: float | None = None
    lower_quartile: float | None = None
    upper_quartile: float | None = None
    samples: int = 0
    calls_per_sample: int = 0
    max_error: float | None = None
    reason: str = ""
    note: str = ""
    claim: str = ""
    targets: tuple[Target, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)


@dataclass
class Result:
    """One run of one suite; measurements are appended as they are made."""

    suite: str
    settings: dict[str, Any]
    machine: dict[str, Any] = field(default_factory=dict)
    measurements: list[Measurement] = field(default_factory=list)
    interrupted: bool = False
    schema: int = SCHEMA

    @property
    def ours_is_wrong(self) -> bool:
        """Whether a row of ours disagrees with the reference, or does not run at all."""
        return any(
            row.role == "ours" and row.status in ("disagrees", "failed")
            for row in self.measurements
        )


def save(result: Result, path: Path) -> None:
    """Write all of the file, or none of it."""
    write(asdict(result), path)


def write(data: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)
    atomic.write_file(path, f"{text}\n".encode())


def load(path: Path) -> Result:
    data = json.loads(path.read_text(encoding="utf-8"))
    try:
        return from_data(data)
    except ValueError as problem:
        raise ValueError(f"bench: {path} has {problem}.") from None


def from_data(data: dict[str, Any]) -> Result:
    """What `asdict` made of a result, as a result."""
    if data.get("schema") != SCHEMA:
        raise ValueError(f"schema {data.get('schema')!r}, expected {SCHEMA}")
    rows = [_measurement(row) for row in data["measurements"]]
    suite = RENAMED.get(data["suite"], data["suite"])
    return Result(**{**data, "suite": suite, "measurements": rows})


def _measurement(row: dict[str, Any]) -> Measurement:
    return Measurement(**{**row, "targets": tuple(Target(**one) for one in row["targets"])})
