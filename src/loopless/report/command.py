"""`loopless report`: check the request, gather what it names, write the page."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from loopless.files import atomic
from loopless.refusals import did_you_mean, printable
from loopless.runs.failures import USAGE, WRITE_FAILED

OK, INCOMPLETE = 0, 1
RUNS, RESULTS = Path("runs"), Path("bench-results")  # where `train` and `bench` write


def report(
    runs: Sequence[Path], bench: Sequence[Path], out: Path, verify: Sequence[Path] = ()
) -> int:
    """Write the page to `out`; exit code 1 if something was left out, 2 if nothing was written."""
    if not runs and not bench and not verify:
        runs, bench = ([path] if path.is_dir() else [] for path in (RUNS, RESULTS))
    if problems := check(runs, bench, out, verify):
        print(printable("\n".join(problems)), file=sys.stderr)
        return USAGE
    try:
        from loopless.report.gathering import gather
        from loopless.report.page import page
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        print("report: charts need matplotlib: `pip install loopless[train]`.", file=sys.stderr)
        return USAGE
    contents = gather(runs, bench, verify)
    for problem in contents.problems:
        print(printable(f"Left out: {problem}"), file=sys.stderr)
    if not (contents.runs or contents.results or contents.verdicts):
        print("report: nothing could be read, so there is no page.", file=sys.stderr)
        return USAGE
    try:
        size = write(out, page(contents))
    except OSError as problem:
        print(printable(f"report: cannot write {out}: {problem.strerror}."), file=sys.stderr)
        return WRITE_FAILED
    wrote = f"Wrote {out} ({size / 1e6:.1f} MB): open it in a browser, or send it to someone."
    print(printable(wrote))
    return INCOMPLETE if contents.problems else OK


def check(
    runs: Sequence[Path], bench: Sequence[Path], out: Path, verify: Sequence[Path]
) -> list[str]:
    """Return everything that is wrong with the request, a message each."""
    problems = [f"report: there is no run {path}.{_others(path)}" for path in runs
                if not path.exists()]  # fmt: skip
    problems += [f"report: --bench {path} does not exist." for path in bench if not path.exists()]
    problems += [f"report: --verify {path} does not exist." for path in verify if not path.exists()]
    if not runs and not bench and not verify:
        problems.append(
            f"report: there is neither {RUNS}/ nor {RESULTS}/ here. Name the folders of runs, or "
            f"the files of `loopless bench` with --bench."
        )
    if out.is_dir():
        problems.append(f"report: --output {out} is a folder. Give the name of a file.")
    elif not out.parent.is_dir():
        problems.append(f"report: --output {out}: there is no folder {out.parent}. Create it.")
    return problems


def _others(path: Path) -> str:
    files = sorted(path.parent.glob("*/run.json"), key=lambda file: -file.stat().st_mtime)
    names = [file.parent.name for file in files]
    near = did_you_mean(path.name, names, lambda name: str(path.with_name(name)))
    return near or (f" The newest are: {', '.join(names[:5])}." if names else "")


def write(path: Path, text: str) -> int:
    """Write the page whole or not at all, and return its size in bytes."""
    data = text.encode("utf-8", "replace")
    atomic.write_file(path, data)
    return len(data)
