"""Tell right implementations from wrong ones: `loopless verify`, and `assert_matches` for tests.

Read `judge.py` first. What functions can claim to be is listed in `contracts/`, the cases that they
are tried on in `cases/`, and known mistakes in `mutants/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["assert_matches"]


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


def assert_matches(
    function: Callable,
    claim: str,
    *,
    map: Mapping[str, str] | None = None,
    fix: Mapping[str, Any] | None = None,
    library: str | None = None,
    layout: str | None = None,
    cases: int = 300,
    seconds: float = 20.0,
    truncation: bool = True,
    strict: bool = False,
) -> None:
    """Raise AssertionError, with the whole report, unless `function` is what it claims to be.

        from loopless.verify import assert_matches

        def test_my_gae():
            assert_matches(my_gae, "gae")

    `claim` is a name that `loopless verify --as` takes. `map` says what your parameters mean, as
    {"your name": "our name"}; `fix` says which numbers are built in, as {"gamma": 0.99}.
    `truncation=False` is for functions that never see a time limit. `strict` also fails functions
    that are right on finite numbers only. A function that cannot be called raises ValueError.
    """
    from loopless.verify.judge import judge
    from loopless.verify.verdicts import as_text

    options = Options(
        library=library,
        layout=layout,
        maps=map or {},
        fixed=fix or {},
        cases=cases,
        seconds=seconds,
        truncation=truncation,
        strict=strict,
        timing=False,
    )
    report = judge(function, claim, options)
    if not report.equal:
        raise AssertionError(as_text(report))
