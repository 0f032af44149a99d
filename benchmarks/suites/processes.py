"""What all suites share: libraries that are imported late, child processes, preparations.

`jax`, `jnp` and `torch` are imported when something in them is first used: the page of results and
a child whose memory is measured need none of them, and where one is missing, only the contenders
that use it are unavailable.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from loopless.bench.contest import Contest
from loopless.bench.machine import ONE_THREAD_FLAG, THREAD_VARIABLES, prepare_libraries
from loopless.bench.result import Measurement, Role

TIMEOUT_S = 3600
SECOND_LEVEL = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")
TYPICAL_BYTES = 2 << 20


class _Later(ModuleType):
    """A module that is imported when one of its names is first looked up."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)  # the next look-up costs no more than in a real module
        return value


if TYPE_CHECKING:
    import jax
    import jax.numpy as jnp
    import torch
else:
    jax, jnp, torch = map(_Later, ("jax", "jax.numpy", "torch"))


def peer(module: str) -> Any:
    """Import a module of another library, without the warnings about its own dependencies."""
    with warnings_of_peers_ignored():
        return import_module(module)


def command_line(module: str, *words: str) -> list[str]:
    """Return the command line that runs a module and notes which sources it imports."""
    return [sys.executable, "-m", "suites", module, *words]


def run_child(
    module: str,
    *words: str,
    environment: dict[str, str] | None = None,
    cores: Iterable[int] | None = None,
    folder: Path | None = None,
    children: set[subprocess.Popen] | None = None,
) -> tuple[float, str]:
    """Run a module in a child; return its seconds, imports included, and what it printed.

    If the child fails, RuntimeError has the last line of its errors. With `cores` it runs on these
    alone, with `folder` in that folder. It is in `children` while it runs, so that others can end
    it.
    """
    start = perf_counter()
    child = subprocess.Popen(
        command_line(module, *words), env=environment, cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    children = set() if children is None else children
    children.add(child)
    if cores is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(child.pid, cores)  # long before its libraries count the cores
    try:
        printed, errors = child.communicate(timeout=TIMEOUT_S)
    except BaseException:
        child.terminate()
        child.wait()
        raise
    finally:
        children.discard(child)
    if child.returncode:
        last = (errors.strip().splitlines() or ["it printed nothing"])[-1]
        raise RuntimeError(f"exit code {child.returncode}: {last}")
    return perf_counter() - start, printed


def function_words(function: Callable[..., Any], *arguments: Any) -> tuple[str, str]:
    """Return the words by which a child calls a function, and prints what it returns as JSON."""
    return f"{function.__module__}:{function.__name__}", json.dumps(arguments)


def probe(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a child, and return what it returned; all of it can be JSON."""
    return json.loads(run_child(*function_words(function, *arguments))[1].splitlines()[-1])


def measure_numbers(
    contest: Contest,
    section: str,
    case: str,
    unit: str,
    table: Iterable[tuple[str, str, Callable[[], float]]],
    others: Role = "peer",
) -> list[Measurement]:
    """Return a row for each contender, library and function of a table; see `Contest.measure`."""
    return [
        contest.measure(
            Measurement(
                section, case, name, library, "ours" if library == "loopless" else others,
                unit=unit,
            ),
            number,
        )
        for name, library, number in table
    ]  # fmt: skip


def one_thread() -> dict[str, str]:
    """Return the environment variables of a child in which every library uses one thread."""
    flags = os.environ.get("XLA_FLAGS", "").replace(ONE_THREAD_FLAG, "")
    environment = os.environ | dict.fromkeys(THREAD_VARIABLES, "1")
    return environment | {"XLA_FLAGS": f"{flags} {ONE_THREAD_FLAG}".strip(), "JAX_PLATFORMS": "cpu"}


def unlimited() -> dict[str, str]:
    """Return the environment variables of a child without this process's limits on threads."""
    free = {name: value for name, value in os.environ.items() if name not in THREAD_VARIABLES}
    return free | {"XLA_FLAGS": free.get("XLA_FLAGS", "").replace(ONE_THREAD_FLAG, "").strip()}


def use_cores(count: int) -> None:
    """Bind this process to the `count` highest-numbered cores, whatever its parent is bound to."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, range(os.cpu_count() or 1)[-count:])


def prepare_like_training(threads: int) -> None:
    """Make the settings of a training command, which must precede JAX's start, then the bench's."""
    from loopless.train import commands
    from loopless.train.dqn.config import DQN

    commands.prepare(DQN())
    prepare_libraries(threads)


@contextmanager
def warnings_of_peers_ignored() -> Iterator[None]:
    """Ignore the warnings about their dependencies that peers give when they are imported."""
    with warnings.catch_warnings():
        for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, UserWarning):
            warnings.simplefilter("ignore", category)
        yield


def cache_cooler() -> Callable[[], None]:
    """Return a function that empties the second-level cache, but not the third-level one.

    A training step finds the caches like this: its rollout was written many forward passes ago.
    """
    block = np.zeros(2 * _second_level_bytes(), np.uint8)

    def cool() -> None:
        np.add(block, 1, out=block)

    return cool


def _second_level_bytes() -> int:
    try:
        text = SECOND_LEVEL.read_text().strip()
        return int(text.removesuffix("K")) << 10 if text.endswith("K") else int(text)
    except (OSError, ValueError):
        return TYPICAL_BYTES
