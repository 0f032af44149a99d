"""Make training runs as child processes, several at once, each on a core; none is made twice.

The outcome of a run is stored in its folder as `outcome.json`, under the commit that made it, so
that an interrupted suite continues where it was. An unfinished run starts again.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from loopless.bench import machine, sources
from loopless.bench.result import Measurement, Result, save
from loopless.bench.suites import Options, Say
from loopless.files import atomic
from suites.dqn_learning.tasks import EPISODES, ROOT, RUNS, Job
from suites.processes import function_words, one_thread, run_child

SEED = 20_000_003  # of the evaluation's episodes; far from the seed of any run


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job; lists have an entry for each agent."""

    command: str
    settings: str  # the preset's text
    wall_s: float  # of the command, imports and compilation included
    final: list[Any]  # mean return over EPISODES episodes, or what else the last weights reach
    best: list[float]  # the same, of the weights that evaluations during training found best
    curve_steps: list[int]
    curve_returns: list[list[float]]  # or losses, [agents][evaluations]
    commit: str = ""  # of the code that made it
    details: dict[str, Any] = field(default_factory=dict)  # what else the evaluation found


Evaluation = Callable[[str, int], dict[str, Any]]


class RunFailed(RuntimeError):
    """A training process failed, or was interrupted."""


class Runs:
    """Runs in `folder`, on `threads` cores. `close` ends those that are under way.

    evaluation(path, episodes) returns fields of a finished run's outcome; a child calls it.
    """

    def __init__(
        self, folder: Path, threads: int, commit: str = "", evaluation: Evaluation | None = None
    ) -> None:
        self.folder, self.commit = folder, commit
        self._threads, self._evaluation = threads, evaluation or evaluate
        self._children: set[subprocess.Popen] = set()
        self._cores: SimpleQueue[int] = SimpleQueue()
        for core in _cores()[-threads:]:
            self._cores.put(core)
        self._closed = False

    @classmethod
    def of(cls, result: Result, threads: int, *, quick: bool = False, **more: Any) -> Runs:
        """Return the runs of a suite at the present commit, which is entered in `result`."""
        result.machine = machine.describe()
        commit = (result.machine["commit"] or {}).get("id", "installed")[:9]
        folder = Path.cwd() / RUNS / result.suite / (f"{commit}-quick" if quick else commit)
        return cls(folder, threads, commit, **more)

    def outcomes(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome | RunFailed]]:
        """Yield each job with its outcome or failure, as jobs end."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._closed = False
        pool = ThreadPoolExecutor(self._threads)
        try:
            futures = {pool.submit(self._outcome, job): job for job in dict.fromkeys(jobs)}
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            self.close()
            pool.shutdown(cancel_futures=True)
            sources.pass_on(self._notes)

    def close(self) -> None:
        self._closed = True
        for child in list(self._children):
            child.terminate()  # a trainer then saves and stops

    def describe(self, job: Job, path: Path, core: int) -> dict[str, Any]:
        """Evaluate a finished run; return fields of its outcome."""
        words = function_words(self._evaluation, str(path), EPISODES)
        return json.loads(self.child(job, core, *words)[1])

    def child(self, job: Job, core: int, module: str, *words: str) -> tuple[float, str]:
        """Run a module on one core; return its seconds, and what it printed."""
        if self._closed:
            raise RunFailed(f"{job.name}: interrupted")
        environment = one_thread() | {sources.VARIABLE: str(self._notes)}
        try:
            return run_child(
                module, *words, environment=environment, cores={core}, folder=ROOT,
                children=self._children,
            )  # fmt: skip
        except RuntimeError as problem:
            raise RunFailed(f"{job.name}: {problem}") from None

    @property
    def _notes(self) -> Path:
        return self.folder / "sources"

    def _outcome(self, job: Job) -> Outcome | RunFailed:
        core = self._cores.get()
        try:
            return self._read(job) or self._make(job, core)
        except RunFailed as failed:
            return failed
        finally:
            self._cores.put(core)

    def _read(self, job: Job) -> Outcome | None:
        """Return the outcome of an earlier run with the same command and preset, or None."""
        try:
            text = (self.folder / job.name / "outcome.json").read_text(encoding="utf-8")
            outcome = Outcome(**json.loads(text))
        except (OSError, ValueError, TypeError):
            return None
        same = outcome.command == job.command and outcome.settings == settings_of(job)
        return outcome if same else None

    def _make(self, job: Job, core: int) -> Outcome:
        settings, path = settings_of(job), self.folder / job.name
        shutil.rmtree(path, ignore_errors=True)
        wall_s, _ = self.child(job, core, "loopless.cli", *job.words, *job.where(self.folder))
        described = self.describe(job, path, core)
        outcome = Outcome(job.command, settings, wall_s, commit=self.commit, **described)
        atomic.write_file(path / "outcome.json", json.dumps(asdict(outcome)).encode())
        return outcome


Outcomes = Mapping[Job, Outcome | RunFailed]


def make_runs(
    runs: Runs,
    groups: Sequence[Sequence[Job]],
    rows_of: Callable[[Outcomes], Iterable[Measurement | None]],
    describe: Callable[[Outcome], str],
    options: Options,
    result: Result,
    say: Say,
) -> None:
    """Make all runs; after each one, update and write the rows of all that have ended.

    The runs of a group need those of the groups before it: a failure there is the end.
    """
    count, outcomes = (
        len({job for jobs in groups for job in jobs}),
        dict[Job, Outcome | RunFailed](),
    )
    say(f"{result.suite}: {count} run(s), {options.threads} at once")
    for jobs in groups:
        if any(isinstance(outcome, RunFailed) for outcome in outcomes.values()):
            return
        for job, outcome in runs.outcomes(dict.fromkeys(jobs)):
            outcomes[job] = outcome
            text = str(outcome)
            if isinstance(outcome, Outcome):
                text = f"{job.name}: {describe(outcome)}, {outcome.wall_s:.0f} s. {job.command}"
            say(f"{len(outcomes)}/{count} {text}")
            result.measurements = [row for row in rows_of(outcomes) if row is not None]
            if options.json:
                save(result, options.json)


def row_of_jobs(
    row: Measurement,
    jobs: Sequence[Job],
    outcomes: Outcomes,
    describe: Callable[[list[Outcome]], tuple[dict[str, Any], Sequence[float]]],
) -> Measurement | None:
    """Return the row for the jobs that have ended; None if none has.

    `describe` returns the row's details, and the scores whose mean is its value. If a job failed,
    the row says so.
    """
    ended = [outcomes[job] for job in jobs if job in outcomes]
    if not ended:
        return None
    row = replace(row, note=jobs[0].command)
    made = [outcome for outcome in ended if isinstance(outcome, Outcome)]
    if len(made) < len(ended):
        failed = [str(outcome) for outcome in ended if isinstance(outcome, RunFailed)]
        return replace(row, status="failed", reason="; ".join(failed))
    details, scores = describe(made)
    return with_spread(replace(row, details=details), scores)


def details_of(made: Sequence[Outcome]) -> dict[str, Any]:
    """Return how several runs of one preset were made, and how they ended."""
    return {
        "commands": [outcome.command for outcome in made],
        "settings": made[0].settings,
        "commits": [outcome.commit for outcome in made],
        "wall_s": [round(outcome.wall_s, 1) for outcome in made],
        "final": [score for outcome in made for score in outcome.final],
    }


def with_spread(row: Measurement, values: Sequence[float]) -> Measurement:
    """Return the row with the mean of these values, and their quartiles."""
    low, high = values[0], values[0]
    if len(values) > 1:
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    mean = statistics.fmean(values)
    return replace(row, value=mean, lower_quartile=low, upper_quartile=high, samples=len(values))


def settings_of(job: Job) -> str:
    """Return the text of a job's preset."""
    try:
        return (ROOT / job.path).read_text(encoding="utf-8")
    except OSError:
        where = f"there is no {job.path}. Run this suite in a checkout"
        raise RunFailed(f"{job.name}: {where}.") from None


