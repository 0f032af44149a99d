"""Checkpoints of a run: saved whole or not at all, and loaded after every byte was checked.

    checkpoints = Checkpoints(run.path)
    checkpoints.save(step, arrays, numbers, best=improved)
    checkpoint = checkpoints.load(template=arrays)   # the newest whole one; `skipped` names others

A checkpoint is a folder: `manifest.json`, `weights.safetensors` (the arrays whose names begin with
"weights/") and `state.safetensors` (the rest: optimizer, replay, counters). An older checkpoint
gives up its state by deleting that one file, which needs no room on a full disk and cannot half
fail. `BackgroundSaver` does the work beside training; `export_weights` writes a policy for others.
"""

import errno
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from loopless.files import atomic, manifest, plain, tensors
from loopless.files.manifest import STATE, WEIGHTS, Kind, Manifest
from loopless.files.tensors import Broken
from loopless.refusals import printable
from loopless.runs.config.changes import refuse_changes
from loopless.runs.failures import BadConfig, BadRun, writing
from loopless.runs.folder import RunFolder
from loopless.runs.metrics import MetricsLog

PREFIX = "weights/"
LONGEST_NAME = 100  # bytes of the files `best` and `latest`
_NAME = re.compile(r"step_(\d{12,18})")


@dataclass(frozen=True)
class Checkpoint:
    """What was loaded, and which others were skipped, with the reason for each."""

    name: str
    step: int
    kind: Kind
    arrays: dict[str, np.ndarray]
    numbers: dict[str, Any]
    skipped: list[str] = field(default_factory=list)


