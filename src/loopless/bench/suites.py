"""The suites that `loopless bench` knows, by name; a suite is imported when it is run.

A suite is a folder here. Its `suite.py` has `run`, which measures; its `layout.py` has `TITLES`,
the heads of its sections, and `rendered`, its part of the README. Imports `result` and no array
library. Tests: `tests/bench/test_bench_suites.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from loopless.bench.result import Result
from loopless.refusals import did_you_mean


@dataclass(frozen=True)
class Options:
    """What the user asked of one run of `loopless bench`."""

    suite: str = "returns"
    quick: bool = False
    json: Path | None = None
    threads: int = 1
    peers: bool = True
    ablate: bool = False
    compare: Path | None = None
    grids: Path | None = None


Say = Callable[[str], None]
Suite = Callable[[Options, Result, Say], None]

SUITES = (
    "returns", "replay", "q_learning", "training", "learning", "ppo_training", "ppo_learning",
    "avatarl", "avatarl_learning", "allo", "allo_learning",
)  # fmt: skip


class UnknownSuite(ValueError):
    """The name of a suite that does not exist."""

    def __init__(self, name: str) -> None:
        hint = did_you_mean(name, SUITES, repr, or_list=True)
        super().__init__(f"bench: unknown suite {name!r}.{hint}")


def check_name(name: str) -> None:
    if name not in SUITES:
        raise UnknownSuite(name)


def load(name: str) -> Suite:
    check_name(name)
    return import_module(f"loopless.bench.{name}.suite").run


def layout(name: str) -> ModuleType:
    check_name(name)
    return import_module(f"loopless.bench.{name}.layout")
