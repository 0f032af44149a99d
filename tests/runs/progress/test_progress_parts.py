"""Commands as processes of their own: one that fails or is stopped does not sink the rest."""

import io
import os
import signal
import sys
import threading
import time

import pytest
from rich.console import Console

from loopless.runs.progress import parts as progress
from loopless.runs.progress.parts import Part, run_all

pytestmark = pytest.mark.slow  # it starts processes

WAITS = "import time, sys; print('waiting', file=sys.stderr, flush=True); time.sleep(60)"
SAVES = f"""
import signal, sys
def save(number, frame):
    print('saved', file=sys.stderr, flush=True); sys.exit(75)
signal.signal(signal.SIGINT, save)
{WAITS}
"""
DEAF = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {WAITS}"


def part(name, code, **options):
    return Part(name, [sys.executable, "-c", code], **options)


def run(parts, folder, conclude=lambda part: "fine", show=lambda parts: None):
    return run_all(parts, folder, conclude, show)


def interrupt_when_waiting(times):
    """Ctrl-C for this process, once its child says that it waits."""
    sent = []

    def show(parts):
        running = [one for one in parts if one.state == "running"]
        if running and running[0].message == "waiting" and len(sent) < times:
            sent.append(1)
            os.kill(os.getpid(), signal.SIGINT)

    return show


def test_each_part_ends_by_itself(tmp_path):
    parts = [
        part("good", "print('out'); import sys; print('err', file=sys.stderr)"),
        part("bad", "raise SystemExit('it is broken')"),
        part("silent", "raise SystemExit(3)"),
        Part("absent", ["/no/such/program"]),
        part("expected", "raise SystemExit(1)", good=(1,)),
    ]
    assert run(parts, tmp_path)
    states = {one.name: (one.state, one.message) for one in parts}
    assert states == {
        "good": ("done", "fine"),
        "bad": ("failed", "it is broken"),
        "silent": ("failed", "ended with exit code 3"),
        "absent": ("failed", "cannot be started: No such file or directory"),
        "expected": ("done", "fine"),
    }
    assert sorted((tmp_path / "good.log").read_text().split()) == ["err", "out"]
    assert progress.exit_code(parts, whole=True) == 1


def test_a_part_of_which_nothing_came_has_failed(tmp_path):
    def conclude(part):
        raise ValueError("there is no result")

    parts = [part("good", "")]
    run(parts, tmp_path, conclude)
    assert (parts[0].state, parts[0].message) == ("failed", "there is no result")


def test_control_c_lets_the_child_save_and_leaves_out_the_rest(tmp_path):
    parts = [part("first", SAVES), part("second", "")]
    assert not run(parts, tmp_path, show=interrupt_when_waiting(1))
    assert [(one.state, one.code) for one in parts] == [("interrupted", 75), ("left out", None)]
    assert parts[0].message == "saved"
    assert progress.exit_code(parts, whole=False) == 130


def test_the_third_control_c_ends_a_child_that_does_not_listen(tmp_path):
    parts = [part("deaf", DEAF)]
    start = time.monotonic()
    run(parts, tmp_path, show=interrupt_when_waiting(3))
    assert time.monotonic() - start < 30
    assert parts[0].code == -signal.SIGKILL


def test_handlers_are_put_back(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    run([part("good", "")], tmp_path)
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_run_parts_too(tmp_path):
    parts = [part("good", "")]
    thread = threading.Thread(target=run, args=(parts, tmp_path))
    thread.start()
    thread.join()
    assert parts[0].state == "done"


@pytest.mark.parametrize("terminal", [False, True])
def test_the_board_tells_of_every_turn(tmp_path, terminal):
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=80)
    parts = [part("the [first]", ""), part("second", "raise SystemExit('broken')")]
    with progress.board(parts, console) as show:
        run(parts, tmp_path, show=show)
    progress.show_outcome(parts, console)
    for said in ("the [first]", "fine", "second", "broken", "second.log"):
        assert said in out.getvalue()


def test_a_grandchild_that_holds_the_pipe_does_not_hold_us(tmp_path):
    hold = "import time; time.sleep(8)"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {hold!r}])"
    parts = [part("parent", code)]
    run(parts, tmp_path)
    assert parts[0].state == "done"
    assert parts[0].seconds < 7
