"""A real process draws; whatever happens to it or to the trainer, neither harms the other."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support import made_up_runs

from loopless.files import atomic
from loopless.runs import metrics
from loopless.runs.columns import Log
from loopless.runs.pictures import drawing
from loopless.runs.pictures.renderer import Renderer

pytestmark = pytest.mark.slow  # it starts processes

PNG = b"\x89PNG\r\n\x1a\n"
OWN = {"modules": ["made_up_pictures"]}


@pytest.fixture
def folder(tmp_path) -> Path:
    return made_up_runs.write(tmp_path / "run", made_up_runs.rows(count=10))


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    # Tests share the cores.
    monkeypatch.setattr("loopless.runs.pictures.renderer.LAST_DRAWING_S", 120.0)
    monkeypatch.setattr("loopless.runs.pictures.renderer.SAY_AFTER_S", 120.0)


def until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return value


def is_running(pid: int) -> bool:
    """Whether a process lives; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_pictures_appear_while_the_run_goes_on_and_again_at_its_end(folder):
    notes = []
    with Renderer(folder, note=notes.append) as renderer:
        renderer.request("return")
        first = until(lambda: [*folder.glob("plots/return.png")])[0].read_bytes()
        with (folder / "metrics.jsonl").open("a") as file:
            row = {"step": 900_000, "time": 9.0, "kind": "train", "return_mean": -300.0}
            file.write(json.dumps(row) + "\n")
    assert not notes
    drawn = {path.name for path in (folder / "plots").iterdir()}
    assert {"return.png", "loss.png", "td_error.png", "speed.png", "time.png"} <= drawn
    assert all((folder / "plots" / name).read_bytes().startswith(PNG) for name in drawn)
    assert (folder / "plots" / "return.png").read_bytes() != first
    assert not (folder / "renderer.log").exists()


def test_a_run_without_a_log_draws_nothing_and_is_no_error(tmp_path):
    notes = []
    with Renderer(tmp_path, note=notes.append):
        pass
    assert not notes
    assert not [*tmp_path.glob("plots/*")]


def test_requests_never_block_and_a_hung_process_is_left_behind(folder):
    notes = []
    renderer = Renderer(folder, note=notes.append, **OWN)
    renderer._start()
    process = renderer._process
    os.kill(process.pid, signal.SIGSTOP)
    for _ in range(20_000):  # far more than a pipe holds
        renderer.request("return", "loss")
    assert not notes
    renderer.close(wait_s=0.1)
    assert len(notes) == 1
    assert "not done after 0.1 s" in notes[0]
    assert process.poll() == -signal.SIGKILL


def test_requests_while_it_draws_become_one_drawing(folder):
    (folder / "wait").touch()
    with Renderer(folder, **OWN) as renderer:
        renderer.request("slow")
        until((folder / "drawing").exists)
        for _ in range(50):
            renderer.request("counted")
        (folder / "go").touch()
        until(lambda: drawn_so_far(folder))
        time.sleep(1.5)
        assert drawn_so_far(folder) == 1  # once for the fifty
    assert drawn_so_far(folder) == 2  # and once at the end


def test_a_killed_renderer_is_noted_once_and_training_goes_on(folder):
    (folder / "wait").touch()
    notes = []
    renderer = Renderer(folder, note=notes.append, **OWN)
    renderer.request("slow")
    until((folder / "drawing").exists)
    renderer._process.kill()
    renderer._process.wait()
    for _ in range(100):
        renderer.request()
    renderer.close()
    assert len(notes) == 1
    assert "ended with code -9" in notes[0]
    assert "Training goes on" in notes[0]
    assert f"loopless plot {folder}" in notes[0]


def test_a_picture_that_kills_the_process_is_noted(folder):
    (folder / "die").touch()
    notes = []
    renderer = Renderer(folder, note=notes.append, **OWN)
    renderer.request("deadly")
    until(lambda: renderer.request() or notes)
    renderer.close()
    assert len(notes) == 1
    assert "ended with code 9" in notes[0]


def test_a_module_that_is_not_there_is_noted_with_its_name(folder):
    notes = []
    renderer = Renderer(folder, note=notes.append, modules=["no_such_pictures"])
    until(lambda: renderer.request() or notes)
    assert len(notes) == 1
    assert "No module named 'no_such_pictures'" in notes[0]


