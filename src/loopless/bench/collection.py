"""Several results as one: a file with the results of many suites, or a folder of such files.

`loopless bench` without a suite writes one, `--compare` and `loopless report` read them. A file
that cannot be read is named and left out. Imports `result` and `suites`. Tests:
`tests/bench/test_bench_collection.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from loopless.bench.result import SCHEMA, Result, from_data, write
from loopless.bench.suites import names

LARGEST = 1 << 28  # bytes of a file; ours have less than a megabyte


def save_all(results: Sequence[Result], path: Path) -> None:
    """Write all of them to one file, or leave it as it was."""
    write({"schema": SCHEMA, "suites": [asdict(result) for result in results]}, path)


def load_all(path: Path) -> list[Result]:
    """The results in a file, of one suite or of several; ValueError says what is wrong with it."""
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"it has more than {LARGEST:,} bytes")
        data = json.loads(path.read_text(encoding="utf-8"))
        parts = data.get("suites", [data])
        return [from_data(part) for part in parts]
    except OSError as problem:
        raise ValueError(f"bench: cannot read {path}: {problem.strerror}.") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        what = f"{type(problem).__name__}: {problem}"
        raise ValueError(f"bench: {path} holds no result of `loopless bench` ({what}).") from None


def files(path: Path) -> list[Path]:
    """The files that a path names: itself, or those of a folder."""
    return sorted(path.glob("*.json")) if path.is_dir() else [path]


def gather(paths: Iterable[Path], problems: list[str]) -> list[Result]:
    """The newest of each suite, in the order of suites; of what cannot be read, `problems`."""
    newest: dict[str, Result] = {}
    for file in dict.fromkeys(file for path in paths for file in files(path)):
        try:
            found = load_all(file)
        except ValueError as problem:
            problems.append(str(problem))
            continue
        for result in found:
            before = newest.get(result.suite)
            if before is None or _date(before) <= _date(result):
                newest[result.suite] = result
    return sorted(newest.values(), key=lambda result: _order(result.suite))


def _order(suite: str) -> int:
    known = names()
    return known.index(suite) if suite in known else len(known)


def _date(result: Result) -> str:
    return str(result.machine.get("date", ""))
