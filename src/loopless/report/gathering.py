"""Read what a page shows: runs, benchmark results and verdicts.

Whatever cannot be read is named in `problems` and left out; the rest is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from loopless.bench.result import Result, load_all
from loopless.bench.suites import names
from loopless.files import atomic
from loopless.report import verified
from loopless.runs.columns import Log
from loopless.runs.failures import Failure
from loopless.runs.folder import RunFolder, read_config
from loopless.runs.glossary import METRICS
from loopless.runs.pictures.plots import Run, read_log
from loopless.verify.verdicts import Report

CURVES = {row.picture for row in METRICS.values() if row.picture}  # drawn by the page itself
KINDS = {".png": "image/png", ".gif": "image/gif", ".jpg": "image/jpeg"}
LARGEST_PICTURE = 6_000_000  # bytes; a page should be small enough for mail
LARGEST_SAMPLE = 20_000  # characters


@dataclass(frozen=True)
class RunView(Run):
    """A run for drawing its curves, with its facts, settings, finished pictures and samples."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    pictures: Mapping[str, tuple[str, bytes]] = field(default_factory=dict)  # name: (type, bytes)
    samples: Mapping[str, str] = field(default_factory=dict)

    @property
    def trainer(self) -> str:
        return str(self.facts["trainer"])

    @property
    def step(self) -> int:
        """Return the last step in the log."""
        ends = [columns["step"][-1:] for columns in (self.train, self.evaluations)]
        return int(max(np.concatenate(ends), default=0))

    @property
    def seconds(self) -> float:
        """Return the time from the first row of the log to the last."""
        times = np.concatenate([self.train["time"], self.evaluations["time"]])
        times = np.concatenate([times, [row["time"] for row in self.events]])
        return float(times.max() - times.min()) if len(times) else 0.0


@dataclass(frozen=True)
class Contents:
    """Everything that a page shows."""

    runs: list[RunView]
    results: list[Result]
    problems: list[str]
    verdicts: list[Report] = field(default_factory=list)


def gather(
    runs: Iterable[Path], results: Iterable[Path], verdicts: Iterable[Path] = ()
) -> Contents:
    """Read everything; what cannot be read becomes a problem, not an exception."""
    problems: list[str] = []
    folders = dict.fromkeys(folder for path in runs for folder in run_folders(path))
    views = [view for folder in folders if (view := read_run(folder, problems))]
    measured = gather_results(results, problems, names())
    return Contents(views, measured, problems, verified.gather(verdicts, problems))


def run_folders(path: Path) -> list[Path]:
    """Return the run at a path, or the runs in a folder."""
    inside = [] if (path / "run.json").exists() else sorted(path.glob("*/run.json"))
    return [file.parent for file in inside] or [path]


def read_run(folder: Path, problems: list[str]) -> RunView | None:
    """Read a run; for a folder that is not a run, add a problem and return None."""
    try:
        facts = RunFolder.open(folder).facts
    except Failure as failure:
        problems.append(str(failure))
        return None
    log = _log(folder / "metrics.jsonl", problems)
    return RunView(
        folder,
        log.train,
        log.evaluations,
        log.events,
        facts=facts,
        settings=_settings(folder, problems),
        pictures=_pictures(folder / "plots", problems),
        samples=_samples(folder / "samples", problems),
    )


def _log(path: Path, problems: list[str]) -> Log:
    log = Log(path)
    try:
        log = read_log(path)
    except Failure as problem:
        problems.append(str(problem))
    if not path.exists():
        problems.append(f"report: there is no {path}.")
    if log.broken:
        more = f" So are {log.broken - 1:,} more." if log.broken > 1 else ""
        first = f"line {log.first_broken} is not a row of a log; it is left out."
        problems.append(f"{path}, {first}{more}")
    return log


def _settings(folder: Path, problems: list[str]) -> dict[str, Any]:
    try:
        return read_config(folder)
    except (OSError, ValueError) as problem:
        problems.append(f"report: cannot read {folder / 'config.toml'}: {problem}.")
        return {}


def _pictures(folder: Path, problems: list[str]) -> dict[str, tuple[str, bytes]]:
    """Read the pictures that the page does not draw itself: eigenvectors, visits, films."""
    pictures = {}
    for path in sorted(folder.glob("*")):
        if path.suffix not in KINDS or path.stem in CURVES or path.name.startswith("."):
            continue
        try:
            pictures[path.stem] = KINDS[path.suffix], atomic.read_small(path, LARGEST_PICTURE)
        except OSError as problem:
            problems.append(f"report: {path} is left out: {problem.strerror}.")
    return pictures


def _samples(folder: Path, problems: list[str]) -> dict[str, str]:
    """Read texts that a model wrote, one file each."""
    samples = {}
    for path in sorted(folder.glob("*.txt")):
        try:
            text = atomic.read_small(path, 1 << 20).decode("utf-8", "replace")
        except OSError as problem:
            problems.append(f"report: {path} is left out: {problem.strerror}.")
        else:
            samples[path.stem] = text[:LARGEST_SAMPLE]
    return samples


def gather_results(
    paths: Iterable[Path], problems: list[str], order: Sequence[str] = ()
) -> list[Result]:
    """Read files, and folders of files; return the newest result of each suite, sorted by `order`.

    What is wrong with files that cannot be read is added to `problems`.
    """
    newest: dict[str, Result] = {}
    folders = [sorted(path.glob("*.json")) if path.is_dir() else [path] for path in paths]
    for file in dict.fromkeys(file for files in folders for file in files):
        try:
            results = load_all(file)
        except ValueError as problem:
            problems.append(str(problem))
            continue
        for result in results:
            before = newest.get(result.suite)
            if before is None or _date(before) <= _date(result):
                newest[result.suite] = result
    places = {suite: place for place, suite in enumerate(order)}
    return sorted(newest.values(), key=lambda result: places.get(result.suite, len(places)))


def _date(result: Result) -> str:
    return str(result.machine.get("date", ""))
