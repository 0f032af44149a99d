"""Known mistakes, each kept as a broken copy of a kernel whose docstring describes the mistake.

The tests of the kernels must catch every one of them. A user's function that fails like one of them
is told that sentence. To add a mistake write a function and list it in `ALL` of its file.
"""

from collections.abc import Callable
from dataclasses import dataclass

from loopless.verify.mutants import avatarl, laplacian, policy_gradient, q_learning, returns, tokens

__all__ = ["MUTANTS", "Mutant"]


@dataclass(frozen=True)
class Mutant:
    """A broken copy of one estimator."""

    estimator: str  # a label of `contracts.ESTIMATORS`, another kernel's name, or an update's
    function: Callable  # NumPy in, NumPy out, with the kernel's signature

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def sentence(self) -> str:
        """What the mistake is, in words for its author."""
        return " ".join((self.function.__doc__ or "").split())


MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant(estimator, function)
    for family in (returns, tokens, q_learning, policy_gradient, laplacian, avatarl)
    for estimator, function in family.ALL
)
