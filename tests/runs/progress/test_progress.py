"""The display fits any width, is plain where nobody draws, and never disturbs the trainer."""

import io
import math
import mmap
import os
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from rich.cells import cell_len

from loopless.process import resident_bytes
from loopless.runs.progress import display as progress
from loopless.runs.progress import frame
from loopless.runs.progress.clock import Clock
from loopless.runs.progress.display import Progress

WIDTHS = (20, 30, 40, 57, 80, 100, 240)
ESCAPE = "\x1b"


def a_view(**changes) -> frame.View:
    view = frame.View(
        name="cartpole-dqn-17",
        step=210_340,
        total=500_000,
        rate=18_432.0,
        elapsed_s=27.3,
        left_s=15.6,
        shares={"env": 0.41, "act": 0.12, "learn": 0.44, "log": 0.011, "other": 0.002},
        memory_bytes=812_000_000,
        values={"return_mean": 312.43, "eval_return": math.nan, "loss": 0.01234},
    )
    return view._replace(**changes)


def text_of(view: frame.View, width: int, **options) -> str:
    return "\n".join(line.plain for line in frame.lines(view, width, **options))


class Screen(io.StringIO):
    """A terminal that remembers, or the pipe of a program that has ended."""

    def __init__(self, broken: bool = False):
        super().__init__()
        self.broken = broken

    def write(self, text: str) -> int:
        if self.broken:
            raise BrokenPipeError
        return super().write(text)

    def wait_for(self, pattern: str) -> str:
        deadline = time.monotonic() + 20
        while not re.search(pattern, self.getvalue()):
            assert time.monotonic() < deadline, self.getvalue()
            time.sleep(0.01)
        return self.getvalue()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"name": ""},
        {"name": "a-very-long-name-of-a-run-that-somebody-has-given-it-" * 3},
        {"name": "広い名前の実験" * 4},
        {"step": 0, "rate": math.nan, "left_s": math.nan, "shares": {}, "values": {}},
        {"step": 10**12, "total": 10**12, "rate": 1e9, "elapsed_s": 1e6},
    ],
    ids=["usual", "nameless", "long", "wide", "start", "huge"],
)
def test_no_line_is_wider_than_the_terminal(width, changes):
    for line in frame.lines(a_view(**changes), width):
        assert cell_len(line.plain) <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_every_width_shows_everything(width):
    words = text_of(a_view(), width)
    for word in ("42%", "210k / 500k", "18.4k steps/s", "ETA  0:16", "return  312.4"):
        assert word in words
    for word in ("loss 0.0123", "env 41%", "act 12%", "learn 44%", "log  1%", "memory 812 MB"):
        assert word in words


def test_eighty_columns_take_three_lines():
    assert len(frame.lines(a_view(), 80)) == 3


def test_what_is_unknown_or_negligible_is_left_out():
    assert "eval" not in text_of(a_view(), 80)
    assert "other" not in text_of(a_view(), 80)


@pytest.mark.parametrize(("step", "percentage"), [(0, " 0%"), (499_999, " 99%"), (500_000, "100%")])
def test_a_hundred_per_cent_is_said_at_the_end_only(step, percentage):
    assert percentage in text_of(a_view(step=step), 80)


def test_the_bar_grows_with_the_run_and_is_told_apart_without_colour():
    assert text_of(a_view(step=250_000), 40).splitlines()[1] == "━" * 20 + "─" * 20
    assert text_of(a_view(step=250_000), 40, ascii_only=True).splitlines()[1] == "#" * 20 + "-" * 20


def test_the_plain_line():
    assert frame.plain(a_view()) == (
        "cartpole-dqn-17 42%, step 210340/500000, 18.4k steps/s, return 312.4, loss 0.0123, "
        "env 41% act 12% learn 44% log 1%, memory 812 MB, elapsed 0:27, ETA 0:16"
    )
    assert frame.plain(a_view(rate=math.nan)).isascii()


