"""A Ctrl-C that somebody swallows still ends the race."""

import os
import signal
import subprocess
import sys
import time

import pytest

from loopless.bench import timing
from loopless.bench.timing import Budget, Race, remember_interrupts


@pytest.fixture(autouse=True)
def _restored():
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    remember_interrupts()
    yield
    signal.signal(signal.SIGINT, before)
    timing._interrupted = False


def test_a_swallowed_interrupt_is_raised_before_the_next_sample():
    calls = 0

    def swallows():
        nonlocal calls
        calls += 1
        if calls == 20:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.1)
            except KeyboardInterrupt:
                pass

    race = Race({"a": swallows}, Budget(sample_s=0.0, total_s=10.0, most_samples=1000, warm_s=0.0))
    with pytest.raises(KeyboardInterrupt):
        race.run()
    assert calls == 20


@pytest.mark.slow
def test_control_c_ends_the_command_with_130_and_a_file(tmp_path):
    path = tmp_path / "out.json"
    arguments = ["bench", "returns", "--quick", "--no-peers", "--json", str(path)]
    code = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test runner may have it ignored
from loopless.cli import main
sys.exit(main({arguments!r}))
"""
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stderr is not None
    child.stderr.readline()  # the first case is announced
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=120)
    assert child.returncode == 130, out
    assert '"interrupted": true' in path.read_text()
