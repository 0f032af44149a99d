"""The error that every environment raises, and how it finds the name that was meant.

Commands turn an EnvError into one line and exit code 2. Imports the standard library only.
Tests: `tests/envs/test_ids.py`, `tests/envs/test_hosted_refusals.py`.
"""

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Any


class EnvError(ValueError):
    """An environment that cannot be had, or that misbehaved: what, where, and what to do."""


class NonFiniteError(EnvError):
    """An environment gave NaN or infinity: sub-environment `env`, at its step `step` from 0."""

    def __init__(self, message: str, *, env: int, step: int) -> None:
        super().__init__(message)
        self.env = env
        self.step = step


def nearest(name: str, names: Iterable[str]) -> str:
    """ " Did you mean …?" with up to three of `names`, or nothing if none is near."""
    by_lower = {known.lower(): known for known in names}
    close = get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(by_lower[key] for key in close)}?" if close else ""


def no_count(name: str, value: Any, least: int = 1) -> list[str]:
    """That `value` is no integer from `least` up."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return []
    return [f"{name} is an integer from {least} up; received {value!r}"]


def no_choice(name: str, value: Any, options: Collection[str]) -> list[str]:
    """That `value` is none of `options`."""
    if value in options:
        return []
    return [f"{name}={value!r} is unknown; choose {', '.join(options)}"]


def refuse(where: str, *problems: list[str]) -> None:
    """Raise one EnvError with all problems, if there are any."""
    found = [problem for some in problems for problem in some]
    if found:
        raise EnvError(f"{where}: {'; '.join(found)}.")
