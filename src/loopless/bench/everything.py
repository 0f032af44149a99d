"""`loopless bench` of several suites, or of all of them: one after the other, and one table.

Each suite runs in a process of its own and can fail alone. Beside the file of all results lie, in
a folder of its name, those of each suite and what it said. Imports `children`, `board`,
`collection` and `summary`. Tests: `tests/bench/test_bench_everything.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from loopless.bench import board, collection, summary
from loopless.bench.children import Part, run_all
from loopless.bench.result import Result
from loopless.bench.suites import Options
from loopless.bench.table import console, show_machine

ABOUT_S = {"returns": 25.0, "q_learning": 25.0, "dqn_learning": 20.0, "dqn_speed": 80.0}  # if quick


def run(
    suites: Sequence[str],
    options: Options,
    path: Path,
    command: Callable[..., list[str]] = board.loopless,
) -> tuple[list[Result], int]:
    """Measure these suites; what was measured, and the exit code."""
    folder = path.with_suffix("")
    files = {name: folder / f"{name}.json" for name in suites}
    for file in files.values():
        file.unlink(missing_ok=True)  # what fails now must not show what was measured before
    parts = [
        Part(
            name,
            command("bench", name, "--json", str(file), *_flags(options)),
            ABOUT_S.get(name, 60.0),
        )
        for name, file in files.items()
    ]
    with board.board(parts) as show:
        whole = run_all(parts, folder, lambda part: conclusion(files[part.name]), show)
    found = [result for file in files.values() for result in _measured(file)]
    collection.save_all(found, path)
    out = console()
    summary.show(summary.lines(found), out)
    board.final(parts, out)
    if found:
        show_machine(found[-1], out)
    out.print(f"Written to {path}", highlight=False, markup=False, soft_wrap=True)
    return found, board.finished(parts, whole=whole)


def _flags(options: Options) -> list[str]:
    return [
        *("--threads", str(options.threads)),
        *(["--quick"] if options.quick else []),
        *(["--no-peers"] if not options.peers else []),
        *(["--ablate"] if options.ablate else []),
        *(["--grids", str(options.grids)] if options.grids else []),
    ]


def _measured(file: Path) -> Sequence[Result]:
    try:
        return collection.load_all(file)
    except ValueError:  # a suite that failed before it wrote anything
        return []


def conclusion(file: Path) -> str:
    """What a suite found, in one line."""
    results = collection.load_all(file)
    lines = summary.lines(results)
    ratios = [ratio for line in lines if (ratio := line.times(line.loop or line.peer))]
    targets = [one for result in results for row in result.measurements for one in row.targets]
    missed = sum(target.met is False for target in targets)
    rows = sum(len(result.measurements) for result in results)
    parts = [f"{rows} measurements"]
    if ratios:
        parts.append(f"{summary.times(min(ratios))} to {summary.times(max(ratios))}")
    if missed:
        parts.append(f"{missed} of {len(targets)} targets missed")
    return ", ".join(parts)
