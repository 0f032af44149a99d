"""How a promise is judged: a limit, what was measured, and whether it holds. Nothing here measures.

What each suite promises stands in its `promises`. Imports `result`. Tests:
`tests/bench/returns/test_bench_returns.py`, `tests/bench/replay/test_bench_replay_promises.py`.
"""

from __future__ import annotations

from loopless.bench.result import Target


def at_most(limit: float, measured: float | None, what: str) -> Target:
    return Target(f"≤ {what}", measured, None if measured is None else measured <= limit)


def at_least(limit: float, measured: float | None, what: str) -> Target:
    return Target(f"≥ {what}", measured, None if measured is None else measured >= limit)


def stated(measured: float | None, what: str) -> Target:
    """A number worth knowing of which nothing was promised."""
    return Target(f"stated: {what}", measured, None)


def ratio(value: float | None, other: float | None) -> float | None:
    return value / other if value and other else None
