"""Results as plain data that is written to JSON and read back equal.

A file holds the result of one suite or of several. `loopless report`, `--compare` and the README's
tables are made from these files and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from loopless.files import atomic

SCHEMA = 2
LARGEST = 1 << 28  # bytes of a file that is read; ours are smaller than a megabyte
RENAMED = {  # names in older results → names of the suites today
    "training": "dqn_speed", "learning": "dqn_learning", "ppo_training": "ppo_speed",
    "allo": "allo_speed",
}  # fmt: skip

Role = Literal["ours", "reference", "peer", "yardstick", "floor", "proposal"]
Status = Literal["ok", "disagrees", "unavailable", "failed", "skipped"]


@dataclass(frozen=True)
class Target:
    """A promise about one number, and whether it holds; `met` is None if it was not judged."""

    target: str
    measured: float | None
    met: bool | None


@dataclass(frozen=True)
class Measurement:
    """One contender in one case of a section. `value` is the median, in `unit`.

    `details` is anything else that a suite stores with the row, such as curves, as plain JSON.
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


@dataclass(frozen=True)
class Headline:
    """A case that the README and the report show first: ours beside named contenders.

    `beside` pairs each contender with the name to show for it. The headlines of `group` "five" are
    the hot spots that loopless began with, those of "own" whole programs before and after; those of
    "compiled" are beside the fastest peer of their case, whichever it is.
    """

    what: str
    section: str
    case: str
    ours: str
    beside: tuple[tuple[str, str], ...]
    group: Literal["five", "own", "further", "compiled"] = "further"


@dataclass
class Result:
    """One run of one suite; measurements are appended as they are made.

    `titles` has a heading for each section, and `sources` a digest of each file of loopless that
    the contenders imported. Older files have no titles, sources or headlines.
    """

    suite: str
    settings: dict[str, Any]
    machine: dict[str, Any] = field(default_factory=dict)
    measurements: list[Measurement] = field(default_factory=list)
    interrupted: bool = False
    schema: int = SCHEMA
    titles: dict[str, str] = field(default_factory=dict)
    headlines: tuple[Headline, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def ours_is_wrong(self) -> bool:
        """Return whether a row of ours disagrees with the reference, or failed."""
        return any(
            row.role == "ours" and row.status in ("disagrees", "failed")
            for row in self.measurements
        )


def save(result: Result, path: Path) -> None:
    """Write one result; the file is written whole or not at all."""
    _write(asdict(result), path)


def save_all(results: Sequence[Result], path: Path) -> None:
    """Write several results to one file, whole or not at all."""
    _write({"schema": SCHEMA, "suites": [asdict(result) for result in results]}, path)


def _write(data: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)
    atomic.write_file(path, f"{text}\n".encode())


def load(path: Path) -> Result:
    """Read the result of one suite."""
    (result,) = load_all(path)
    return result


def load_all(path: Path) -> list[Result]:
    """Read the results in a file; raise ValueError if it has none."""
    try:
        data = json.loads(atomic.read_small(path, LARGEST))
        return [_result(part) for part in data.get("suites", [data])]
    except OSError as problem:
        raise ValueError(f"bench: cannot read {path}: {problem.strerror}.") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        what = f"{type(problem).__name__}: {problem}"
        raise ValueError(f"bench: {path} holds no result of `loopless bench` ({what}).") from None


def _result(data: dict[str, Any]) -> Result:
    if data.get("schema") != SCHEMA:
        raise ValueError(f"schema {data.get('schema')!r}, expected {SCHEMA}")
    rows = [
        Measurement(**{**row, "targets": tuple(Target(**target) for target in row["targets"])})
        for row in data["measurements"]
    ]
    headlines = tuple(
        Headline(**{**headline, "beside": tuple((a, b) for a, b in headline["beside"])})
        for headline in data.get("headlines", ())
    )
    suite = RENAMED.get(data["suite"], data["suite"])
    return Result(**{**data, "suite": suite, "measurements": rows, "headlines": headlines})
