"""`loopless verify`: test a user's function, and say whether and where it is wrong.

Exit codes: 0 equal, 1 differs, 2 bad usage, 130 after Ctrl-C. The rest of `verify` is imported
inside functions, because JAX must be configured before anything imports it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from json import dumps
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from loopless.refusals import did_you_mean, printable
from loopless.verify import Options, UsageError

if TYPE_CHECKING:
    from loopless.verify.verdicts import Report

EQUAL, DIFFERS, USAGE = 0, 1, 2
IMPORT_S = 120.0


def verify(
    target: str,
    claim: str | None,
    *,
    map: Sequence[str] = (),
    fix: Sequence[str] = (),
    json: Path | None = None,
    **options: Any,
) -> int:
    """Judge one function, print or write the report, and return the exit code.

    `map` and `fix` are words NAME=VALUE as typed; `options` are further fields of `Options`.
    """
    os.environ.setdefault("JAX_ENABLE_X64", "1")  # float32 rounding would hide small mistakes
    try:
        settings = Options(maps=_pairs("--map", map), fixed=_numbers(fix), **options)
        _check(settings, json)
        with _traceback_after(2 * settings.seconds + 180):
            report = _judge(target, claim, settings)
    except UsageError as problem:
        print(printable(f"verify: {target}: {problem}"), file=sys.stderr, flush=True)
        return USAGE
    text = dumps(report.to_json(), indent=2, ensure_ascii=False)
    if json is not None and str(json) == "-":
        print(text)
    else:
        from loopless.verify.verdicts import show

        show(report)
        if json is not None:
            json.write_text(text + "\n", encoding="utf-8")
    return EQUAL if report.equal else DIFFERS


def _judge(target: str, claim: str | None, options: Options) -> Report:
    from loopless.verify.judge import judge, known_claims, unknown_claim

    if claim is None:
        raise UsageError(f"say what it is with --as NAME. There are: {', '.join(known_claims())}.")
    if claim not in known_claims():
        raise UsageError(unknown_claim(claim))
    return judge(load(target), claim, options, target)


def _check(options: Options, json: Path | None) -> None:
    """Raise UsageError with everything that is wrong with the request."""
    problems = []
    if options.cases < 1:
        problems.append(f"--cases must be at least 1; received {options.cases}")
    if not options.seconds > 0:
        problems.append(f"--seconds must be above 0; received {options.seconds:g}")
    if json is not None and str(json) != "-":
        if json.is_dir():
            problems.append(f"--json {json} is a folder; give the name of a file")
        elif not json.parent.is_dir():
            problems.append(f"--json {json}: there is no folder {json.parent}")
    if problems:
        raise UsageError("; ".join(problems) + ".")


def _pairs(flag: str, words: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise UsageError(f"{flag} {word}: write {flag} NAME=VALUE.")
        pairs[name] = value
    return pairs


def _numbers(words: Sequence[str]) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    for name, value in _pairs("--fix", words).items():
        try:
            numbers[name] = int(value) if value.lstrip("-").isdigit() else float(value)
        except ValueError:
            raise UsageError(f"--fix {name}={value}: {value!r} is not a number.") from None
    return numbers


@contextlib.contextmanager
def _traceback_after(seconds: float) -> Iterator[None]:
    """End the process, with a traceback, if a call never returns from compiled code."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


# --- the function that was named


def load(target: str) -> Callable:
    """Return the function MODULE:NAME or FILE.py:NAME; raise UsageError if there is none."""
    from loopless.verify.calling import TimeUp, limited

    home, colon, name = target.rpartition(":")
    if not (home and colon and name):
        raise UsageError(
            f"{target!r} names no function. Write MODULE:FUNCTION or FILE.py:FUNCTION."
        )
    try:
        with limited(IMPORT_S):
            module = _from_file(Path(home)) if home.endswith(".py") else _from_name(home)
    except UsageError:
        raise
    except TimeUp:
        raise UsageError(f"importing {home} took longer than {IMPORT_S:g} s.") from None
    except (Exception, SystemExit) as problem:  # whatever the user's module does
        raise UsageError(f"importing {home} raised {type(problem).__name__}: {problem}") from None
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            hint = did_you_mean(part, [x for x in dir(value) if x[:2] != "__"], repr)
            raise UsageError(f"{home} has no {part!r}.{hint}")
        value = getattr(value, part)
    if not callable(value):
        raise UsageError(f"{target} is a {type(value).__name__}, and cannot be called.")
    return value


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"there is no file {path}.")
    sys.path.insert(0, str(path.resolve().parent))  # so that it can import its neighbors
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} cannot be imported.")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module


def _from_name(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name and (name == problem.name or name.startswith(f"{problem.name}.")):
            raise UsageError(
                f"there is no module {problem.name!r} here. Run it from the folder that holds it, "
                "or name the file: FILE.py:FUNCTION."
            ) from None
        raise
