"""The list of all mutants, by the estimator that they break."""

from collections.abc import Callable
from dataclasses import dataclass

from loopless.verify.mutants import (
    advantages,
    avatarl,
    laplacian,
    others,
    policy_gradient,
    q_learning,
)


@dataclass(frozen=True)
class Mutant:
    """A broken copy of one estimator."""

    estimator: str  # a label of `verify.estimators`, another kernel's name, or a whole update's
    function: Callable  # NumPy in, NumPy out, with the kernel's signature

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def sentence(self) -> str:
        """What the mistake is, in words for its author."""
        return " ".join((self.function.__doc__ or "").split())


MUTANTS: tuple[Mutant, ...] = (
    *(Mutant("gae", function) for function in advantages.GAE),
    *(
        Mutant(estimator, function)
        for estimator, function in (
            *others.ALL,
            *q_learning.ALL,
            *policy_gradient.ALL,
            *laplacian.ALL,
            *avatarl.ALL,
        )
    ),
)
