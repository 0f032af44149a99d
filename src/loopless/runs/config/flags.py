"""The command line of a trainer: `--learning-rate 1e-3 --hidden 64 64 --replay.no-prioritized`.

tyro prints the help, and a test holds this reader to tyro's reading. It is our own because tyro
stops at the first thing it does not understand, and we owe the user all of them at once, together
with those of the config file. Imports the standard library only; tyro when help is asked for.
Tests: `tests/runs/test_config.py`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from loopless.refusals import did_you_mean
from loopless.runs.config import schema

# A negative number is a value: -3, -.5, -1e-4, -inf.
_FLAG = re.compile(r"--?(?!\d|\.\d|inf$)[^\s=]")


def read(keys: Mapping[str, Any], arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The values that `arguments` give to `keys`, and all that is wrong with them, in words."""
    spelled = {_flag(key): key for key in keys}
    negated = {_negated(key): key for key, hint in keys.items() if hint is bool}
    values: dict[str, Any] = {}
    problems: list[str] = []
    for flag, words in _groups(arguments):
        name = flag.replace("_", "-")
        if not flag:
            problems += _stray(words, "a flag begins with --")
        elif name in negated:
            values[negated[name]] = False
            problems += _stray(words, f"{flag} takes no value")
        elif name not in spelled:
            near = did_you_mean(name, [*spelled, *negated]) or " See --help."
            problems.append(f"unknown flag {flag}.{near}")
        elif keys[key := spelled[name]] is bool:
            values[key] = True
            problems += _stray(words, f"{flag} takes no value; its opposite is {_negated(key)}")
        else:
            _take(values, problems, key, keys[key], flag, words)
    return values, problems


def show_help(cls: type, prog: str, extra: Mapping[str, tuple[Any, str]]) -> None:
    """Print all flags with their types, defaults and the config's own words; then exit with 0."""
    from dataclasses import field, make_dataclass
    from typing import Annotated

    import tyro

    others = [
        (name, Annotated[hint, tyro.conf.arg(help=text)], field(default=None))
        for name, (hint, text) in extra.items()
    ]
    own = Annotated[cls, tyro.conf.arg(name="")]
    whole = make_dataclass("Whole", [*others, ("own", own, field(default_factory=cls))])
    tyro.cli(whole, prog=prog, description=cls.__doc__, args=["--help"])


def _groups(arguments: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Each flag with the words that follow it. Words before the first flag belong to ""."""
    groups: list[tuple[str, list[str]]] = []
    for word in arguments:
        if _FLAG.match(word):
            flag, equals, value = word.partition("=")
            groups.append((flag, [value] if equals else []))
        elif groups:
            groups[-1][1].append(word)
        else:
            groups.append(("", [word]))
    return groups


def _take(values, problems, key: str, hint: Any, flag: str, words: list[str]) -> None:
    if not schema.is_many(hint) and len(words) > 1:
        problems += _stray(words[1:], f"{flag} takes one value")
        words = words[:1]
    try:
        values[key] = schema.from_words(hint, words)
    except ValueError:
        received = f"is {' '.join(words)!r}" if words else "has no value"
        problems.append(f"{flag} {received}; it takes {schema.describe(hint)}.")


def _stray(words: list[str], why: str) -> list[str]:
    return [f"{' '.join(words)!r} belongs to no flag: {why}."] if words else []


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def _negated(key: str) -> str:
    tables, dot, last = key.rpartition(".")
    return _flag(f"{tables}{dot}no-{last}")