def test_the_summary():
    assert frame.summary(a_view(step=500_000), "done", 500_000) == (
        "cartpole-dqn-17: done, 500,000 steps, 0:27 (18.3k steps/s), return 312.4, loss 0.0123"
    )
    assert "interrupted, 210,340 of 500,000 steps" in frame.summary(a_view(), "interrupted", 10)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_terminal_gets_frames_and_then_one_line(width):
    screen, clock = Screen(), Clock()
    with Progress(clock, 1000, name="cartpole", file=screen, terminal=True, width=width) as shown:
        clock.tick(500)
        shown.update({"return_mean": 21.5})
        screen.wait_for(r" 50%(.|\n)*return")
        clock.tick(1000)
    out = screen.getvalue()
    assert ESCAPE in out
    assert " 50%" in out
    assert "cartpole: done, 1,000 steps" in " ".join(out.rsplit(ESCAPE)[-1].split())
    assert out.count("done") == 1


def test_a_terminal_is_known_by_itself():
    ours, theirs = os.openpty()
    with open(theirs, "w") as file:
        shown = Progress(Clock(), 10, name="cartpole", file=file)
        assert os.read(ours, 1).decode() == ESCAPE
        shown.close()
        os.read(ours, 10_000)
    os.close(ours)


def test_the_cursor_is_left_visible():
    screen = Screen()
    with Progress(Clock(), 10, file=screen, terminal=True, width=80):
        out = screen.wait_for("elapsed")
    assert out.rfind("\x1b[?25h") > out.rfind("\x1b[?25l")


@pytest.mark.parametrize("variable", ["NO_COLOR", "FORCE_COLOR"])
def test_a_file_gets_no_escape_codes(monkeypatch, variable):
    monkeypatch.setenv(variable, "1")
    monkeypatch.setattr(progress, "FIRST_LINE_S", 0.0)
    screen, clock = Screen(), Clock()
    with Progress(clock, 1000, name="cartpole", every_s=0.0, file=screen, width=40) as shown:
        clock.tick(250)
        shown.update({"loss": 0.5})
        shown.note("saved step 250")
        out = screen.wait_for("cartpole 25%, step 250/1000.*, loss 0.5")
    assert ESCAPE not in out
    lines = screen.getvalue().splitlines()
    assert "saved step 250" in lines
    assert lines[-1].startswith("cartpole: done, 250 of 1,000 steps")
    # Nothing is wrapped: each line is a frame, a note or the summary.
    assert all(line.startswith(("cartpole", "saved")) for line in lines)


def test_a_plain_line_comes_no_more_often_than_asked(monkeypatch):
    monkeypatch.setattr(progress, "FIRST_LINE_S", 0.0)
    monkeypatch.setattr(progress, "REFRESH_S", 0.001)
    screen = Screen()
    with Progress(Clock(), 10, every_s=1000.0, file=screen, terminal=False):
        screen.wait_for("ETA")
        time.sleep(0.1)
    assert len(screen.getvalue().splitlines()) == 2


