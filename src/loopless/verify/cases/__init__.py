"""Test cases: named ones for the tests of the kernels, and kinds of random ones for `verify`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Situation:
    """A named case that some known mistake fails on."""

    name: str
    data: dict