def test_a_renderer_that_cannot_start_is_noted(folder, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    notes = []
    renderer = Renderer(folder, note=notes.append)
    renderer.request()
    renderer.close()
    assert len(notes) == 1
    assert "did not start" in notes[0]


def test_a_request_too_long_for_a_pipe_is_refused_not_torn(folder):
    notes = []
    renderer = Renderer(folder, note=notes.append)
    renderer.request(*(f"picture {number}" for number in range(1000)))
    renderer.close()
    assert len(notes) == 1
    assert "too long" in notes[0]


def test_a_broken_picture_is_reported_once_and_does_not_stop_the_others(folder):
    (folder / "break").touch()
    notes = []
    with Renderer(folder, note=notes.append, **OWN) as renderer:
        for drawing in range(1, 4):
            renderer.request("broken", "counted")
            until(lambda drawing=drawing: drawn_so_far(folder) == drawing)
    assert (folder / "plots" / "return.png").exists()
    assert (folder / "renderer.log").read_text().count("broken failed:") == 1
    assert len(notes) == 1
    assert "there is no such eigenvector" in notes[0]
    assert str(folder / "renderer.log") in notes[0]


def drawn_so_far(folder: Path) -> int:
    return len((folder / "count").read_text()) if (folder / "count").exists() else 0


def test_snapshots_reach_the_picture(folder):
    (folder / "some").write_text("hello")
    with Renderer(folder, **OWN) as renderer:
        renderer.request("words", snapshots={"words": folder / "some"})
    assert (folder / "plots" / "words.txt").read_bytes() == b"hello"


def test_it_has_a_session_of_its_own_and_low_priority(folder):
    with Renderer(folder, **OWN) as renderer:
        renderer._start()
        pid = renderer._process.pid
    said = (folder / "plots" / "facts.txt").read_text().split()
    assert said[:2] == [str(pid), str(pid)]
    assert int(said[2]) >= min(19, os.nice(0) + drawing.NICE)


def test_a_system_that_shuts_down_gets_a_last_drawing(folder):
    renderer = Renderer(folder, **OWN)
    renderer.request("facts")
    until((folder / "plots" / "facts.txt").exists)
    renderer._process.send_signal(signal.SIGTERM)
    assert renderer._process.wait(60) == 0
    assert (folder / "plots" / "return.png").exists()
    renderer.close()


TRAINER = """
import os, sys, time
from pathlib import Path
from loopless.runs.pictures.renderer import Renderer
folder = Path(sys.argv[1])
renderer = Renderer(folder, modules=["made_up_pictures"])
if "worker" in sys.argv:
    if os.fork() == 0:      # holds the pipe open as long as it lives
        (folder / "worker").write_text(str(os.getpid()))
        time.sleep(300)
renderer.request("slow")
(folder / "pid").write_text(str(renderer._process.pid))
time.sleep(300)
"""


def trainer(folder: Path, *arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", TRAINER, str(folder), *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def test_control_c_ends_the_trainer_and_lets_the_drawing_be_finished(folder):
    (folder / "wait").touch()
    parent = trainer(folder)
    until((folder / "drawing").exists)
    pid = int(until(lambda: (folder / "pid").exists() and (folder / "pid").read_text()))
    os.killpg(parent.pid, signal.SIGINT)
    os.kill(pid, signal.SIGINT)  # even straight to it
    parent.wait(60)
    assert is_running(pid)
    (folder / "go").touch()
    until(lambda: not is_running(pid))
    assert (folder / "plots" / "slow.txt").read_bytes() == b"drawn"
    assert (folder / "plots" / "return.png").read_bytes().startswith(PNG)  # the last drawing
    assert not [*(folder / "plots").glob(".*")]


@pytest.mark.parametrize("worker", [(), ("worker",)], ids=["alone", "pipe held by a worker"])
def test_a_killed_trainer_leaves_no_renderer_behind(folder, worker):
    (folder / "wait").touch()
    parent = trainer(folder, *worker)
    until((folder / "drawing").exists)
    pid = int(until(lambda: (folder / "pid").exists() and (folder / "pid").read_text()))
    (folder / "go").touch()
    until((folder / "plots" / "slow.txt").exists)
    assert is_running(pid)
    parent.kill()
    parent.wait()
    try:
        until(lambda: not is_running(pid), seconds=30)
    finally:
        if worker:
            os.kill(int((folder / "worker").read_text()), signal.SIGKILL)


def test_what_a_killed_renderer_left_half_written_is_removed(folder):
    left = atomic.staging_path(folder / "plots" / "an_old_one.png")
    left.write_bytes(PNG)
    with Renderer(folder, **OWN):
        pass
    assert not left.exists()
    assert (folder / "plots" / "return.png").read_bytes().startswith(PNG)


def test_event_files_are_written_by_the_same_process(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Renderer(folder, tensorboard=True, **OWN):
        pass
    read = EventAccumulator(str(folder / "tensorboard"))
    read.Reload()
    assert len(read.Scalars("train/loss")) == 10


@pytest.mark.parametrize("module", ["pictures.renderer", "progress.display", "progress.clock"])
def test_the_trainer_loads_no_drawing_library(module):
    heavy = {"matplotlib", "numpy", "tensorboard"}
    code = f"import sys, loopless.runs.{module}; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def whole(folder: Path) -> dict[str, np.ndarray]:
    return metrics.columns(metrics.read(folder / "metrics.jsonl"))


def refreshed(log: Log) -> Log:
    for _ in log.refresh():
        pass
    return log


@pytest.mark.parametrize("block", [1, 7, 1000, 1 << 22])
@pytest.mark.parametrize("seeds", [1, 3])
def test_a_log_read_as_it_grows_is_the_log(tmp_path, monkeypatch, block, seeds):
    monkeypatch.setattr("loopless.runs.columns.BLOCK", block)
    rows = made_up_runs.rows(count=6, seeds=seeds, evaluations=2)
    rows[3] = {"step": 3, "time": 0.0, "kind": "train", "beta": 0.5}
    text = "".join(json.dumps(row) + "\n" for row in rows)
    log = Log(tmp_path / "metrics.jsonl")
    refreshed(log)  # there is no file yet
    for end in (0, 10, 333, 334, 1500, len(text) - 1, len(text)):
        (tmp_path / "metrics.jsonl").open("a").close()
        with (tmp_path / "metrics.jsonl").open("r+") as file:
            file.write(text[:end])
        refreshed(log)
        expected = whole(tmp_path)
        assert log.train.keys() == expected.keys()
        for name, column in expected.items():
            np.testing.assert_array_equal(log.train[name], column, err_msg=name)
    assert log.events == rows[:1]
    assert len(log.evaluations["eval_return"]) == 2


@pytest.mark.parametrize("more", [1, 1000], ids=["shorter", "longer than before"])
def test_a_trimmed_log_is_read_anew(folder, more):
    log = refreshed(Log(folder / "metrics.jsonl"))
    with metrics.MetricsLog(folder / "metrics.jsonl") as writer:
        writer.trim_after(250_000)
        for number in range(1, more + 1):
            writer.write(250_000 + number, loss=0.25)
    refreshed(log)
    np.testing.assert_array_equal(log.train["step"], whole(folder)["step"])
    assert log.train["step"][-1] == 250_000 + more
    assert len(log.events) == 1


def test_broken_lines_are_left_out(folder):
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('nonsense\n{"step": "x"}\n[1]\n')
        file.write('{"step": 999999, "time": 1.0, "kind": "train", "loss": 1.0}\n{"st')
    assert refreshed(Log(folder / "metrics.jsonl")).train["step"][-1] == 999_999


def test_the_process_that_draws_steps_back():
    script = (
        "import os; from pathlib import Path; from loopless.runs.pictures import drawing\n"
        "os.setsid(); before = os.nice(0); drawing.step_back()\n"
        "group = Path('/proc/self/autogroup')\n"
        "print(os.nice(0) - before, group.read_text().split()[-1] if group.exists() else None)"
    )
    command = [sys.executable, "-c", script]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert said[0] == str(drawing.NICE)
    assert said[1] in (str(drawing.NICE), "None")


class Drawing:
    """A process that draws for so many seconds, and an interrupt that comes meanwhile."""

    def __init__(self, needs, interrupt=False):
        self.needs, self.interrupt, self.killed, self.waits = needs, interrupt, False, []
        self.stdin, self.returncode = None, None

    def wait(self, timeout=None):
        self.waits.append(timeout)
        if self.interrupt and len(self.waits) == 2:
            raise KeyboardInterrupt
        if timeout is not None and timeout < self.needs and not self.killed:
            self.needs -= timeout
            raise subprocess.TimeoutExpired("drawing", timeout)
        return 0

    def kill(self):
        self.killed = True


def finish(folder, process, monkeypatch, error=None):
    monkeypatch.setattr("loopless.runs.pictures.renderer.SAY_AFTER_S", 3.0)
    notes = []
    renderer = Renderer(folder, note=notes.append)
    renderer._started, renderer._process = True, process
    renderer.__exit__(error)
    return renderer, notes


def test_the_last_drawing_of_a_finished_run_is_waited_for_and_announced(folder, monkeypatch):
    renderer, notes = finish(folder, process := Drawing(needs=200), monkeypatch)
    assert renderer.drew
    assert not process.killed
    assert notes == ["Drawing the last pictures; Ctrl-C leaves them as they are."]
    renderer, notes = finish(folder, Drawing(needs=1), monkeypatch)
    assert (renderer.drew, notes) == (True, [])


def test_a_run_that_failed_does_not_wait_long_and_its_pictures_are_called_old(folder, monkeypatch):
    monkeypatch.setattr("loopless.runs.pictures.renderer.LAST_DRAWING_S", 15.0)
    renderer, notes = finish(folder, process := Drawing(needs=200), monkeypatch, RuntimeError)
    assert process.killed
    assert not renderer.drew
    assert sum(process.waits[:2]) == 15.0
    assert f"The pictures in {folder / 'plots'} are older than the run." in notes[-1]
    assert f"`loopless plot {folder}` draws later" in notes[-1]
    assert "Training goes on" not in notes[-1]


def test_an_interrupt_of_the_last_drawing_ends_the_drawing_and_nothing_else(folder, monkeypatch):
    renderer, notes = finish(folder, process := Drawing(needs=200, interrupt=True), monkeypatch)
    assert process.killed
    assert not renderer.drew
    assert "the last drawing was interrupted" in notes[-1]
