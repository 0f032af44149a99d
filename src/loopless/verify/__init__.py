"""Tell right implementations from wrong: `loopless verify`, and `assert_matches` for tests.

Cases and known mistakes stand here too, and can be had without the rest. Tests: `tests/verify/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["assert_matches"]


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

    `claim` is a name that `loopless verify --as` takes. `map` says what parameters are, as
    {"theirs": "ours"}; `fix` what is built in, as {"gamma": 0.99}. `truncation=False` is for
    functions that never see a time limit. `strict` also fails what is right on finite numbers
    alone. A function that cannot be called at all raises ValueError.
    """
    from loopless.verify.judge import judge
    from loopless.verify.plans import Options, Request
    from loopless.verify.printing import as_text

    request = Request(library, layout, map or {}, fix or {})
    options = Options(
        request=request,
        cases=cases,
        seconds=seconds,
        truncation=truncation,
        strict=strict,
        timing=False,
    )
    report = judge(function, claim, options)
    if not report.equal:
        raise AssertionError(as_text(report))
