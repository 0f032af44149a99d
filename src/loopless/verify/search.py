"""Find out how a function wants to be called: try each plan on cases that have one right answer.

A plan that gives the right answers is it. If none does, the function is wrong, and the plan is the
first that makes it wrong in a known way, or else the first that works at all. Imports `calling`,
`plans`. Tests: `tests/verify/test_plans.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from time import monotonic
from typing import Any

import numpy as np

from loopless.verify import comparing
from loopless.verify.calling import CALL_S, Caller, Refused, TimeUp, muted
from loopless.verify.contracts.contract import Contract
from loopless.verify.plans import Plan, Request, UsageError, plans
from loopless.verify.sources import Seeded

_NAMED = {
    "advantages": ("adv", "advs", "advantage", "advantages", "gae"),
    "returns": ("ret", "rets", "returns", "return_", "targets", "value_targets", "vs"),
    "loss": ("loss", "total_loss", "q_loss"),
    "td_errors": ("td_errors", "td_error", "errors", "priorities"),
    "targets": ("targets", "target", "y"),
}


@dataclass
class Tried:
    """A plan that ran, and how well it did on the probes."""

    plan: Plan
    right: int
    explained: bool


def find_plan(
    function: Callable,
    contract: Contract,
    request: Request,
    seconds: float = 10.0,
    call_s: float = CALL_S,
) -> Plan:
    """The plan to judge a function by. Raises UsageError if it can be called in no way."""
    end, best, first, errors = monotonic() + seconds, None, None, []
    probes = [one.make(Seeded([7, i])) for i, one in enumerate(contract.properties[:2])]
    probes = [_fixed(probe, request) for probe in probes]
    for plan in plans(function, contract, request):
        if monotonic() > end or sum(isinstance(x, TimeUp) for _, x in errors) == 3:
            break
        if best is not None and not _sibling(best.plan, plan):
            continue
        if first and _settled(first, plan):
            continue
        for variant in contract.variants:
            if set(variant) & set(plan.mapping.values()):
                continue  # not built in: it can be told
            tried = _try(function, contract, replace(plan, variant=variant), probes, call_s, errors)
            if tried is None:
                break
            first = first or tried
            if tried.right == len(probes):
                return tried.plan
            if tried.right > (best.right if best else 0):
                best = tried
            elif tried.explained and not first.explained:
                first = tried
    chosen = best or first
    if chosen is None:
        raise UsageError(_uncallable(errors))
    return chosen.plan


def _sibling(best: Plan, plan: Plan) -> bool:
    """Once one probe comes out right, only what parameters mean is still open."""
    return (best.library, best.dtype, best.layout) == (plan.library, plan.dtype, plan.layout)


def _settled(first: Tried, plan: Plan) -> bool:
    """What need not be asked again of a function that has run."""
    if first.plan.library == plan.library and first.plan.dtype != plan.dtype:
        return True
    # A known mistake with as many values as rewards: it is content with those.
    return first.explained and "values_and_last" in plan.mapping.values()


def _fixed(case: dict, request: Request) -> dict:
    return case | dict(request.fixed)


def _try(function, contract, plan, probes, call_s, errors) -> Tried | None:
    caller = Caller(function, contract, plan, call_s)
    right, explained, reading = 0, False, None
    for probe in probes:
        case = probe | plan.settings(contract)
        want = contract.answer(case)
        try:
            raws = caller.raw(case)
            if reading is None:
                reading = _reading(caller, raws, case, want)
            got = caller.read(raws, reading, want)
        except (TimeUp, Exception) as problem:
            errors.append((plan, problem))
            if reading is None or not isinstance(problem, Refused):
                return None
            break
        if comparing.same(got, want, _allowed(contract, case, want, caller)):
            right += 1
            continue
        allowed = _allowed(contract, case, want, caller, "float32")
        if comparing.same(got, want, allowed):
            right, plan = right + 1, replace(plan, coarse=True)
        else:
            explained = any(
                _is(answer, case, got, allowed) for _, answer in contract.mistakes.values()
            )
            break
    return Tried(replace(plan, reading=reading or {}), right, explained)


def _is(answer: Callable, case: Mapping, got: Mapping, allowed: Mapping) -> bool:
    try:
        with muted():
            want = answer(case)
    except (ValueError, KeyError, IndexError, ZeroDivisionError):
        return False
    return bool(want) and comparing.same(got, want, allowed)


def _allowed(contract, case, want, caller, *coarse: str) -> comparing.Allowed:
    dtypes = (caller.plan.dtype, *caller.watch.dtypes, *coarse)
    return comparing.tolerance(contract, case, want, dtypes)


def _reading(caller: Caller, raws: list, case: Mapping, want: Mapping) -> dict[str, int]:
    """Which of a function's outputs is which of ours."""
    contract, outputs = caller.contract, raws[0]
    fits = {}
    for name in contract.outputs:
        for place in range(len(outputs)):
            try:
                got = caller.read(raws, {name: place}, want)
            except Refused:
                continue
            allowed = _allowed(contract, case, want, caller, "float32")
            fits[name, place] = comparing.same(got, want, allowed)
    named = {
        name: place
        for name in contract.outputs
        for place, (label, _) in enumerate(outputs)
        if label is not None and label.lower() in _NAMED.get(name, (name,))
        and (name, place) in fits
    }  # fmt: skip
    if named:
        return named
    count = min(len(contract.outputs), len(outputs))
    readings = [
        dict(zip(names, places, strict=True))
        for names in permutations(contract.outputs, count)
        for places in permutations(range(len(outputs)), count)
        if list(names) == sorted(names, key=list(contract.outputs).index)
    ]
    possible = [r for r in readings if r and all(item in fits for item in r.items())]
    if not possible:  # fewer, then: some outputs are something else
        possible = [{name: place} for name, place in fits]
    if not possible:
        shapes = ", ".join(str(x.shape) for _, x in outputs)
        first = next(iter(contract.outputs))
        raise Refused(f"gives back {shapes}; {first} has shape {np.shape(want[first])}")
    return max(possible, key=lambda r: sum(fits[item] for item in r.items()))


def _uncallable(errors: list[tuple[Plan, BaseException]]) -> str:
    """Why no way to call it worked: the first one's reason, and how many there were."""
    if not errors:
        return "there is no way to call it."
    plan, problem = errors[0]
    if isinstance(problem, TimeUp):
        what = "it did not come back in time"
    elif isinstance(problem, Refused):
        what = f"it {problem}"
    else:
        what = f"it raised {type(problem).__name__}: {_first_line(problem)}"
    given = ", ".join(f"{name}={form}" for name, form in plan.mapping.items())
    return (
        f"none of {len(errors)} ways to call it worked. "
        f"With {plan.layout.words} and {given} {what}. "
        "Use --map, --layout or --library to say how it is called."
    )


def _first_line(problem: Any) -> str:
    return (str(problem).strip().splitlines() or ["no message"])[0][:200]