def _cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def evaluate(path: str, episodes: int) -> dict[str, Any]:
    """Return each agent's mean return with its last and its best weights, and its learning curve.

    Both weights play the same episodes, as `loopless play` would.
    """
    from loopless.runs.checkpoint import Checkpoints
    from loopless.runs.folder import RunFolder
    from loopless.train import registry
    from loopless.train.commands import agents_of

    run = RunFolder.open(Path(path))
    config = run.config(registry.config_class(run.trainer))
    trainer, checkpoints = registry.trainer(run.trainer), Checkpoints(run.path)

    def scores(name: str | None) -> list[float]:
        arrays = checkpoints.load(name, kind="weights").arrays
        return [
            float(trainer.player(config, agent).episodes(episodes, SEED)[0].mean())
            for agent in agents_of(arrays, config.seeds)
        ]

    best = scores("best" if checkpoints.best() is not None else None)
    return {"final": scores(None), "best": best, **curves(run.path)}


def curves(path: Path) -> dict[str, Any]:
    """Return the returns of the evaluations during training, [agents][evaluations]."""
    from loopless.runs.metrics import columns, read

    log = columns(read(path / "metrics.jsonl"), "eval")
    returns = log.get("eval_return", np.zeros(0))
    agents = returns.T if returns.ndim == 2 else returns[None]
    return {"curve_steps": log["step"].tolist(), "curve_returns": agents.tolist()}
