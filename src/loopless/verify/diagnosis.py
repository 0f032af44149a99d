"""Which known mistake a function makes: the one whose answers are its answers.

A function is compared with every mutant of what it claims to be, on the same cases, and with the
truth about a case in which what it cannot know is left out (`forms.hidden`). Imports `comparing`
and `contracts`. Tests: `tests/verify/test_wrong_functions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loopless.verify import comparing
from loopless.verify.calling import muted
from loopless.verify.contracts.contract import Contract
from loopless.verify.forms import Hidden
from loopless.verify.mutants import MUTANTS

SENTENCES = {m.name: m.sentence for m in MUTANTS} | {
    "hears_of_no_end": "Is told of no episode end: one episode's rewards reach the one before it.",
    "hears_of_no_truncation": (
        "Is told of terminations only: at a truncation it goes on into the next episode."
    ),
}
GRADIENTS = "gradients"
ONE_FLAG, NEXT_ROW = "treats_truncation_as_termination", "bootstraps_from_the_next_row"
UNKNOWN = "Matches none of the known mistakes."


@dataclass(frozen=True)
class Seen:
    """A case, what the function answered, and which property it was of."""

    property: str
    case: dict
    got: Mapping[str, Any]
    allowed: comparing.Allowed
    wrong: bool


def diagnose(seen: Sequence[Seen], contract: Contract, hidden: Sequence[Hidden]) -> list[str]:
    """The fewest mistakes that between them explain every property that fails, in words.

    An explanation of a property is one of all its cases, of the right ones too.
    """
    failing = list(dict.fromkeys(one.property for one in seen if one.wrong))
    explanations = {name: [] for name in failing}
    for mistakes, cost, answer in _explanations(contract, hidden):
        told = [name for name in failing if _explains(answer, seen, name)]
        # Of two that explain as much, the one that also fits what is right, and the simpler one.
        fits = sum(_fits(answer, one) for one in seen) if told else 0
        for name in told:
            explanations[name].append(((len(told), fits, -cost), mistakes))
    found: list[str] = []
    for name in failing:
        if explanations[name]:
            found += max(explanations[name], key=lambda one: one[0])[1]
        elif name != GRADIENTS or len(failing) == 1:  # a wrong loss has wrong gradients
            found.append(UNKNOWN)
    if ONE_FLAG in found and NEXT_ROW in found:  # which it does not read where there is an end
        found = [mistake for mistake in found if mistake != NEXT_ROW]
    told = sorted(dict.fromkeys(found), key=lambda mistake: mistake == UNKNOWN)
    return [SENTENCES.get(mistake, mistake) for mistake in told]


def _explanations(
    contract: Contract, hidden: Sequence[Hidden]
) -> Iterator[tuple[tuple[str, ...], int, Callable]]:
    """(names of mistakes, how much is assumed, the answers that they would give)."""
    blind = [[one] for one in hidden] + ([list(hidden)] if len(hidden) > 1 else [])
    for together in blind:
        names = tuple(one.mistake for one in together)
        yield names, len(names), lambda case, t=together: contract.answer(_seen_by(t, case))
    for name, (_, answer) in contract.mistakes.items():
        yield (name.partition(",")[0],), 1, answer
    # A mistake in what is done with what is known: then that is the news, not what is not known.
    for together in blind:
        for name, (_, answer) in contract.mistakes.items():
            if name not in [one.mistake for one in hidden]:
                made = lambda case, t=together, f=answer: f(_seen_by(t, case))  # noqa: E731
                yield (name.partition(",")[0],), 1 + len(together), made


def _seen_by(together: Sequence[Hidden], case: Mapping) -> dict:
    case = dict(case)
    for one in together:
        case = one.seen(case)
    return case


def _explains(answer: Callable, seen: Sequence[Seen], name: str) -> bool:
    return all(_fits(answer, one) for one in seen if one.property == name)


def _fits(answer: Callable, one: Seen) -> bool:
    try:
        with muted():
            want = answer(one.case)
    except (ValueError, IndexError, KeyError, TypeError, ZeroDivisionError):
        return False
    compared = {name: x for name, x in one.got.items() if name in want}
    return bool(compared) and comparing.same(compared, want, one.allowed)
