"""Find out which known mistake a function makes: the one that gives the same answers.

A function is compared with every mutant of what it claims to be, on the same cases. It is also
compared with the right answers to cases without what it cannot know (`forms.hidden`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from loopless.verify.calling import fits
from loopless.verify.contracts.contract import Contract, Tolerances
from loopless.verify.forms import Hidden
from loopless.verify.mutants import MUTANTS

SENTENCES = {m.name: m.sentence for m in MUTANTS} | {
    "ignores_ends": (
        "Takes no flag for the end of an episode: one episode's rewards reach the one before it."
    ),
    "ignores_truncations": (
        "Takes no flag for truncations: at a truncation it goes on into the next episode."
    ),
}
GRADIENTS = "gradients"
ONE_FLAG, NEXT_ROW = "treats_truncation_as_termination", "bootstraps_from_the_next_row"
UNKNOWN = "Matches none of the known mistakes."


@dataclass(frozen=True)
class Observation:
    """A case, the property that it tests, and what the function answered."""

    property: str
    case: dict
    answers: Mapping[str, Any]
    tolerances: Tolerances
    is_wrong: bool

    def fits(self, answer: Callable) -> bool:
        """Return whether a known mistake, `answer`, gives the same answers."""
        return fits(answer, self.case, self.answers, self.tolerances)


def diagnose(
    observations: Sequence[Observation], contract: Contract, hidden: Sequence[Hidden]
) -> list[str]:
    """Return the fewest mistakes that together explain every property that fails, as sentences.

    A mistake explains a property if it gives the same answers on all its cases, also where the
    function is right.
    """
    cases = {x.property: [] for x in observations if x.is_wrong}
    for number, x in enumerate(observations):
        cases.get(x.property, []).append(number)
    explanations = {name: [] for name in cases}
    for mistakes, cost, answer in _explanations(contract, hidden):
        fitting = cache(lambda number, answer=answer: observations[number].fits(answer))
        explained = [name for name, numbers in cases.items() if all(map(fitting, numbers))]
        if explained:
            # Of two that explain as much, prefer the one that fits more cases, then the simpler.
            score = len(explained), sum(map(fitting, range(len(observations)))), -cost
            for name in explained:
                explanations[name].append((score, mistakes))
    chosen: list[str] = []
    for name in cases:
        if explanations[name]:
            chosen += max(explanations[name], key=lambda scored: scored[0])[1]
        elif name != GRADIENTS or len(cases) == 1:  # a wrong loss has wrong gradients anyway
            chosen.append(UNKNOWN)
    if ONE_FLAG in chosen and NEXT_ROW in chosen:  # with one flag it bootstraps at no end
        chosen = [mistake for mistake in chosen if mistake != NEXT_ROW]
    ordered = sorted(dict.fromkeys(chosen), key=lambda mistake: mistake == UNKNOWN)
    return [SENTENCES.get(mistake, mistake) for mistake in ordered]


def _explanations(
    contract: Contract, hidden: Sequence[Hidden]
) -> Iterator[tuple[tuple[str, ...], int, Callable]]:
    """Yield names of mistakes, how much they assume, and the answers that they give."""
    blind = [[x] for x in hidden] + ([list(hidden)] if len(hidden) > 1 else [])
    for together in blind:
        names = tuple(x.mistake for x in together)
        yield names, len(names), lambda case, t=together: contract.answer(_seen_by(t, case))
    for name, (_, answer) in contract.mistakes.items():
        yield (name.partition(",")[0],), 1, answer
    # Both at once. Only the mistake is named: a note in the report says what it cannot know.
    for together in blind:
        for name, (_, answer) in contract.mistakes.items():
            if name not in [x.mistake for x in hidden]:
                both = lambda case, t=together, f=answer: f(_seen_by(t, case))  # noqa: E731
                yield (name.partition(",")[0],), 1 + len(together), both


def _seen_by(together: Sequence[Hidden], case: Mapping) -> dict:
    case = dict(case)
    for x in together:
        case = x.seen(case)
    return case
