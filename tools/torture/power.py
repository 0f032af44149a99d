"""Power cuts: whatever a disk may keep must open, with nothing lost that was reported as saved."""

import os
import shutil
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np

from loopless.files import atomic
from loopless.replay import ReplayBuffer
from loopless.runs.checkpoint import Checkpoints
from loopless.runs.metrics import MetricsLog, read
from torture.disk import Recorder, cut
from torture.failure import Failure

CUTS = 12  # of each session
PAGE = 4096


def fuzz(seed: int) -> dict[str, int]:
    """Record one session and cut its power several times; return what to count."""
    rng = np.random.default_rng(seed)
    session = (_checkpoints, _metrics, _buffer_file, _memmap)[seed % 4]
    with tempfile.TemporaryDirectory() as folder:
        session(rng, Path(folder))
    return {"power cuts": CUTS, f"power cuts, {session.__name__[1:]}": CUTS}


def _replay(recorder: Recorder, rng, folder: Path, check) -> None:
    for number in range(CUTS):
        count = int(rng.integers(len(recorder.operations) + 1))
        state = folder / f"cut{number}"
        state.mkdir()
        reports = cut(recorder, count, rng, state)
        try:
            check(state, reports)
        except Failure as failure:
            raise Failure(
                f"after operation {count} of {len(recorder.operations)}: {failure}"
            ) from failure
        except Exception as error:
            raise Failure(f"after operation {count}: {type(error).__name__}: {error}") from error


def _checkpoints(rng, folder: Path) -> None:
    run = folder / "run"
    run.mkdir()
    recorder = Recorder(run)
    steps = np.cumsum(rng.integers(1, 9, 5)).tolist()
    arrays = {step: {"weights/w": np.full(50, step), "state/s": rng.random(300)} for step in steps}
    with recorder.installed():
        checkpoints = Checkpoints(run)
        for step in steps:
            kind = "weights" if rng.random() < 0.2 else "full"
            checkpoints.save(step, arrays[step], {"step": step}, kind=kind, best=rng.random() < 0.3)
            if kind == "full":
                recorder.saved(step)

    def check(state: Path, reports: list) -> None:
        if (state / "checkpoints").is_dir():
            atomic.recover(state / "checkpoints")
        if not reports:
            return
        loaded = Checkpoints(state).load()
        if loaded.step < reports[-1]:
            raise Failure(f"checkpoint {reports[-1]} was saved, and {loaded.step} is the newest")
        for name, array in arrays[loaded.step].items():
            if not np.array_equal(loaded.arrays[name], array):
                raise Failure(f"{name} of checkpoint {loaded.step} is another array")

    _replay(recorder, rng, folder, check)


def _metrics(rng, folder: Path) -> None:
    run = folder / "run"
    run.mkdir()
    recorder = Recorder(run)
    with recorder.installed(), MetricsLog(run / "metrics.jsonl", flush_s=0.0) as log:
        for step in range(12):
            log.write(step, loss=float(step))
            if rng.random() < 0.3:
                log.sync()
                atomic.synchronize(run)  # as the checkpoint that a session syncs for does
                recorder.saved(step)
            if rng.random() < 0.1:
                log.trim_after(step)

    def check(state: Path, reports: list) -> None:
        path = state / "metrics.jsonl"
        steps = [row["step"] for row in read(path)] if path.exists() else []
        expected = list(range(reports[-1] + 1 if reports else 0))
        if steps[: len(expected)] != expected:
            raise Failure(f"rows {expected} were saved, and there are {steps}")
        with MetricsLog(path) as log:
            log.write(99, loss=0.0)
        if [row["step"] for row in read(path)][-1] != 99:
            raise Failure("a row written after the cut is not read back")

    _replay(recorder, rng, folder, check)


def _buffer_file(rng, folder: Path) -> None:
    run = folder / "run"
    run.mkdir()
    recorder, buffer = Recorder(run), ReplayBuffer(16, {"x": ((3,), np.float32)})
    with recorder.installed():
        for size in range(1, 5):
            buffer.add(x=np.full((size, 3), size, np.float32))
            buffer.save(run / "buffer")
            recorder.saved(len(buffer))

    def check(state: Path, reports: list) -> None:
        if (state / "buffer").exists():
            size = len(ReplayBuffer.load(state / "buffer"))
            if reports and size < reports[-1]:
                raise Failure(f"{reports[-1]} transitions were saved, and {size} are there")
        elif reports:
            raise Failure("the file was saved, and is gone")

    _replay(recorder, rng, folder, check)


def _memmap(rng, folder: Path) -> None:
    """Cut between calls, and within a flush, when any page of the maps may be old or new."""
    home = folder / "buffer"
    buffer = ReplayBuffer(64, {"x": ((300,), np.int64)}, storage="memmap", path=home)
    flushed, pages, cuts = None, {}, 0

    def cut_now(expected, synced: bool = False) -> None:
        nonlocal cuts
        cuts += 1
        state = folder / f"cut{cuts}"
        shutil.copytree(home, state)
        for file in state.glob("*.bin"):
            new, old = bytearray(file.read_bytes()), pages.get(file.name)
            for start in range(0, len(new), PAGE):
                if old is not None and not synced and rng.random() < 0.5:
                    new[start : start + PAGE] = old[start : start + PAGE]
            file.write_bytes(bytes(new))
        (state / "lock").unlink(missing_ok=True)
        opened = ReplayBuffer.open(state)
        received = opened.state()["data/x"]
        opened._storage.close()  # without a flush
        if not any(np.array_equal(received, option) for option in expected):
            raise Failure(f"cut {cuts}: the buffer is not what the last flush left")

    def flush() -> None:
        nonlocal flushed, pages
        now = buffer.state()["data/x"]
        real = os.replace

        def replace(*args):
            if flushed is not None:
                cut_now([flushed], synced=True)
            real(*args)
            cut_now([now], synced=True)

        with mock.patch.object(os, "replace", replace):
            buffer.flush()
        flushed = now
        pages = {file.name: file.read_bytes() for file in home.glob("*.bin")}

    flush()
    for number in range(CUTS):
        rows = int(rng.integers(1, 20))
        buffer.add(x=np.full((rows, 300), number))
        if rng.random() < 0.3:
            flush()
        else:
            cut_now([flushed])
    buffer.close()
