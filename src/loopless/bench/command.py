"""`loopless bench`: run a suite, show it, write it, and say by exit code whether we are right."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from loopless.bench import interrupts
from loopless.bench.process import isolate
from loopless.bench.result import Result, save
from loopless.bench.suites import Options, Suite, check_name, load

OK, WRONG, USAGE, INTERRUPTED = 0, 1, 2, 130


def bench(
    options: Options,
    load_suite: Callable[[str], Suite] = load,
    isolate: Callable[[int], None] = isolate,
) -> int:
    """Exit codes: 0; 1 if our answers disagree with the reference; 2 usage; 130 after Ctrl-C."""
    path = options.json or Path("bench-results") / f"{options.suite}.json"
    try:
        check(options, path)
    except ValueError as problem:
        say(str(problem))
        return USAGE
    result = Result(
        suite=options.suite,
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
    if result.interrupted:
        return INTERRUPTED
    return WRONG if result.ours_is_wrong else OK


def check(options: Options, path: Path) -> None:
    """All that can be wrong with the request, before anything is imported or measured."""
    check_name(options.suite)
    cores = os.cpu_count() or 1
    if not 1 <= options.threads <= cores:
        raise ValueError(f"bench: --threads is {options.threads}; this machine has 1 to {cores}.")
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


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
