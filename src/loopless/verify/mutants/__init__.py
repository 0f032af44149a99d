"""Known mistakes, each kept as a broken copy with the sentence that describes it.

The tests must tell every one of them from the reference, and a user's function that fails like one
of them can be told what it does wrong.
"""

from loopless.verify.mutants.registry import MUTANTS, Mutant

__all__ = ["MUTANTS", "Mutant"]
