"""Real signals to real processes: the first saves and stops, the second stops at once."""

import os
import pty
import signal
import subprocess
import sys
import threading

import pytest

from loopless.runs.signals import SHOW_CURSOR, StopSignals

pytestmark = pytest.mark.slow  # it starts processes

TRAIN = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test runner may have it ignored
from loopless.runs.signals import StopSignals
with StopSignals() as stop:
    print("training", flush=True)
    while not stop.requested:
        time.sleep(0.01)
print("saved after", stop.signal.name, flush=True)
sys.exit(75)
"""

# Compiled code that does not come back to Python, like a long chunk.
CHUNK = """
import hashlib, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from loopless.runs.signals import StopSignals
with StopSignals() as stop:
    print("training", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
"""

BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)


@pytest.fixture
def start():
    """Starts a child and waits until it trains."""
    children = []

    def starter(script, **options):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        child = subprocess.Popen([sys.executable, "-c", script], text=True, **options)
        children.append(child)
        if child.stdout:
            assert child.stdout.readline() == "training\n"
        return child

    yield starter
    for child in children:
        child.kill()
        child.communicate()


@BOTH
def test_the_first_signal_lets_the_run_finish_and_save(start, number):
    child = start(TRAIN)
    child.send_signal(number)
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out) == (75, f"saved after {number.name}\n")
    assert f"{number.name}: finishing the chunk, saving; once more to stop now" in err
    assert "Traceback" not in err


@BOTH
def test_the_second_signal_ends_compiled_code_at_once(start, number):
    child = start(CHUNK)
    child.send_signal(number)
    child.stderr.readline()
    assert "finishing the chunk" in child.stderr.readline()  # told at once, not after the chunk
    assert child.poll() is None
    child.send_signal(number)
    child.communicate(timeout=30)
    assert child.returncode == 128 + number


def test_a_different_second_signal_ends_it_too(start):
    child = start(CHUNK)
    child.send_signal(signal.SIGINT)
    child.stderr.readline()
    child.stderr.readline()
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=30)
    assert child.returncode == 143


def test_the_second_signal_leaves_a_terminal_with_a_cursor(start):
    ours, theirs = pty.openpty()
    script = CHUNK.replace("hashlib.pb", "print('\\x1b[?25l', end='', flush=True); hashlib.pb")
    child = start(script, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    while b"training" not in shown:
        shown += os.read(ours, 1000)
    for _ in range(2):
        child.send_signal(signal.SIGINT)
        while b"once more" not in shown:
            shown += os.read(ours, 1000)
    assert child.wait(timeout=30) == 130
    while SHOW_CURSOR not in shown:
        shown += os.read(ours, 1000)
    os.close(ours)


WORKERS = TRAIN.replace(
    'print("training", flush=True)',
    """import os
    workers = []
    for _ in range(3):
        workers.append(os.fork())
        if workers[-1] == 0:
            time.sleep(60)
            os._exit(9)
    time.sleep(0.2)  # the workers have started
    print("training", flush=True)""",
).replace(
    'print("saved after"',
    """time.sleep(0.2)  # a worker that Ctrl-C ends has ended by now
for worker in workers:
    assert os.waitpid(worker, os.WNOHANG) == (0, 0)
    os.kill(worker, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == -signal.SIGTERM
print("saved after\"""",
)


def test_control_c_to_a_run_with_forked_workers_counts_once(start):
    child = start(WORKERS, start_new_session=True)
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out) == (75, "saved after SIGINT\n"), err
    assert err.count("finishing the chunk") == 1


def test_a_signal_that_was_ignored_stays_ignored(start):
    ignoring = TRAIN.replace("signal.default_int_handler", "signal.SIG_IGN")
    child = start(ignoring)
    child.send_signal(signal.SIGINT)
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out) == (75, "saved after SIGTERM\n")
    assert "SIGINT" not in err


# In this process


def test_handlers_come_back():
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    threads = threading.active_count()
    with StopSignals():
        assert [signal.getsignal(number) for number in numbers] != before
        assert threading.active_count() == threads + 1
    assert [signal.getsignal(number) for number in numbers] == before
    assert threading.active_count() == threads
    assert signal.set_wakeup_fd(-1) == -1


def test_handlers_come_back_after_an_error():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(RuntimeError, match="broken"), StopSignals():
        raise RuntimeError("broken")
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_is_said_can_go_elsewhere():
    said, heard = [], threading.Event()
    with StopSignals(say=lambda text: (said.append(text), heard.set())) as stop:
        assert not stop.requested
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard.wait(30)
        assert stop.requested
        assert stop.signal is signal.SIGTERM
    assert said == ["SIGTERM: finishing the chunk, saving; once more to stop now"]


def test_other_signals_are_not_ours():
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with StopSignals() as stop:
            os.kill(os.getpid(), signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGUSR1)
        assert not stop.requested
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_in_another_thread_nothing_is_touched():
    before, found = signal.getsignal(signal.SIGTERM), []

    def run():
        with StopSignals() as stop:
            found.extend([stop.requested, signal.getsignal(signal.SIGTERM) is before])

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [False, True]


# The exit handlers of a library, such as JAX's, which take a while.
LEAVE = """
import atexit, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from loopless import cli
atexit.register(lambda: (print("training", flush=True), time.sleep(60)))
sys.argv = ["loopless", "no-such-command"]
sys.exit(cli.main())
"""


def test_ctrl_c_while_the_process_leaves_prints_no_traceback(start):
    child = start(LEAVE)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=50)
    assert child.returncode == -signal.SIGINT
    assert "Traceback" not in said
