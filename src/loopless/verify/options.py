"""The options of `verify`, and the error for requests that cannot be met."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class UsageError(ValueError):
    """A request that cannot be met; the message says what to write instead."""


@dataclass
class Options:
    """How to call the function, and how long to test it. None means: find out."""

    library: str | None = None
    layout: str | None = None
    maps: Mapping[str, str] = field(default_factory=dict)  # its parameters → our names
    fixed: Mapping[str, Any] = field(default_factory=dict)  # numbers built into the function
    cases: int = 1000
    seconds: float = 30.0
    call_s: float = 10.0
    truncation: bool = True  # whether rollouts may be cut off by a time limit
    strict: bool = False  # whether a fragile function counts as wrong
    timing: bool = True
    smallest: bool = True  # whether to look for the smallest case that fails
