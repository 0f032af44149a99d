"""Which known mistake a function makes: the one whose answers are its answers.

A function is compared with every mutant of what it claims to be, on the same cases, and with the
truth about a case in which what it cannot know is left out (`forms.hidden`). Imports `comparing`
and `contracts`. Tests: `tests/verify/test_wrong_functions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loopless.verify import comparing
from loopless.verify.calling import muted
from loopless.verify.contract import Contract
from loopless.verify.forms import Hidden
from loopless.verify.mutants import MUTANTS

SENTENCES = {m.name: m.sentence for m in MUTANTS} | {
    "hears_of_no_end": "Is told of no episode end: one episode's rewards reach the one before it.",
    "hears_of_no_truncation": (
        "Is told of terminations only: at a truncation it goes on into the next episode."
    ),
}
GRADIENTS = "gradients"
UNKNOWN = "Matches none of the known mistakes."


@dataclass(frozen=True)
class Seen:
    """A case, what the function answered, and which property it was of."""

    property: str
    case: dict
    got: Mapping[str, Any]
    allowed: float
    wrong: bool


def diagnose(seen: Sequence[Seen], contract: Contract, hidden: Sequence[Hidden]) -> list[str]:
    """The fewest mistakes that between them explain every property that fails, in words.

    An explanation of a property is one of all its cases, of the right ones too.
    """
    failing = list(dict.fromkeys(one.property for one in seen if one.wrong))
    explanations = {name: [] for name in failing}
    for mistakes, answer in _explanations(contract, hidden):
        told = {
            name: _explains(answer, [s for s in seen if s.property == name]) for name in failing
        }
        if not any(told.values()):
            continue
        # Of two that explain as much, the one that also fits the properties that pass.
        fits = sum(_fits(answer, one) for one in seen)
        for name in failing:
            if told[name]:
                explanations[name].append((sum(told.values()), fits, mistakes))
    found: list[str] = []
    for name in failing:
        best = max(explanations[name], key=lambda x: (x[0], x[1], -len(x[2])), default=None)
        if best is not None:
            found += [SENTENCES[mistake] for mistake in best[2]]
        elif name != GRADIENTS or len(failing) == 1:  # a wrong loss has wrong gradients
            found.append(UNKNOWN)
    return sorted(dict.fromkeys(found), key=lambda sentence: sentence == UNKNOWN)


def _explanations(contract: Contract, hidden: Sequence[Hidden]):
    """(names of mistakes, the answers they would give), the simplest first."""
    blind = [[one] for one in hidden] + ([list(hidden)] if len(hidden) > 1 else [])
    for together in blind:
        names = tuple(one.mistake for one in together)
        yield names, lambda case, together=together: contract.answer(_seen_by(together, case))
    for name, (_, answer) in contract.mistakes.items():
        yield (name,), answer
    # A mistake in what is done with what is known: then that is the news, not what is not known.
    for together in blind:
        for name, (_, answer) in contract.mistakes.items():
            if name not in [one.mistake for one in together]:
                yield (name,), lambda case, t=together, f=answer: f(_seen_by(t, case))


def _seen_by(together: Sequence[Hidden], case: Mapping) -> dict:
    case = dict(case)
    for one in together:
        case = one.seen(case)
    return case


def _explains(answer: Callable, seen: Sequence[Seen]) -> bool:
    return all(_fits(answer, one) for one in seen)


def _fits(answer: Callable, one: Seen) -> bool:
    try:
        with muted():
            want = answer(one.case)
    except (ValueError, IndexError, KeyError, TypeError, ZeroDivisionError):
        return False
    compared = {name: x for name, x in one.got.items() if name in want}
    return bool(compared) and comparing.same(compared, want, one.allowed)