class Checkpoints:
    """The checkpoints of the run in folder `run`: the newest `keep` in full, the others as weights.

    Weights of the best are kept, and of the newest `keep_weights` others (of all, if None).
    """

    def __init__(self, run: Path, keep: int = 2, keep_weights: int | None = None):
        self.run, self.folder = Path(run), Path(run) / "checkpoints"
        self._keep, self._keep_weights = keep, keep_weights

    def save(
        self,
        step: int,
        arrays: Mapping[str, Any],
        numbers: Mapping[str, Any],
        *,
        kind: Kind = "full",
        best: bool = False,
    ) -> str:
        """Save under the name of `step`, and return it; raise WriteFailed if the disk refuses.

        Equal arrays and numbers give equal files. What was saved before stays loadable until the
        new checkpoint is safe. `best` marks this one as the best so far.
        """
        ready = tensors.storable(arrays)
        weights = {name: ready[name] for name in sorted(ready) if name.startswith(PREFIX)}
        files = {WEIGHTS: weights}
        if kind == "full":
            files[STATE] = {name: ready[name] for name in sorted(ready) if name not in weights}
        name = f"step_{step:012d}"
        last = self.names()[:1]
        try:
            with writing(f"checkpoint {name}", f"The last good one is {last[0]}" if last else ""):
                plain.make_folder(self.folder)
                # Weights alone never replace a full checkpoint of the same step.
                if kind == "full" or not (self.folder / name / STATE).exists():
                    about = Manifest(step, kind, dict(numbers), name if best else self.best(), {})
                    self._write(self.folder / name, about, files)
                atomic.write_file(self.run / "latest", f"{name}\n".encode())
                if best:
                    atomic.write_file(self.run / "best", f"{name}\n".encode())
                self._rotate(step)
        except BaseException:
            with suppress(OSError):
                atomic.recover(self.folder)
            raise
        return name

    def load(
        self,
        name: str | None = None,
        *,
        kind: Kind = "full",
        template: Mapping[str, Any] | None = None,
        check: Callable[[str, Mapping[str, Any]], None] | None = None,
    ) -> Checkpoint:
        """Load the newest whole checkpoint, or the one of this `name`, which may be "best".

        With kind "weights" only the weights are read, from any checkpoint, and "best" is the newest
        one if none was marked. `check(name, numbers)` may refuse a checkpoint before its arrays are
        read. `template` has arrays of the expected shapes and types; a checkpoint with others is
        refused, with all differences.
        """
        skipped: list[str] = []
        if name == "best" and kind == "weights":
            best, problem = self._find_best()
            if best is None:
                name = None
                skipped.append(f"best: {problem}. The newest checkpoint takes its place.")
        for candidate in self._candidates(name):
            try:
                return self._read(candidate, kind, template, check, skipped)
            except Broken as why:
                skipped.append(f"{candidate}: {why}.")
            except OSError as error:
                words = filter(None, (error.filename and Path(error.filename).name, error.strerror))
                skipped.append(f"{candidate}: {': '.join(words)}.")
        reasons = "".join(f"\n  {line}" for line in skipped)
        raise BadRun(f"run: {self.run} has no checkpoint to load{':' if reasons else '.'}{reasons}")

    def names(self) -> list[str]:
        """Return the names of all checkpoints, whole or not, newest first."""
        try:
            names = [entry for entry in os.listdir(self.folder) if _NAME.fullmatch(entry)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise BadRun(f"run: cannot read {self.folder}: {error.strerror}.") from None
        return sorted(names, key=_step, reverse=True)

    def have_state(self) -> bool:
        """Return whether any checkpoint was saved in full: there is something to resume from.

        A process that died before its first full checkpoint may have left its best weights. One
        that is broken counts: what it was is not known.
        """
        return any(self._was_full(name) for name in self.names())

    def _was_full(self, name: str) -> bool:
        try:
            return self._manifest(name).kind == "full"
        except (Broken, OSError):
            return True

    def best(self) -> str | None:
        """Return the name of the best checkpoint, if one was marked and still exists."""
        return self._read_best()[0]

    def _read_best(self) -> tuple[str | None, str]:
        """Return the name of the best checkpoint, or None and the reason why there is none."""
        try:
            data = atomic.read_small(self.run / "best", LONGEST_NAME, follow=False)
        except FileNotFoundError:
            return None, "no checkpoint was marked as the best one"
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise  # what cannot be read just now must not be rotated away
            return None, f"the file {self.run / 'best'} is broken: {error.strerror}"
        name = data.decode("utf-8", "replace").strip()
        if name in self.names():
            return name, ""
        return None, f"the file {self.run / 'best'} names {name!r}, which is no checkpoint"

    def _find_best(self) -> tuple[str | None, str]:
        try:
            return self._read_best()
        except OSError as error:
            raise BadRun(f"run: cannot read {self.run / 'best'}: {error.strerror}.") from None

    def trim_after(self, step: int) -> list[str]:
        """Delete the checkpoints after `step`, where a run was resumed, and return their names.

        Without this, a later resume would continue from a past that the run has left. `latest` and
        `best` are put right, too: a process may have died before it could set them.
        """
        late = [name for name in self.names() if _step(name) > step]
        with writing(f"into {self.folder}"):
            self._restore_latest(f"step_{step:012d}")
            self._restore_best(f"step_{step:012d}", late)
            if late and not self.names()[len(late) :]:  # nothing is left to point to
                atomic.remove(self.run / "latest")
                atomic.remove(self.run / "best")
            for name in late:
                atomic.remove(self.folder / name)
            if late:
                atomic.synchronize(self.folder)
        return late

    def _restore_latest(self, name: str) -> None:
        """Point `latest` to the checkpoint from which the run goes on."""
        pointer, data = self.run / "latest", f"{name}\n".encode()
        with suppress(OSError):  # one that cannot be read is replaced
            if atomic.read_small(pointer, LONGEST_NAME, follow=False) == data:
                return
        if name in self.names():
            atomic.write_file(pointer, data)

    def _restore_best(self, name: str, late: list[str]) -> None:
        """Point `best` to the checkpoint that was the best when `name` was saved.

        Needed if the later best is deleted, or if a process died before it could set the pointer.
        """
        with suppress(Broken, FileNotFoundError):
            then, now = self._manifest(name).best, self.best()
            if then in self.names() and then != now and (then == name or now in (None, *late)):
                atomic.write_file(self.run / "best", f"{then}\n".encode())

    def _write(self, path: Path, about: Manifest, files: Mapping[str, Any]) -> None:
        with atomic.staged_folder(path) as hidden:
            entries = {file: tensors.write(hidden / file, part) for file, part in files.items()}
            text = manifest.to_bytes(replace(about, files=entries))
            atomic.create_file(hidden / "manifest.json", lambda file: atomic.write_all(file, text))

    def _rotate(self, step: int) -> None:
        """Reduce checkpoints older than the newest `keep` to weights; never the one just saved."""
        names = [name for name in self.names() if _step(name) <= step]
        full = [name for name in names if self._has_state(name)]
        for name in full[self._keep :]:
            os.unlink(self.folder / name / STATE)
        best = self.best()
        older = [name for name in names if name not in full[: self._keep] and name != best]
        if self._keep_weights is not None:
            for name in older[self._keep_weights :]:
                atomic.remove(self.folder / name)

    def _has_state(self, name: str) -> bool:
        # A link to a folder elsewhere is no checkpoint: its state is not ours to delete.
        return not (self.folder / name).is_symlink() and (self.folder / name / STATE).exists()

    def _candidates(self, name: str | None) -> list[str]:
        if name is None or name == "latest":
            return self.names()
        if name == "best":
            best, problem = self._find_best()
            if best:
                return [best]
            raise BadRun(f"run: {self.run} has no best checkpoint: {problem}.")
        if name in self.names():
            return [name]
        there = ", ".join(self.names()[:5]) or "none"
        raise BadRun(f"run: {self.run} has no checkpoint {name!r}. There are: {there}.")

    def _manifest(self, name: str) -> Manifest:
        folder = self.folder / name
        if folder.is_symlink() or not folder.is_dir():
            raise Broken("it is not a folder")
        text = atomic.read_small(folder / "manifest.json", manifest.LARGEST, follow=False)
        about = manifest.from_bytes(text)
        if about.step != _step(name):
            raise Broken(f"its manifest is of step {about.step}")
        return about

    def _read(self, name: str, kind: Kind, template, check, skipped: list[str]) -> Checkpoint:
        folder, about = self.folder / name, self._manifest(name)
        if check is not None:
            check(name, about.numbers)
        if kind == "full" and not (about.kind == "full" and (folder / STATE).exists()):
            raise Broken("it holds weights only")
        wanted = [WEIGHTS, STATE] if kind == "full" else [WEIGHTS]
        if template is not None:
            _compare(
                name, {n: e for f in wanted for n, e in about.files[f].items()}, kind, template
            )
        arrays: dict[str, np.ndarray] = {}
        for file in wanted:
            arrays |= tensors.read(folder / file, about.files[file])
        return Checkpoint(name, about.step, kind, arrays, about.numbers, skipped)


def _compare(name: str, entries: Mapping, kind: Kind, template: Mapping[str, Any]) -> None:
    expected = {
        name: tensors.entry_of(array)
        for name, array in template.items()
        if kind == "full" or name.startswith(PREFIX)
    }
    if problems := manifest.differences(entries, expected):
        lines = "".join(f"\n  {line}" for line in problems)
        raise BadRun(f"run: {name} does not fit this config:{lines}")


def _step(name: str) -> int:
    return int(name.removeprefix("step_"))


def load_chosen(run: RunFolder, config: Any, name: str, *, quiet: bool = False) -> Checkpoint:
    """Load the weights of "best", "latest" or a named checkpoint, and print which one that is.

    What was skipped is printed with its reason, also if `quiet`. Raises BadRun if `config` is not
    the one that the checkpoint was saved with.
    """
    check = refuse_changes(config, run.config_file)
    checkpoint = Checkpoints(run.path).load(name, kind="weights", check=check)
    lines = [f"Skipped {reason}" for reason in checkpoint.skipped]
    if lines or not quiet:
        chosen = f" ({name})" if name != checkpoint.name else ""
        lines.append(f"Run {run.path}, {checkpoint.name}{chosen}")
        print(printable("\n".join(lines)), file=sys.stderr)
    return checkpoint


class BackgroundSaver:
    """Saves checkpoints in a thread of its own: training pays for a copy of the arrays, no more.

    Hashing, writing and waiting for the disk happen in the thread, in the order of the calls, and
    give the same bytes. A failed write is raised by the next call. It needs memory for one copy of
    the state. Use it with `with`, which waits for the last save.
    """

    def __init__(self, checkpoints: Checkpoints, log: MetricsLog | None = None):
        self._checkpoints, self._log = checkpoints, log
        self._thread = ThreadPoolExecutor(1, "checkpoints")
        self._last: Future[str] | None = None
        self._copies: dict[str, np.ndarray] = {}

    def save(self, step: int, arrays: Mapping[str, Any], numbers: Mapping[str, Any], **options):
        """Copy the arrays and return; options as in `Checkpoints.save`.

        Waits for the previous save if that is still being written: there is one copy at a time.
        """
        self.wait()
        self._copies = {name: self._copy(name, np.asarray(a)) for name, a in arrays.items()}
        if self._log:
            self._log.flush()
        self._last = self._thread.submit(self._save, step, self._copies, dict(numbers), options)

    def wait(self) -> str | None:
        """Wait until the last save is on the disk; return its name, or raise its error."""
        last, self._last = self._last, None
        return last.result() if last else None

    def close(self) -> None:
        """Wait for the last save, and end the thread."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def __enter__(self) -> "BackgroundSaver":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _copy(self, name: str, array: np.ndarray) -> np.ndarray:
        # The memory of the previous copy is reused: fresh memory costs more than the copying.
        previous = self._copies.get(name)
        if previous is None or (previous.shape, previous.dtype) != (array.shape, array.dtype):
            return np.array(array, order="C")
        np.copyto(previous, array)
        return previous

    def _save(self, step: int, arrays: dict, numbers: dict, options: dict) -> str:
        # The log goes first: a run that is resumed from this checkpoint must not lack its rows.
        if self._log:
            self._log.sync_file()
        return self._checkpoints.save(step, arrays, numbers, **options)


def export_weights(path: Path, arrays: Mapping[str, np.ndarray], card: Mapping[str, Any]) -> None:
    """Write weights as a safetensors file, and beside it a JSON card that explains them."""
    from safetensors.numpy import save

    if path.suffix != ".safetensors" or not path.parent.is_dir():
        raise BadConfig([f"{path} must end in .safetensors and lie in a folder that exists."])
    shapes = {name: [list(array.shape), array.dtype.name] for name, array in arrays.items()}
    text = json.dumps({**card, "arrays": shapes}, indent=1, ensure_ascii=False)
    data = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    with writing(str(path)):
        atomic.write_file(path.with_suffix(".json"), text.encode() + b"\n")
        atomic.write_file(path, data)
