"""One error for all that is wrong with a call: problems are gathered in words, then refused.

Every buffer uses it, so that whoever passes three wrong arrays is told of three. Imports NumPy
only. Tests: `tests/replay/test_rollout_refusals.py`, through the buffers.
"""

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from operator import index
from typing import Any

import numpy as np


def refuse(where: str, problems: Sequence[str | Exception], note: str = "") -> None:
    """Raise one error with all `problems`, if there are any: TypeError if all are of types."""
    if problems:
        types = all(isinstance(problem, TypeError) for problem in problems)
        text = f"{where}: {'; '.join(map(str, problems))}. {note}".rstrip()
        raise (TypeError if types else ValueError)(text)


def misnamed(given: Mapping[str, Any], names: Collection[str]) -> list[str]:
    """What is missing among `given`, and what is unknown."""
    if given.keys() == set(names):
        return []
    missing = [f"{name} is missing" for name in names if name not in given]
    unknown = [name for name in given if name not in names]
    close = {name: get_close_matches(name, names, 1) for name in unknown}
    return missing + [
        f"{name} is unknown" + (f" (did you mean {close[name][0]}?)" if close[name] else "")
        for name in unknown
    ]


def no_count(name: str, count: Any, least: int) -> list[str]:
    """That `count` is no integer from `least` up."""
    try:
        if not isinstance(count, bool) and index(count) >= least:
            return []
    except TypeError:
        pass
    return [f"{name} is an integer from {least} up; received {count!r}"]


def no_choice(name: str, given: Any, options: Collection[str]) -> list[str]:
    """That `given` is none of `options`."""
    options = list(options)
    return (
        [] if given in options else [f"{name}={given!r} is unknown; choose {' or '.join(options)}"]
    )


def listing(found: np.ndarray) -> str:
    """The first few of many."""
    return ", ".join(map(str, found[:5].tolist())) + (", …" if len(found) > 5 else "")
