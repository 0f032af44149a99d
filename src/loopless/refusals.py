"""How every package says what is wrong with a call.

The `check_…` functions return a list of problems, each in words. A caller gathers the lists and
hands them to `refuse`, which raises one error, so that whoever passes three wrong arguments reads
about all three. `did_you_mean` suggests the name that was probably meant, and `printable` makes
text from files and arguments safe for a terminal.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from operator import index
from typing import Any


def refuse(
    where: str,
    *problems: Sequence[str | Exception],
    note: str = "",
    error: type[Exception] | None = None,
) -> None:
    """Raise one error that lists all `problems`, if there are any.

    The message begins with `where` and ends with `note`. The class of the error is `error`, by
    default TypeError if every problem is a TypeError, else ValueError.
    """
    listed = [problem for some in problems for problem in some]
    if not listed:
        return
    if error is None:
        types = all(isinstance(problem, TypeError) for problem in listed)
        error = TypeError if types else ValueError
    raise error(f"{where}: {'; '.join(map(str, listed))}. {note}".rstrip())


def check_count(name: str, value: Any, least: int = 1) -> list[str]:
    """Return a problem unless `value` is an integer of at least `least`."""
    try:
        if not isinstance(value, bool) and index(value) >= least:
            return []
    except TypeError:
        pass
    return [f"{name} must be an integer of at least {least}; received {value!r}"]


def check_choice(name: str, value: Any, options: Collection[str]) -> list[str]:
    """Return a problem unless `value` is one of `options`."""
    *others, last = options
    if value in (*others, last):
        return []
    choose = f"{', '.join(others)} or {last}" if others else last
    return [f"{name}={value!r} is unknown; choose {choose}"]


def check_names(values: Mapping[str, Any], names: Collection[str]) -> list[str]:
    """Return a problem for each of `names` that `values` lacks, and for each unknown key."""
    if values.keys() == set(names):
        return []
    problems = [f"{name} is missing" for name in names if name not in values]
    for name in values:
        if name not in names:
            near = _find_near(name, names, 1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            problems.append(f"{name} is unknown{hint}")
    return problems


def did_you_mean(
    name: str,
    names: Iterable[str],
    show: Callable[[str], str] = str,
    *,
    most: int = 1,
    or_list: bool = False,
) -> str:
    """Return " Did you mean X?" with the nearest of `names`, or "" where none is near.

    Case does not count. If no whole name is near, what follows the last dot of each is compared.
    Up to `most` names are suggested, each as `show` writes it. With `or_list`, all names are
    listed if none is near.
    """
    names = list(names)
    if near := _find_near(name, names, most):
        return f" Did you mean {' or '.join(map(show, near))}?"
    return f" There are: {', '.join(names)}." if or_list else ""


def _find_near(name: str, names: Collection[str], most: int) -> list[str]:
    for part in (str.lower, _last_part):
        by_part = {part(other): other for other in names}
        if near := get_close_matches(part(name), by_part, most):
            return [by_part[match] for match in near]
    return []


def _last_part(name: str) -> str:
    return name.lower().rpartition(".")[2]


def printable(text: object) -> str:
    """Return text that a terminal shows and does not obey: what cannot be printed is escaped.

    Names in a stranger's files may hold escape sequences, which would move the cursor, change the
    title of a window or hide what is written. Lines stay lines.
    """
    lines = str(text).split("\n")
    return "\n".join(line if line.isprintable() else _escape(line) for line in lines)


def _escape(line: str) -> str:
    return "".join(
        letter
        if letter.isprintable() or letter == "\t"
        else letter.encode("unicode_escape").decode()
        for letter in line
    )


def list_first(values: Any, most: int = 5) -> str:
    """Return the first `most` values of an array as text, and ", …" if there are more."""
    return ", ".join(map(str, values[:most].tolist())) + (", …" if len(values) > most else "")
