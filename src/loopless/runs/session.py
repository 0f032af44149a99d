"""The loop around a trainer: rows of metrics, evaluations, checkpoints, pictures, signals.

A trainer knows how to advance by a chunk; everything else that a run does happens here, the same
for all trainers. `tests/runs/test_session.py` shows it with a trainer of a few lines.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np

from loopless.envs import EnvError
from loopless.files import plain
from loopless.process import resident_bytes
from loopless.runs.checkpoint import BackgroundSaver, Checkpoint, Checkpoints
from loopless.runs.config.changes import fixed_settings, refuse_changes
from loopless.runs.failures import EnvFailed, Interrupted, NonFinite, writing
from loopless.runs.folder import RunFolder
from loopless.runs.metrics import MetricsLog
from loopless.runs.pictures import snapshots
from loopless.runs.pictures.renderer import Renderer
from loopless.runs.progress.clock import Clock
from loopless.runs.progress.display import Progress
from loopless.runs.signals import Stopped, StopSignals

SHOWN = ("return_mean", "eval_return", "loss")  # unless the trainer names others
TRACED = 6  # which chunk of a session --profile traces


class Trainer(Protocol):
    """What a run and the commands need of a trainer. A step is whatever `total` counts.

    It may also have `snapshot() -> arrays` for pictures of its own, `remarks() -> lines` that are
    said once, `shown` (the metrics that the display shows), and `judged_by` (the metric whose
    largest value marks the best weights; the smallest, with `least_is_best`).
    """

    step: int
    total: int

    def advance(self, clock: Clock) -> Mapping[str, Any]:
        """Advance by one chunk, and return its metrics."""
        ...

    def evaluate(self) -> Mapping[str, Any]:
        """Evaluate the policy, and return metrics such as eval_return; with `eval_every` only."""
        ...

    def failure(self) -> str | None:
        """Return what was not finite, if learning stopped because of it."""
        ...

    def arrays(self) -> Mapping[str, Any]:
        """Return all arrays that `restore` needs; names of weights begin with "weights/"."""
        ...

    def restore(self, checkpoint: Checkpoint) -> str:
        """Continue from a checkpoint, and return in words what could not be restored."""
        ...

    def write_inputs(self, folder: Path) -> None:
        """Write into the folder of a new run what a resume needs beside checkpoints."""
        ...

    def outcome(self, last: Mapping[str, Any]) -> str | None:
        """Return the result in words, from the last metrics; None if they do not tell."""
        ...

    def close(self) -> None: ...


Callback = Callable[[Mapping[str, Any]], Any]


class Result(NamedTuple):
    """The last metrics, whether the callback ended the session, and if pictures show its end."""

    metrics: dict[str, Any]
    stopped: bool
    drew: bool


def train(
    trainer: Trainer,
    run: RunFolder,
    config: Any,
    checkpoint: Checkpoint | None = None,
    *,
    callback: Callback | None = None,
    quiet: bool = False,
) -> Result:
    """Train to the end, from `checkpoint` if there is one.

    callback: is called with each row of metrics; "stop" in return ends the session, and saves.

    Raises Interrupted after a signal, NonFinite if learning stopped, EnvFailed if an environment
    failed, WriteFailed if the disk did. In each case what was trained so far is saved, if that is
    possible. Raises BadRun if the checkpoint is of another config.
    """
    session = _Session(trainer, run, config, callback, quiet)
    with session:
        session.begin(checkpoint)
        if session.evaluation_due:
            session.evaluate()
            session.save()
        while trainer.step < trainer.total and not session.stopped:
            session.chunk()
        metrics = session.end()
    return Result(metrics, session.stopped, getattr(session.renderer, "drew", True))


class _Session:
    def __init__(
        self,
        trainer: Trainer,
        run: RunFolder,
        config: Any,
        callback: Callback | None,
        quiet: bool,
    ) -> None:
        self.trainer, self.run, self.config = trainer, run, config
        self.callback, self.quiet, self.stopped = callback, quiet, False
        self.best, self.last, self.chunks = -np.inf, dict[str, Any](), 0
        self.evaluation_due = self.said_cut = False
        self.eval_every = getattr(config, "eval_every", 0)  # not every trainer has evaluations
        self.settings = fixed_settings(config)
        self.open = ExitStack()

    def __enter__(self) -> None:
        with ExitStack() as opening:
            opening.callback(self.trainer.close)
            self.log = opening.enter_context(MetricsLog(self.run.metrics))
            self.checkpoints = Checkpoints(self.run.path)
            self.saver = opening.enter_context(BackgroundSaver(self.checkpoints, self.log))
            self.open = opening.pop_all()

    def __exit__(self, *error: Any) -> None:
        self.open.__exit__(*error)

    def begin(self, checkpoint: Checkpoint | None) -> None:
        trainer = self.trainer
        if checkpoint is None:
            self.log.trim_after(-1)  # what a process left that died before its first checkpoint
            self.checkpoints.trim_after(-1)
            snapshots.trim_after(self.run.path, -1)
            self.log.event(0, "start")
        else:
            refuse_changes(self.config, self.run.config_file)(checkpoint.name, checkpoint.numbers)
            lost = trainer.restore(checkpoint)
            best = checkpoint.numbers.get("best", -np.inf)
            self.best = float(best) if isinstance(best, int | float) else -np.inf
            self.evaluation_due = checkpoint.numbers.get("evaluation_due") is True
            self.log.trim_after(checkpoint.step)
            self.checkpoints.trim_after(checkpoint.step)
            snapshots.trim_after(self.run.path, checkpoint.step)
            self.log.event(checkpoint.step, "resume", lost)
        self.clock = Clock(trainer.step)
        shown = getattr(trainer, "shown", SHOWN)
        self.progress = self.open.enter_context(
            Progress(self.clock, trainer.total, name=self.run.name, show=shown, silent=self.quiet)
        )
        self.renderer = self.open.enter_context(
            Renderer(self.run.path, tensorboard=self.config.tensorboard, note=self.progress.note)
        )
        self.stop = self.open.enter_context(StopSignals(self.progress.note))
        if checkpoint is None:
            self.snapshot()

    def chunk(self) -> None:
        trainer, config, before = self.trainer, self.config, self.trainer.step
        self.chunks += 1
        metrics = self.advance()
        with self.clock("log"):
            self.clock.tick(trainer.step)
            self.write(metrics | self.clock.lap().metrics() | {"memory_bytes": resident_bytes()})
        for remark in getattr(trainer, "remarks", tuple)():
            self.progress.note(remark)
            self.log.event(trainer.step, "remark", remark)
        if reason := trainer.failure():
            self.crash(reason)
        if self.due(self.eval_every, before) or (self.eval_every and self.finished):
            self.evaluate()
        elif not self.eval_every and self.judged_by in metrics:
            self.judge(metrics[self.judged_by])
        with self.clock("log"):
            if self.due(config.checkpoint_every, before) or self.finished or self.stopped:
                self.save()
            if self.due(config.plot_every, before):
                self.snapshot()
                self.renderer.request()
        if self.stop.requested:
            self.interrupt()

    def advance(self) -> dict[str, Any]:
        with self.rescuing(), self.trace():
            return dict(self.trainer.advance(self.clock))

    @contextmanager
    def rescuing(self) -> Iterator[None]:
        """Save what was learned if an environment or anything else fails."""
        try:
            yield
        except Stopped:
            raise
        except EnvError as error:
            raise EnvFailed(f"{error} {self.rescue(error)}".rstrip()) from error
        except Exception as error:
            self.progress.note(self.rescue(error))
            raise

    def rescue(self, error: Exception) -> str:
        """Save what was learned before a failure, if possible, and return where, in words."""
        try:
            self.log.event(self.trainer.step, "error", str(error))
            self.save()
            self.saver.wait()
        except Exception:  # a compiled call that failed halfway has consumed its donated state
            return ""
        return self.saved()

    def saved(self) -> str:
        again = f"`loopless resume {self.run.path}` continues."
        return f"Saved at step {self.trainer.step:,}. {again}"

    def trace(self) -> Any:
        """Return a context that traces one chunk, with --profile: one after those that compile."""
        if not self.config.profile or self.chunks != TRACED:
            return nullcontext()
        import jax

        return jax.profiler.trace(str(self.run.path / "trace"))

    @property
    def finished(self) -> bool:
        return self.trainer.step >= self.trainer.total

    def due(self, every: int, before: int) -> bool:
        return every > 0 and self.trainer.step // every > before // every

    def write(self, row: Mapping[str, Any], kind: Any = "train") -> None:
        self.log.write(self.trainer.step, kind, **row)
        self.progress.update(row)
        self.last |= row
        if self.callback is not None:
            with self.rescuing():
                self.tell({"step": self.trainer.step, "kind": kind, **row})

    def tell(self, row: Mapping[str, Any]) -> None:
        """Show a row to the callback, and note whether it asks to stop."""
        answer = self.callback({name: _as_number(value) for name, value in row.items()})  # pyright: ignore[reportOptionalCall]
        if answer not in (None, "stop"):
            raise TypeError(
                f'callback: it must return "stop" to end the training, or None; received {answer!r}'
            )
        self.stopped |= answer == "stop"

    def evaluate(self) -> None:
        """Evaluate; a signal ends that at once, and the next session begins with it."""
        self.evaluation_due = True
        try:
            with self.clock("eval"), self.rescuing():
                metrics = self.trainer.evaluate()
        except Stopped:
            self.interrupt()
        self.evaluation_due = False
        self.write(metrics, "eval")
        self.judge(metrics[self.judged_by])
        if not self.said_cut and np.any(metrics.get("eval_cut", 0)):
            self.said_cut = True
            self.progress.note(
                f"Evaluation: {np.sum(metrics['eval_cut'])} of {metrics['eval_episodes']} episodes "
                f"had no end and were cut; --eval-max-steps sets where."
            )

    @property
    def judged_by(self) -> str:
        """Return the metric that decides which weights are the best."""
        usual = "eval_return" if self.eval_every else "return_mean"
        return getattr(self.trainer, "judged_by", usual)

    def judge(self, score: Any) -> None:
        """Keep the weights if they are the best so far."""
        mean = float(np.mean(score)) * (-1 if getattr(self.trainer, "least_is_best", False) else 1)
        if mean > self.best:
            self.best = mean
            with self.clock("log"):
                self.save(kind="weights", best=True)

    def save(self, **options: Any) -> None:
        numbers: dict[str, Any] = {"config": self.settings}
        if np.isfinite(self.best):
            numbers["best"] = self.best
        if self.evaluation_due:
            numbers["evaluation_due"] = True
        self.saver.save(self.trainer.step, self.trainer.arrays(), numbers, **options)

    def snapshot(self) -> None:
        """Save what the trainer's own pictures are drawn from."""
        take = getattr(self.trainer, "snapshot", None)
        if take is not None:
            snapshots.save(self.run.path, take())

    def interrupt(self) -> NoReturn:
        self.save()
        self.saver.wait()
        name = self.stop.signal.name if self.stop.signal else "signal"
        self.log.event(self.trainer.step, "interrupt", name)
        raise Interrupted(f"run: {name}. {self.saved()}")

    def crash(self, reason: str) -> None:
        """Save the state at which learning stopped, apart from the good checkpoints."""
        bundle = self.run.path / "crash"
        with writing(f"into {bundle}"):
            plain.make_folder(bundle)
        Checkpoints(bundle).save(self.trainer.step, self.trainer.arrays(), {"reason": reason})
        self.log.event(self.trainer.step, "nan", reason)
        self.saver.wait()
        good = self.checkpoints.names()[:1]
        kept = f" The last good checkpoint is {good[0]}." if good else ""
        raise NonFinite(
            f"run: {reason}. Everything as it stood is in {bundle}.{kept} With --on-nan skip, "
            f"`loopless resume {self.run.path}` leaves such updates out."
        )

    def end(self) -> dict[str, Any]:
        self.saver.wait()
        self.log.event(self.trainer.step, "stop" if self.stopped else "end")
        self.log.sync()
        self.snapshot()
        if self.config.profile:
            from rich.console import Console

            from loopless.runs.progress.programs import program_times

            Console(stderr=True).print(self.clock.table(), "", program_times().table(), sep="\n")
        return self.last


def _as_number(value: Any) -> Any:
    """Return a single number as Python's own; arrays, which several seeds give, stay arrays."""
    return value.item() if getattr(value, "shape", None) == () else value
