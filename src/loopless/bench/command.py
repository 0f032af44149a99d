"""`loopless bench`: run suites, show them, write them, and say by exit code whether we are right.

One suite runs in this process; several in one each (`everything`). Imports `suites` and `result`,
and no array library before the process has its cores. Tests: `tests/test_cli.py`,
`tests/bench/test_bench_everything.py`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from loopless.bench import interrupts
from loopless.bench.process import isolate
from loopless.bench.result import Result, save
from loopless.bench.suites import NO_SUITES, Options, Suite, check_name, load, names, title

OK, WRONG, USAGE, INTERRUPTED = 0, 1, 2, 130


def run(suites: Sequence[str], options: Options) -> int:
    """`loopless bench [SUITE…]`."""
    if len(suites) == 1:
        return bench(replace(options, suite=suites[0]))
    return bench_all(suites, options)


def bench_all(suites: Sequence[str], options: Options) -> int:
    """Several suites, or all of them and then quick; exit codes as of one."""
    path = options.json or Path("bench-results") / ("all.json" if not suites else "several.json")
    quick = options.quick or not suites
    try:
        suites = suites or names()
        if not suites:
            raise ValueError(NO_SUITES)
        for name in suites:
            check(replace(options, suite=name), path)
        old = _old(options)
    except ValueError as problem:
        say(str(problem))
        return USAGE
    from loopless.bench import everything

    new, code = everything.run(suites, replace(options, quick=quick), path)
    _compare(old, new, options)
    return code


def bench(
    options: Options,
    load_suite: Callable[[str], Suite] = load,
    isolate: Callable[[int], None] = isolate,
) -> int:
    """Exit codes: 0; 1 if our answers disagree with the reference; 2 usage; 130 after Ctrl-C."""
    path = options.json or Path("bench-results") / f"{title(options.suite)}.json"
    try:
        check(options, path)
        old = _old(options)
    except ValueError as problem:
        say(str(problem))
        return USAGE
    result = Result(
        suite=title(options.suite),
        settings={
            "quick": options.quick,
            "threads": options.threads,
            "peers": options.peers,
            "ablate": options.ablate,
        },
    )
    try:
        isolate(options.threads)
        interrupts.install()
        load_suite(options.suite)(replace(options, json=path), result, say)
    except KeyboardInterrupt:
        result.interrupted = True
    finally:
        # Also after an error: what was measured is not thrown away.
        report(result, path)
        _compare(old, [result], options)
    if result.interrupted:
        return INTERRUPTED
    return WRONG if result.ours_is_wrong else OK


def check(options: Options, path: Path) -> None:
    """All that can be wrong with the request, before anything is imported or measured."""
    check_name(options.suite)
    cores = os.cpu_count() or 1
    if not 1 <= options.threads <= cores:
        raise ValueError(f"bench: --threads is {options.threads}; this machine has 1 to {cores}.")
    if options.grids is not None and not options.grids.is_dir():
        raise ValueError(f"bench: --grids {options.grids} is no folder.")
    if path.is_dir():
        raise ValueError(f"bench: --json {path} is a folder. Give the name of a file.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise ValueError(f"bench: cannot make the folder of --json {path}: {problem}") from None
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"bench: --json {path}: its folder cannot be written to.")


def report(result: Result, path: Path) -> None:
    from loopless.bench.machine import describe
    from loopless.bench.table import console, show

    result.machine = describe()
    save(result, path)
    out = console()
    show(result, out)
    out.print(f"Written to {path}", highlight=False, markup=False, soft_wrap=True)


def _old(options: Options) -> list[Result]:
    """What to compare with, read before anything is measured."""
    from loopless.bench.collection import load_all

    return load_all(options.compare) if options.compare else []


def _compare(old: list[Result], new: list[Result], options: Options) -> None:
    if not options.compare:
        return
    from loopless.bench import compare
    from loopless.bench.table import console

    compare.show(compare.compare(old, new), console(), str(options.compare))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
