"""Comparisons that every call makes, written out as one expression.

A call of a compiled step takes less than a tenth of a millisecond, and looks at some two hundred
objects to see that nothing has been replaced. A loop over them would take a third of the call.
"""

import functools
from types import CodeType
from typing import Any


class Guard:
    """Terms that are all true as long as nothing has changed."""

    def __init__(self) -> None:
        self._names: dict[str, Any] = {}
        self._known: dict[int, str] = {}
        self._terms: dict[str, None] = {}
        self._run: Any = None

    def add(self, term: str, *values: Any) -> None:
        """Add an expression; each {} in it stands for one of the values."""
        self._terms[term.format(*map(self._name, values))] = None

    def holds(self) -> bool:
        """Return whether all terms are true; a term that finds nothing to compare is not."""
        if self._run is None:
            # The names are numbers, so that the guards of equal modules share their code.
            self._run = eval(_compile(" and ".join(self._terms) or "True"), self._names)
        try:
            return self._run()
        except (KeyError, ValueError, AttributeError, IndexError):  # an entry or cell is gone
            return False

    def _name(self, value: Any) -> str:
        name = self._known.setdefault(id(value), f"n{len(self._known)}")
        self._names[name] = value
        return name


@functools.lru_cache(maxsize=64)
def _compile(expression: str) -> CodeType:
    return compile(f"lambda: {expression}", "<guard>", "eval")
