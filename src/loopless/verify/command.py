"""`loopless verify`: hand it your own function, and learn whether it is right, and where not.

Exit codes: 0 equal, 1 differs, 2 bad usage, 130 after Ctrl-C. Imports the rest of `verify`;
settings of JAX are made before anything is imported. Tests: `tests/verify/test_verify_command.py`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EQUAL, DIFFERS, USAGE = 0, 1, 2


@dataclass
class Asked:
    """What was said on the command line."""

    target: str
    claim: str | None = None
    library: str | None = None
    layout: str | None = None
    map: Sequence[str] = ()
    fix: Sequence[str] = ()
    cases: int = 1000
    seconds: float = 30.0
    truncation: bool = True
    strict: bool = False
    timing: bool = True
    json: Path | None = None


def verify(asked: Asked) -> int:
    """Judge one function, say what was found, and give back the exit code."""
    os.environ.setdefault("JAX_ENABLE_X64", "1")  # rounding hides mistakes
    from loopless.verify.plans import UsageError

    try:
        with _no_hang(2 * asked.seconds + 180):
            report = _judged(asked)
    except UsageError as problem:
        print(f"verify: {asked.target}: {problem}", file=sys.stderr, flush=True)
        return USAGE
    text = json.dumps(report.to_json(), indent=2, ensure_ascii=False)
    if asked.json is not None and str(asked.json) == "-":
        print(text)
    else:
        from loopless.verify.printing import show

        show(report)
        if asked.json is not None:
            asked.json.write_text(text + "\n", encoding="utf-8")
    return EQUAL if report.equal else DIFFERS


def _judged(asked: Asked) -> Any:
    from loopless.verify.judge import judge, known, unknown
    from loopless.verify.loading import load
    from loopless.verify.plans import Options, Request, UsageError

    if asked.claim is None:
        raise UsageError(f"say what it is with --as NAME. There are: {', '.join(known())}.")
    if asked.claim not in known():
        raise UsageError(unknown(asked.claim))
    _check(asked)
    request = Request(asked.library, asked.layout, _pairs("--map", asked.map), _numbers(asked.fix))
    options = Options(
        request=request,
        cases=asked.cases,
        seconds=asked.seconds,
        truncation=asked.truncation,
        strict=asked.strict,
        timing=asked.timing,
    )
    return judge(load(asked.target), asked.claim, options, asked.target)


def _check(asked: Asked) -> None:
    from loopless.verify.plans import UsageError

    wrong = []
    if asked.cases < 1:
        wrong.append(f"--cases is {asked.cases}; it must be at least 1")
    if not asked.seconds > 0:
        wrong.append(f"--seconds is {asked.seconds:g}; it must be positive")
    if asked.json is not None and str(asked.json) != "-":
        if asked.json.is_dir():
            wrong.append(f"--json {asked.json} is a folder; give the name of a file")
        elif not asked.json.parent.is_dir():
            wrong.append(f"--json {asked.json}: there is no folder {asked.json.parent}")
    if wrong:
        raise UsageError("; ".join(wrong) + ".")


def _pairs(flag: str, words: Sequence[str]) -> dict[str, str]:
    from loopless.verify.plans import UsageError

    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise UsageError(f"{flag} {word}: write {flag} NAME=VALUE.")
        found[name] = value
    return found


def _numbers(words: Sequence[str]) -> dict[str, Any]:
    from loopless.verify.plans import UsageError

    found: dict[str, Any] = {}
    for name, value in _pairs("--fix", words).items():
        try:
            found[name] = int(value) if value.lstrip("-").isdigit() else float(value)
        except ValueError:
            raise UsageError(f"--fix {name}={value}: {value!r} is not a number.") from None
    return found


@contextlib.contextmanager
def _no_hang(seconds: float) -> Iterator[None]:
    """End the process, with a traceback, if a call never comes back from compiled code."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