def test_no_color_leaves_a_terminal_without_colours(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Screen()
    with Progress(Clock(), 10, name="cartpole", file=screen, terminal=True, width=80):
        screen.wait_for("elapsed")
    colours = {int(c) for code in re.findall(r"\x1b\[([\d;]+)m", screen.getvalue())
               for c in code.split(";")}  # fmt: skip
    assert not [c for c in colours if 30 <= c <= 49 or 90 <= c <= 107]


def test_a_dumb_terminal_gets_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    screen = Screen()
    with Progress(Clock(), 10, name="cartpole", file=screen, terminal=True):
        pass
    assert ESCAPE not in screen.getvalue()


def test_notes_stand_above_the_display():
    screen = Screen()
    with Progress(Clock(), 10, name="cartpole", file=screen, terminal=True, width=80) as shown:
        shown.note("saved step 5 [not markup]")
        screen.wait_for(r"saved step 5 \[not markup\]")


def test_notes_left_at_the_end_are_still_said():
    screen = Screen()
    with Progress(Clock(), 10, file=screen, terminal=False) as shown:
        shown.note("one")
        shown.note("two")
    assert screen.getvalue().splitlines()[:2] == ["one", "two"]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_broken_pipe_does_not_reach_the_trainer(monkeypatch, terminal):
    monkeypatch.setattr(progress, "FIRST_LINE_S", 0.0)
    screen, clock = Screen(broken=True), Clock()
    with Progress(clock, 10, every_s=0.0, file=screen, terminal=terminal) as shown:
        shown.note("nobody reads this")
        clock.tick(5)
        shown.update({"loss": 1.0})
        shown._thread.join(20)
        assert not shown._thread.is_alive()  # it has given up
    assert sys.stdout is not None
    assert "rich" not in type(sys.stdout).__module__


@pytest.mark.parametrize("terminal", [True, False, None])
def test_a_closed_file_does_not_reach_the_trainer(terminal):
    screen = Screen()
    screen.close()
    with Progress(Clock(), 10, file=screen, terminal=terminal) as shown:
        shown.note("nobody reads this")
        shown.update({"loss": 1.0})


def test_a_process_without_stderr_trains_on(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with Progress(Clock(), 10) as shown:
        shown.note("nobody reads this")
        shown.update({"loss": 1.0})


def test_a_terminal_that_takes_nothing_does_not_hold_up_the_end(monkeypatch):
    monkeypatch.setattr(progress, "LAST_LINE_S", 0.05)
    release = threading.Event()

    class Stopped(Screen):
        def write(self, text):
            release.wait(60)
            return len(text)

    shown = Progress(Clock(), 10, file=Stopped(), terminal=True, width=80)
    for _ in range(1000):
        shown.note("x")
        shown.update({"loss": 1.0})
    began = time.monotonic()
    shown.close()
    assert time.monotonic() - began < 20
    assert shown._thread.is_alive()
    release.set()
    shown._thread.join(20)


def test_a_pipe_closed_by_its_reader_leaves_the_exit_code_alone():
    code = """
import time
from loopless.runs.progress import display as progress
from loopless.runs.progress.clock import Clock
progress.FIRST_LINE_S = progress.REFRESH_S = 0.001
with progress.Progress(Clock(), 10, every_s=0.001) as shown:
    shown._thread.join(20)  # ends when the pipe is found broken
print("trained")
"""
    read, write = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", code], stderr=write, stdout=subprocess.PIPE, text=True
    )
    os.close(write)
    os.close(read)
    out, _ = child.communicate(timeout=60)
    assert (child.returncode, out) == (0, "trained\n")


def test_an_error_in_the_trainer_passes_through_and_is_named():
    screen = Screen()
    with pytest.raises(ZeroDivisionError), Progress(Clock(), 10, file=screen, terminal=False):
        raise ZeroDivisionError
    assert "ZeroDivisionError, 0 of 10 steps" in screen.getvalue()


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (2.0, 2.0),
        (3, 3.0),
        ([1.0, 3.0], 2.0),
        ([1.0, None, float("nan")], 1.0),
        (np.float32(2.5), 2.5),
        (np.array([1.0, 2.0]), 1.5),
        (np.array(4), 4.0),
        (None, math.nan),
        ([], math.nan),
        (float("inf"), math.nan),
    ],
    ids=repr,
)
def test_a_value_is_shown_as_the_mean_of_what_is_finite(given, shown):
    progress = Progress(Clock(), 10, file=Screen(), terminal=False)
    progress.update({"loss": given, "unknown": 1.0})
    assert progress.view().values["loss"] == pytest.approx(shown, nan_ok=True)
    progress.close()


def test_the_last_value_is_shown():
    shown = Progress(Clock(), 10, file=Screen(), terminal=False)
    for value in (1000.0, 1.0, 3.0, None, math.nan):
        shown.update({"loss": value})
    assert shown.view().values["loss"] == 3.0
    shown.close()


def test_the_time_left_follows_from_the_rate():
    ns = [0]
    clock = Clock(now=lambda: ns[0])
    shown = Progress(clock, 1000, file=Screen(), terminal=False)
    assert math.isnan(shown.view().left_s)
    for step in (100, 200, 300):
        ns[0] += 10**9
        clock.tick(step)
    assert shown.view().left_s == pytest.approx(7.0)
    clock.tick(1000)
    assert shown.view().left_s == 0.0
    shown.close()


def test_memory_is_that_of_this_process():
    before = resident_bytes()
    assert before > 10_000_000
    # From the system itself: an array may lie in what the allocator still holds of older ones.
    with mmap.mmap(-1, size := 2**28) as block:
        block[:: mmap.PAGESIZE] = b"1" * (size // mmap.PAGESIZE)
        assert 0.8 * size < resident_bytes() - before < 1.5 * size
