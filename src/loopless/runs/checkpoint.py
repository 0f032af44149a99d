"""Checkpoints of a run: saved whole or not at all, loaded after every byte was checked.

    checkpoints = Checkpoints(run.path)
    checkpoints.save(step, arrays, numbers, best=improved)
    found = checkpoints.load(template=arrays)   # the newest whole one; found.skipped says why

A checkpoint is a folder: `manifest.json`, `weights.safetensors` (the arrays whose names begin with
"weights/") and `state.safetensors` (the rest: optimiser, replay, counters). Older checkpoints give
up their state by deleting that one file, which needs no room on a full disk and cannot half fail.
Imports NumPy. Tests: `tests/runs/test_checkpoint*.py`.
"""

import json
import os
import re
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from loopless.files import atomic, manifest
from loopless.files import tensors as tensor_file
from loopless.files.manifest import STATE, WEIGHTS, Kind, Manifest
from loopless.files.tensors import Broken
from loopless.runs.failures import BadConfig, BadRun, writing
from loopless.runs.metrics import MetricsLog

PREFIX = "weights/"
_NAME = re.compile(r"step_(\d{12,18})")


@dataclass(frozen=True)
class Checkpoint:
    """What was loaded, and which newer checkpoints were not, with the reason for each."""

    name: str
    step: int
    kind: Kind
    arrays: dict[str, np.ndarray]
    numbers: dict[str, Any]
    skipped: list[str] = field(default_factory=list)


