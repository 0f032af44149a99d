"""The trainer's end of the pipe to the process that draws pictures: it asks, and never waits.

Requests go into a pipe without blocking: a full pipe means that the process is busy and will draw
anyway. If it dies, that is reported once and training goes on. The process ends when the pipe
closes, so that none is left behind however the trainer ends. The other end is `drawing`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from loopless.files import atomic
from loopless.refusals import printable

LAST_DRAWING_S = 15.0  # to wait for the last drawing of a run that was interrupted or failed
FINISHED_S = 600.0  # and of one that is done: its pictures are part of what it made
SAY_AFTER_S = 3.0
A_MOMENT_S = 0.5  # to wait for a dying process
LONGEST_REQUEST = 4096  # bytes that a pipe takes whole or not at all
LOG = "renderer.log"
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Renderer:
    """Starts the process that draws when it is first needed, and sends it requests.

        with Renderer(run.path, note=progress.note) as renderer:
            renderer.request()                               # every picture that the log allows
            renderer.request("return", "loss")               # these
            renderer.request("eigenvectors", snapshots={"features": "snapshots/17.safetensors"})
        # at the end everything is drawn once more, and that is waited for

    `drew` tells afterwards whether the pictures show the end of the run.

    `modules` are imported in that process, where they register further pictures.
    """

    def __init__(
        self,
        folder: Path,
        *,
        modules: Sequence[str] = (),
        tensorboard: bool = False,
        note: Callable[[str], None] | None = None,
    ):
        say = note or _to_stderr
        self._folder, self._note = Path(folder), lambda text: say(printable(text))
        self._log = self._folder / LOG
        self._process: subprocess.Popen[bytes] | None = None
        self._modules, self._tensorboard, self._started = modules, tensorboard, False
        self.drew = False

    def _start(self) -> None:
        """Start the process, unless it was started before."""
        if self._started:
            return
        self._started = True
        command = [sys.executable, "-P", "-m", "loopless.runs.pictures.drawing", str(self._folder)]
        command += [f"--parent={os.getpid()}", *(f"--module={name}" for name in self._modules)]
        command += ["--tensorboard"] if self._tensorboard else []
        try:
            atomic.remove(self._log)  # a new file: an old one may have another name elsewhere
            with os.fdopen(os.open(self._log, NEW_FILE, 0o644), "wb") as log:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env=_environment(),
                    bufsize=0,
                    start_new_session=True,
                )
        except OSError as error:
            self._give_up(f"it did not start ({error})")
        else:
            os.set_blocking(self._pipe, False)

    def request(self, *pictures: str, snapshots: Mapping[str, Path | str] | None = None) -> None:
        """Have these pictures drawn soon, or all of them. Costs microseconds and never raises."""
        self._start()
        if self._process is None:
            return
        files = {name: os.path.abspath(path) for name, path in (snapshots or {}).items()}
        line = json.dumps({"draw": pictures, "snapshots": files}).encode() + b"\n"
        if len(line) > LONGEST_REQUEST:
            self._give_up(f"a request of {len(line)} bytes is too long")
            return
        with suppress(BlockingIOError):  # the pipe is full of requests
            try:
                os.write(self._pipe, line)
            except BrokenPipeError:
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(A_MOMENT_S)
        if (code := self._process.poll()) is not None:
            self._give_up(self._ending(code))

    def close(self, wait_s: float | None = None) -> None:
        """Have everything drawn a last time, wait for it, and end the process."""
        self._start()
        if (process := self._process) is None:
            return
        wait_s = LAST_DRAWING_S if wait_s is None else wait_s
        self._close_pipe()
        try:
            code = self._wait(process, wait_s)
        except subprocess.TimeoutExpired:
            self._give_up(f"the last drawing was not done after {wait_s:g} s", self._stale())
        except KeyboardInterrupt:
            self._give_up("the last drawing was interrupted", self._stale())
        except BaseException:
            self._process = None
            process.kill()
            raise
        else:
            self._process = None
            self.drew = not code
            if code:
                self._note(f"renderer: {self._ending(code)}. {self._advice()}")
            elif self._log.exists() and not self._log.stat().st_size:
                self._log.unlink(missing_ok=True)

    def __enter__(self) -> Renderer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(FINISHED_S if kind is None else None)

    def _wait(self, process: subprocess.Popen[bytes], wait_s: float) -> int:
        """Wait for the process to end, and say so if that takes more than a moment."""
        try:
            return process.wait(min(SAY_AFTER_S, wait_s))
        except subprocess.TimeoutExpired:
            if wait_s <= SAY_AFTER_S:
                raise
        self._note("Drawing the last pictures; Ctrl-C leaves them as they are.")
        return process.wait(wait_s - SAY_AFTER_S)

    def _stale(self) -> str:
        return f"The pictures in {self._folder / 'plots'} are older than the run."

    @property
    def _pipe(self) -> int:
        assert self._process is not None
        assert self._process.stdin is not None
        return self._process.stdin.fileno()

    def _close_pipe(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()

    def _give_up(self, why: str, outcome: str = "Training goes on without new pictures.") -> None:
        """End the process, and say once that there will be no more pictures."""
        process = self._process
        if process is not None:
            self._close_pipe()
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(A_MOMENT_S)
        self._process = None
        self._note(f"renderer: {why}. {outcome} {self._advice()}")

    def _ending(self, code: int) -> str:
        message = _last_line(self._log)
        ending = f"the process that draws ended with code {code}"
        return f"{ending}: {message}" if message else ending

    def _advice(self) -> str:
        return f"Its messages are in {self._log}; `loopless plot {self._folder}` draws later."


def _environment() -> dict[str, str]:
    """Return the trainer's environment variables, its import path included, and one thread."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "MPLBACKEND": "agg",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def _last_line(path: Path) -> str:
    with suppress(OSError):
        text = atomic.read_small(path, 1 << 24, follow=False).decode("utf-8", "replace")
        lines = text[-2000:].strip().splitlines()
        return lines[-1] if lines else ""
    return ""


def _to_stderr(text: str) -> None:
    with suppress(OSError, ValueError, AttributeError):
        print(text, file=sys.stderr)
