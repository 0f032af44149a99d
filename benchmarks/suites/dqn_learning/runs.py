"""Training runs as child processes, so many at once, each on a core; none is made twice.

What a run came to is kept beside it, in `outcome.json`, under the commit that made it: a suite
that was interrupted goes on where it was. An unfinished run is made anew. Imports the standard
library. Tests: `tests/suites/dqn_learning/test_bench_runs.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter
from typing import Any, Protocol, TypeVar

from loopless.bench.machine import ONE_THREAD_FLAG, THREAD_VARIABLES
from suites.dqn_learning.tasks import EPISODES, ROOT

EVALUATION = "suites.dqn_learning.evaluation"
AnyJob = TypeVar("AnyJob", bound="Job")


class Job(Protocol):
    """What is asked of a training run."""

    @property
    def path(self) -> Path: ...

    @property
    def name(self) -> str: ...

    @property
    def words(self) -> list[str]: ...

    @property
    def command(self) -> str: ...


@dataclass(frozen=True)
class Outcome:
    """What came out of a job; of each agent, if it has several seeds."""

    command: str
    settings: str  # the preset's text
    wall_s: float  # of the command, imports and compilation included
    final: list[float]  # mean return over EPISODES episodes, of the last weights
    best: list[float]  # of those that an evaluation during training liked best
    curve_steps: list[int]
    curve_returns: list[list[float]]  # [agents][evaluations]
    commit: str = ""  # of the code that made it
    details: dict[str, Any] = field(default_factory=dict)  # what else the evaluation found


class RunFailed(RuntimeError):
    """A training process that did not end well."""


class Runs:
    """Runs in `folder`, on so many cores. `close` ends those that are under way.

    `evaluation` is the module that says what a run came to.
    """

    def __init__(
        self, folder: Path, threads: int, commit: str = "", evaluation: str = EVALUATION
    ) -> None:
        self.folder, self._threads, self._commit = folder, threads, commit
        self._evaluation = evaluation
        self._children: set[subprocess.Popen] = set()
        self._cores: SimpleQueue[int] = SimpleQueue()
        for core in _cores()[-threads:]:
            self._cores.put(core)
        self._closed = False

    def outcomes(self, jobs: Iterable[AnyJob]) -> Iterator[tuple[AnyJob, Outcome | RunFailed]]:
        """Each job with what came of it, as they end."""
        self.folder.mkdir(parents=True, exist_ok=True)
        pool = ThreadPoolExecutor(self._threads)
        try:
            futures = {pool.submit(self._outcome, job): job for job in dict.fromkeys(jobs)}
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            self.close()
            pool.shutdown(cancel_futures=True)

    def close(self) -> None:
        self._closed = True
        for child in list(self._children):
            child.terminate()  # which saves and stops

    def _outcome(self, job: Job) -> Outcome | RunFailed:
        core = self._cores.get()
        try:
            return self._found(job) or self._make(job, core)
        except RunFailed as failed:
            return failed
        finally:
            self._cores.put(core)

    def _found(self, job: Job) -> Outcome | None:
        """What an earlier suite made of it, with the same words and the same preset."""
        try:
            text = (self.folder / job.name / "outcome.json").read_text(encoding="utf-8")
            found = Outcome(**json.loads(text))
        except (OSError, ValueError, TypeError):
            return None
        same = found.command == job.command and found.settings == settings_of(job)
        return found if same else None

    def _make(self, job: Job, core: int) -> Outcome:
        settings, path = settings_of(job), self.folder / job.name
        shutil.rmtree(path, ignore_errors=True)
        runs = ["--runs", str(self.folder), "--run", job.name]
        start = perf_counter()
        self._child(["-m", "loopless.cli", *job.words, *runs], job, core)
        wall_s = perf_counter() - start
        text = self._child(["-m", self._evaluation, str(path), str(EPISODES)], job, core)
        outcome = Outcome(job.command, settings, wall_s, **json.loads(text), commit=self._commit)
        staged = path / "outcome.json.tmp"
        staged.write_text(json.dumps(asdict(outcome)), encoding="utf-8")
        staged.replace(path / "outcome.json")
        return outcome

    def _child(self, words: list[str], job: Job, core: int) -> str:
        """Run Python with these words on one core, and give back what it printed."""
        if self._closed:
            raise RunFailed(f"{job.name}: interrupted")
        child = subprocess.Popen(
            [sys.executable, *words], cwd=ROOT, env=one_thread(), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._children.add(child)
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(child.pid, {core})  # long before its libraries ask
        try:
            printed, said = child.communicate()
        finally:
            self._children.discard(child)
        if child.returncode:
            last = (said.strip().splitlines() or ["said nothing"])[-1]
            raise RunFailed(f"{job.name}: exit code {child.returncode}: {last}")
        return printed


def settings_of(job: Job) -> str:
    try:
        return (ROOT / job.path).read_text(encoding="utf-8")
    except OSError:
        where = f"there is no {job.path}. Run this suite in a checkout"
        raise RunFailed(f"{job.name}: {where}.") from None


def one_thread() -> dict[str, str]:
    """The environment, with one thread for every library."""
    flags = os.environ.get("XLA_FLAGS", "").replace(ONE_THREAD_FLAG, "")
    found = os.environ | dict.fromkeys(THREAD_VARIABLES, "1")
    return found | {"XLA_FLAGS": f"{flags} {ONE_THREAD_FLAG}".strip(), "JAX_PLATFORMS": "cpu"}


def _cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