class Checkpoints:
    """The checkpoints of the run in folder `run`: the newest `keep` in full, of others the weights.

    Weights are kept of the best, and of the newest `keep_weights` beside it (all, if None).
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
        """Save under the name of `step`, and return that name; WriteFailed if the disk refuses.

        Equal arrays and numbers give equal files. Whatever was saved before stays loadable until
        the new one is safe. `best` marks this one as the best so far.
        """
        ready = tensor_file.storable(arrays)
        weights = {name: ready[name] for name in sorted(ready) if name.startswith(PREFIX)}
        files = {WEIGHTS: weights}
        if kind == "full":
            files[STATE] = {name: ready[name] for name in sorted(ready) if name not in weights}
        name = f"step_{step:012d}"
        last = self.names()[:1]
        try:
            with writing(f"checkpoint {name}", f"The last good one is {last[0]}" if last else ""):
                if not self.folder.is_dir():
                    self.folder.mkdir(parents=True)
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
    ) -> Checkpoint:
        """The newest whole checkpoint; or the one of this `name`, which may be "best".

        With kind "weights" the weights alone are read, from any checkpoint. `template` has the
        arrays that are expected (their shapes and types are looked at); a checkpoint with others
        is refused with all differences.
        """
        skipped: list[str] = []
        for candidate in self._candidates(name):
            try:
                return self._read(candidate, kind, template, skipped)
            except Broken as why:
                skipped.append(f"{candidate}: {why}.")
            except OSError as error:
                words = filter(None, (error.filename and Path(error.filename).name, error.strerror))
                skipped.append(f"{candidate}: {': '.join(words)}.")
        reasons = "".join(f"\n  {line}" for line in skipped)
        raise BadRun(f"run: {self.run} has no checkpoint to load{':' if reasons else '.'}{reasons}")

    def names(self) -> list[str]:
        """All checkpoints that are there, whole or not, newest first."""
        try:
            found = [entry for entry in os.listdir(self.folder) if _NAME.fullmatch(entry)]
        except FileNotFoundError:
            return []
        return sorted(found, key=_step, reverse=True)

    def best(self) -> str | None:
        """The name of the best checkpoint, if one was marked and is there."""
        # Any other error is raised: what cannot be read just now must not be rotated away.
        with suppress(FileNotFoundError, UnicodeDecodeError):
            name = atomic.read_small(self.run / "best", 100).decode().strip()
            return name if name in self.names() else None
        return None

    def trim_after(self, step: int) -> list[str]:
        """Drop the checkpoints after `step`, from which a run has been resumed; their names.

        Without it a later resume would take up a past that the run has left.
        """
        late = [name for name in self.names() if _step(name) > step]
        with writing(f"into {self.folder}"):
            self._restore_best(f"step_{step:012d}", late)
            for name in late:
                atomic.remove(self.folder / name)
            if late:
                atomic.synchronize(self.folder)
        return late

    def _restore_best(self, name: str, late: list[str]) -> None:
        """Point `best` to what was the best when `name` was saved.

        Needed where the later best is dropped, or where a process died before it could point here.
        """
        with suppress(Broken, FileNotFoundError):
            then, now = self._manifest(name).best, self.best()
            if then in self.names() and then != now and (then == name or now in (None, *late)):
                atomic.write_file(self.run / "best", f"{then}\n".encode())

    def _write(self, path: Path, about: Manifest, files: Mapping[str, Any]) -> None:
        with atomic.staged_folder(path) as hidden:
            entries = {file: tensor_file.write(hidden / file, part) for file, part in files.items()}
            text = manifest.to_bytes(replace(about, files=entries))
            atomic.create_file(hidden / "manifest.json", lambda file: atomic.write_all(file, text))

    def _rotate(self, step: int) -> None:
        """Reduce what is older than the newest `keep` to its weights; never the one just saved."""
        names = [name for name in self.names() if _step(name) <= step]
        full = [name for name in names if (self.folder / name / STATE).exists()]
        for name in full[self._keep :]:
            os.unlink(self.folder / name / STATE)
        best = self.best()
        older = [name for name in names if name not in full[: self._keep] and name != best]
        if self._keep_weights is not None:
            for name in older[self._keep_weights :]:
                atomic.remove(self.folder / name)

    def _candidates(self, name: str | None) -> list[str]:
        if name is None or name == "latest":
            return self.names()
        if name == "best":
            try:
                found = self.best()
            except OSError as error:
                raise BadRun(f"run: cannot read {self.run / 'best'}: {error.strerror}.") from None
            if found:
                return [found]
            raise BadRun(f"run: {self.run} has no best checkpoint yet.")
        if name in self.names():
            return [name]
        there = ", ".join(self.names()[:5]) or "none"
        raise BadRun(f"run: {self.run} has no checkpoint {name!r}. There is: {there}.")

    def _manifest(self, name: str) -> Manifest:
        folder = self.folder / name
        if folder.is_symlink() or not folder.is_dir():
            raise Broken("it is no folder")
        text = atomic.read_small(folder / "manifest.json", manifest.LARGEST, follow=False)
        about = manifest.from_bytes(text)
        if about.step != _step(name):
            raise Broken(f"its manifest is of step {about.step}")
        return about

    def _read(self, name: str, kind: Kind, template, skipped: list[str]) -> Checkpoint:
        folder, about = self.folder / name, self._manifest(name)
        if kind == "full" and not (about.kind == "full" and (folder / STATE).exists()):
            raise Broken("it holds weights only")
        wanted = [WEIGHTS, STATE] if kind == "full" else [WEIGHTS]
        if template is not None:
            _compare(
                name, {n: e for f in wanted for n, e in about.files[f].items()}, kind, template
            )
        arrays: dict[str, np.ndarray] = {}
        for file in wanted:
            arrays |= tensor_file.read(folder / file, about.files[file])
        return Checkpoint(name, about.step, kind, arrays, about.numbers, skipped)


def _compare(name: str, entries: Mapping, kind: Kind, template: Mapping[str, Any]) -> None:
    expected = {
        name: tensor_file.entry_of(array)
        for name, array in template.items()
        if kind == "full" or name.startswith(PREFIX)
    }
    if wrong := manifest.differences(entries, expected):
        lines = "".join(f"\n  {line}" for line in wrong)
        raise BadRun(f"run: {name} does not fit this config:{lines}")


def _step(name: str) -> int:
    return int(name.removeprefix("step_"))


class BackgroundSaver:
    """Saves to `checkpoints` in a thread; use it with `with`, which waits for the last one."""

    def __init__(self, checkpoints: Checkpoints, log: MetricsLog | None = None):
        self._checkpoints, self._log = checkpoints, log
        self._thread = ThreadPoolExecutor(1, "checkpoints")
        self._last: Future[str] | None = None
        self._copies: dict[str, np.ndarray] = {}

    def save(self, step: int, arrays: Mapping[str, Any], numbers: Mapping[str, Any], **options):
        """Copy the arrays and return; options as in `Checkpoints.save`.

        Waits for the save before, if that is still being written: one copy at a time.
        """
        self.wait()
        self._copies = {name: self._copy(name, np.asarray(a)) for name, a in arrays.items()}
        if self._log:
            self._log.flush()
        self._last = self._thread.submit(self._save, step, self._copies, dict(numbers), options)

    def wait(self) -> str | None:
        """Until the last save is on the disk; its name, or the error that it met."""
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
        # Into the memory of the copy before: fresh memory costs more to fill than the copying.
        old = self._copies.get(name)
        if old is None or (old.shape, old.dtype) != (array.shape, array.dtype):
            return np.array(array, order="C")
        np.copyto(old, array)
        return old

    def _save(self, step: int, arrays: dict, numbers: dict, options: dict) -> str:
        # The rows up to this step first: a run resumed from here must not lack them.
        if self._log:
            self._log.sync_file()
        return self._checkpoints.save(step, arrays, numbers, **options)


def export_weights(path: Path, arrays: Mapping[str, np.ndarray], card: Mapping[str, Any]) -> None:
    """`path` and the card beside it, each whole or not at all."""
    from safetensors.numpy import save

    if path.suffix != ".safetensors" or not path.parent.is_dir():
        raise BadConfig([f"{path} is no name of a .safetensors file in a folder that is there."])
    shapes = {name: [list(array.shape), array.dtype.name] for name, array in arrays.items()}
    text = json.dumps({**card, "arrays": shapes}, indent=1, ensure_ascii=False)
    data = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    with writing(str(path)):
        atomic.write_file(path.with_suffix(".json"), text.encode() + b"\n")
        atomic.write_file(path, data)
