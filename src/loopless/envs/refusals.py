"""The errors of environments. Commands turn them into one line and exit code 2."""

from functools import partial

from loopless import refusals


class EnvError(ValueError):
    """An environment that cannot be made, or that misbehaved: what, where, and what to do."""


class NonFiniteError(EnvError):
    """An environment gave NaN or infinity: sub-environment `env`, at its step `step` from 0."""

    def __init__(self, message: str, *, env: int, step: int) -> None:
        super().__init__(message)
        self.env = env
        self.step = step


refuse = partial(refusals.refuse, error=EnvError)  # one EnvError that lists all problems
