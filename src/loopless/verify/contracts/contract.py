"""What a name after `--as` asks of a function: arguments, answers, properties, known mistakes.

The contracts themselves are in `rollout_contracts` and `loss_contracts`. Imports `forms` and
`properties`. Tests: `tests/verify/test_wrong_functions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from loopless.verify.forms import Form
from loopless.verify.mutants import MUTANTS
from loopless.verify.properties import Property

Answer = Callable[[Mapping], dict[str, Any]]


@dataclass(frozen=True)
class Contract:
    """One thing that a function can claim to be."""

    name: str
    forms: tuple[Form, ...]
    answer: Answer  # the loop twin on a case: each output by name
    ours: Answer  # our kernel on a case of any library's arrays
    outputs: Mapping[str, str]  # name → kind of its axes
    properties: tuple[Property, ...]
    mistakes: Mapping[str, tuple[str, Answer]]  # name → its sentence and its answer
    speed: Callable[[int], dict]  # a large case to time
    needs: tuple[tuple[str, ...], ...] = ()  # of each group one form must be asked for
    variants: tuple[dict, ...] = ({},)  # settings that a function may have built in
    settings: Callable[[Set[str]], dict] = lambda forms: {}  # what follows from what it is given
    magnitude: Answer | None = None  # how large each output's terms are in sum
    slack: float = 0.0  # a tolerance below which nobody is told apart
    rows: bool = False  # samples without time: [B], not [T, B]
    by: tuple[str, ...] = ()  # the arguments that the first output has a gradient by
    slopes: Answer | None = None  # the loop's gradients, as "by_" and the argument's name
    constants: Mapping[str, str] = field(default_factory=dict)  # argument → its gradient's mistake


def mistakes(label: str, answer: Callable[[Callable], Answer]) -> dict[str, tuple[str, Answer]]:
    """The mutants of one estimator, each as an answer to a case."""
    return {m.name: (m.sentence, answer(m.function)) for m in MUTANTS if m.estimator == label}
