"""Find out how a function wants to be called, by trying each plan on a few cases.

The plan that gives the right answers is chosen. If none does, the function is wrong; then the
choice is the plan that is right most often, else the first under which the function makes a known
mistake, else the first that runs at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from time import monotonic

import numpy as np

from loopless.verify import Options, UsageError
from loopless.verify.calling import Caller, Refused, TimeUp, fits
from loopless.verify.cases.sources import Seeded
from loopless.verify.contracts.contract import Contract, Tolerances, same
from loopless.verify.plans import Plan, plans

# What named outputs are called in other code.
_OUTPUT_NAMES = {
    "advantages": ("adv", "advs", "advantage", "advantages", "gae"),
    "returns": ("ret", "rets", "returns", "return_", "targets", "value_targets", "vs"),
    "loss": ("loss", "total_loss", "q_loss"),
    "td_errors": ("td_errors", "td_error", "errors", "priorities"),
    "targets": ("targets", "target", "y"),
}


@dataclass
class Trial:
    """A plan that ran: how many probes were right, and whether a known mistake explains the wrong.

    Probes are the cases that plans are tried on.
    """

    plan: Plan
    right: int
    explained: bool


def find_plan(function: Callable, contract: Contract, options: Options) -> Plan:
    """Return the plan to judge a function by; raise UsageError if there is no way to call it."""
    end, best, first, errors = monotonic() + options.seconds / 3, None, None, []
    probes = [
        x.make(Seeded([7, i])) | dict(options.fixed) for i, x in enumerate(contract.properties[:2])
    ]
    for plan in plans(function, contract, options):
        if monotonic() > end or sum(isinstance(x, TimeUp) for _, x in errors) == 3:
            break
        if best is not None and not _is_sibling(best.plan, plan):
            continue
        if first and _is_settled(first, plan):
            continue
        for variant in contract.variants:
            if set(variant) & set(plan.mapping.values()):
                continue  # the function takes this setting as a parameter
            trial = _try(
                function, contract, replace(plan, variant=variant), probes, options.call_s, errors
            )
            if trial is None:
                break
            first = first or trial
            if trial.right == len(probes):
                return trial.plan
            if trial.right > (best.right if best else 0):
                best = trial
            elif trial.explained and not first.explained:
                first = trial
    chosen = best or first
    if chosen is None:
        raise UsageError(_uncallable(errors))
    return chosen.plan


def _is_sibling(best: Plan, plan: Plan) -> bool:
    """Return whether two plans share library, dtype and layout, and differ only in the rest."""
    return (best.library, best.dtype, best.layout) == (plan.library, plan.dtype, plan.layout)


def _is_settled(first: Trial, plan: Plan) -> bool:
    """Return whether the trial that ran makes this plan unnecessary."""
    if first.plan.library == plan.library and first.plan.dtype != plan.dtype:
        return True
    # It makes a known mistake with as many values as rewards, so it does not want one value more.
    return first.explained and "values_and_last" in plan.mapping.values()


def _try(function, contract, plan, probes, call_s, errors) -> Trial | None:
    caller = Caller(function, contract, plan, call_s)
    right, explained, reading = 0, False, None
    for probe in probes:
        case = probe | plan.settings(contract)
        right_answers = contract.answer(case)
        try:
            raws = caller.raw(case)
            if reading is None:
                reading = _reading(caller, raws, case, right_answers)
            answers = caller.read(raws, reading, right_answers)
        except (TimeUp, Exception) as problem:
            errors.append((plan, problem))
            if reading is None or not isinstance(problem, Refused):
                return None
            break
        if same(answers, right_answers, _tolerances(caller, case, right_answers)):
            right += 1
            continue
        tolerances = _tolerances(caller, case, right_answers, "float32")
        if same(answers, right_answers, tolerances):
            right, plan = right + 1, replace(plan, coarse=True)
        else:
            explained = any(
                fits(mistake, case, answers, tolerances)
                for _, mistake in contract.mistakes.values()
            )
            break
    return Trial(replace(plan, reading=reading or {}), right, explained)


def _tolerances(caller: Caller, case: Mapping, right_answers: Mapping, *coarse: str) -> Tolerances:
    dtypes = (caller.plan.dtype, *caller.watch.dtypes, *coarse)
    return caller.contract.tolerances(case, right_answers, dtypes)


def _reading(caller: Caller, raws: list, case: Mapping, right_answers: Mapping) -> dict[str, int]:
    """Return which of a function's outputs is which of ours, by names, shapes and values."""
    contract, outputs = caller.contract, raws[0]
    is_right = {}  # for each of our outputs and each place where its shape fits
    for name in contract.outputs:
        for place in range(len(outputs)):
            try:
                answers = caller.read(raws, {name: place}, right_answers)
            except Refused:
                continue
            tolerances = _tolerances(caller, case, right_answers, "float32")
            is_right[name, place] = same(answers, right_answers, tolerances)
    named = {
        name: place
        for name in contract.outputs
        for place, (label, _) in enumerate(outputs)
        if label is not None and label.lower() in _OUTPUT_NAMES.get(name, (name,))
        and (name, place) in is_right
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
    possible = [r for r in readings if r and all(item in is_right for item in r.items())]
    if not possible:  # some of its outputs are something else
        possible = [{name: place} for name, place in is_right]
    if not possible:
        shapes = ", ".join(str(x.shape) for _, x in outputs)
        first = next(iter(contract.outputs))
        raise Refused(f"returns {shapes}; {first} has shape {np.shape(right_answers[first])}")
    return max(possible, key=lambda r: sum(is_right[item] for item in r.items()))


def _uncallable(errors: list[tuple[Plan, BaseException]]) -> str:
    """Return why no way to call it worked: the first plan's reason, and how many there were."""
    if not errors:
        return "there is no way to call it."
    plan, problem = errors[0]
    if isinstance(problem, TimeUp):
        reason = "it did not come back in time"
    elif isinstance(problem, Refused):
        reason = f"it {problem}"
    else:
        line = (str(problem).strip().splitlines() or ["no message"])[0][:200]
        reason = f"it raised {type(problem).__name__}: {line}"
    arguments = ", ".join(f"{name}={form}" for name, form in plan.mapping.items())
    return (
        f"none of {len(errors)} ways to call it worked. "
        f"With {plan.layout.words} and {arguments} {reason}. "
        "Use --map, --layout or --library to say how it is called."
    )
