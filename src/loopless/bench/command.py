"""`loopless bench`: run suites, print and write the results, and exit with 1 if ours is wrong.

One suite runs in this process; several run in a process each, so that one can fail alone. No array
library is imported before the process is bound to its cores.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from loopless.bench import compare, sources, table
from loopless.bench.machine import describe, isolate
from loopless.bench.result import Result, load_all, save, save_all
from loopless.bench.suites import RESULTS, Options, check, load, name_of, names
from loopless.bench.timing import remember_interrupts
from loopless.refusals import printable
from loopless.runs.progress import parts as progress
from loopless.runs.progress.parts import Part

OK, WRONG, USAGE, INTERRUPTED = 0, 1, 2, 130
FOLDER = Path("bench-results")
ABOUT_S = 60.0  # about what a quick suite takes, for the progress bar


def run(suites: Sequence[str], options: Options, *, stale: bool = False) -> int:
    """Run `loopless bench [SUITE…]`, and return its exit code."""
    if stale:
        return list_stale(suites)
    if options.compare and suites and all(suite.endswith(".json") for suite in suites):
        return compare_files(options.compare, [Path(suite) for suite in suites])
    if len(suites) == 1:
        return bench(replace(options, suite=suites[0]))
    return bench_several(suites, options)


def bench(
    options: Options,
    load_suite: Callable[[str], Any] = load,
    isolate: Callable[[int], None] = isolate,
) -> int:
    """Measure one suite. Returns 0; 1 if ours is wrong; 2 for a bad request; 130 after Ctrl-C."""
    path = options.json or FOLDER / f"{name_of(options.suite)}.json"
    try:
        old = check_request([options.suite], options, path)
    except ValueError as problem:
        say(str(problem))
        return USAGE
    settings = {name: getattr(options, name) for name in ("quick", "threads", "peers", "ablate")}
    result = Result(name_of(options.suite), settings)
    isolate(options.threads)
    with sources.record() as digests:
        try:
            remember_interrupts()
            suite = load_suite(options.suite)
            result.titles = dict(suite.TITLES)
            result.headlines = getattr(suite, "HEADLINES", ())
            suite.run(replace(options, json=path), result, say)
        except KeyboardInterrupt:
            result.interrupted = True
        finally:
            # Save after an error, too: what was measured until then is worth keeping.
            result.machine, result.sources = describe(), digests()
            save(result, path)
            table.show(result, table.console())
            _show_end(path, old, [result], options)
    if result.interrupted:
        return INTERRUPTED
    return WRONG if result.ours_is_wrong else OK


def bench_several(
    suites: Sequence[str],
    options: Options,
    command: Callable[..., list[str]] = progress.loopless_command,
) -> int:
    """Measure these suites, or all of them with `--quick`; exit codes are those of `bench`.

    All results go into one file. A folder of the same name beside it holds each suite's own results
    and log.
    """
    path = options.json or FOLDER / ("several.json" if suites else "all.json")
    options = replace(options, quick=options.quick or not suites)
    try:
        suites = suites or names(needed=True)
        old = check_request(suites, options, path)
    except ValueError as problem:
        say(str(problem))
        return USAGE
    folder = path.with_suffix("")
    files = {suite: folder / f"{name_of(suite)}.json" for suite in suites}
    for file in files.values():
        file.unlink(missing_ok=True)  # a suite that fails must not show an older run's results
    parts = [
        Part(suite, command("bench", suite, "--json", str(file), *_flags(options)), ABOUT_S)
        for suite, file in files.items()
    ]
    with progress.board(parts) as show:
        whole = progress.run_all(parts, folder, lambda part: conclusion(files[part.name]), show)
    results = [result for file in files.values() if file.is_file() for result in load_all(file)]
    save_all(results, path)
    out = table.console()
    table.show_lines(table.lines(results), out)
    progress.show_outcome(parts, out)
    if results:
        table.show_machine(results[-1], out)
    _show_end(path, old, results, options)
    return progress.exit_code(parts, whole=whole)


def list_stale(suites: Sequence[str]) -> int:
    """Print whether each committed result is up to date. Returns 1 if one is stale or missing."""
    try:
        suites = suites or names(needed=True)
        for suite in suites:
            check(suite)
    except ValueError as problem:
        say(str(problem))
        return USAGE
    files = {suite: RESULTS / f"{name_of(suite)}.json" for suite in suites}
    ages = {suite: sources.age(*load_all(file)) for suite, file in files.items() if file.is_file()}
    for suite, file in files.items():
        missing = f"{suite}: never measured: there is no {file}"
        print(sources.describe(ages[suite]) if suite in ages else missing)
    return (
        OK
        if len(ages) == len(files) and not any(age.changed != () for age in ages.values())
        else WRONG
    )


def compare_files(old: Path, new: Sequence[Path]) -> int:
    """Print what moved between results that were measured before."""
    try:
        before, after = load_all(old), [result for file in new for result in load_all(file)]
    except ValueError as problem:
        say(str(problem))
        return USAGE
    compare.show(compare.compare(before, after), table.console(), str(old))
    return OK


def check_request(suites: Sequence[str], options: Options, path: Path) -> list[Result]:
    """Raise ValueError for what cannot be done; return the older results to compare with."""
    for suite in suites:
        check(suite)
    cores = os.cpu_count() or 1
    if not 1 <= options.threads <= cores:
        raise ValueError(f"bench: --threads must be from 1 to {cores}; received {options.threads}.")
    if options.grids is not None and not options.grids.is_dir():
        raise ValueError(f"bench: --grids {options.grids} is not a folder.")
    if path.is_dir():
        raise ValueError(f"bench: --json {path} is a folder. Give the name of a file.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise ValueError(f"bench: cannot make the folder of --json {path}: {problem}") from None
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"bench: --json {path}: its folder cannot be written to.")
    return load_all(options.compare) if options.compare else []


def conclusion(file: Path) -> str:
    """Return in one line what a suite measured."""
    results = load_all(file)
    ratios = [
        ratio for line in table.lines(results) if (ratio := line.times(line.loop or line.peer))
    ]
    rows = [row for result in results for row in result.measurements]
    targets = [target for row in rows for target in row.targets]
    missed = sum(target.met is False for target in targets)
    parts = [f"{len(rows)} measurements"]
    if ratios:
        parts.append(f"{table.times(min(ratios))} to {table.times(max(ratios))}")
    if missed:
        parts.append(f"{missed} of {len(targets)} targets missed")
    return ", ".join(parts)


def _flags(options: Options) -> list[str]:
    switches = {"--quick": options.quick, "--no-peers": not options.peers}
    switches["--ablate"] = options.ablate
    flags = ["--threads", str(options.threads), *(name for name in switches if switches[name])]
    return [*flags, *(["--grids", str(options.grids)] if options.grids else [])]


def _show_end(path: Path, old: list[Result], new: list[Result], options: Options) -> None:
    out = table.console()
    out.print(printable(f"Wrote {path}"), highlight=False, markup=False, soft_wrap=True)
    if options.compare:
        compare.show(compare.compare(old, new), out, str(options.compare))


def say(text: str) -> None:
    """Print to standard error."""
    print(printable(text), file=sys.stderr, flush=True)
