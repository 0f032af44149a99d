"""Parts add up to the wall time, and a rate forgets what is older than its window."""

import math
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from loopless.runs.progress import quantities
from loopless.runs.progress.clock import LONGEST, OTHER, SECOND, Clock


class Time:
    """A clock's source of time that stands still until it is told to move."""

    def __init__(self):
        self.ns = 0

    def __call__(self) -> int:
        return self.ns

    def pass_s(self, seconds: float) -> None:
        self.ns += round(seconds * SECOND)


@pytest.fixture
def time():
    return Time()


@given(pieces=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 1000)), min_size=1))
def test_switching_gives_each_part_its_own_time(pieces):
    time = Time()
    clock, spent, calls = Clock(now=time), dict.fromkeys("abc", 0), dict.fromkeys("abc", 0)
    for part, ns in pieces:
        clock.switch(part)
        time.ns += ns
        spent[part] += ns
        calls[part] += 1
    clock.tick(1)
    total = sum(spent.values())
    for part in {part for part, _ in pieces}:
        assert clock.total().shares[part] == (spent[part] / total if total else 0.0)
        assert clock(part).calls == calls[part]


def test_shares_add_up_to_one(time):
    clock = Clock(now=time)
    time.pass_s(0.5)
    with clock("env"):
        time.pass_s(1.0)
    clock.switch("learn")
    time.pass_s(2.5)
    clock.tick(1)
    assert clock.total().shares == {OTHER: 0.125, "env": 0.25, "learn": 0.625}


def test_an_inner_part_is_taken_out_of_the_outer_one(time):
    clock = Clock(now=time)
    with clock("env"):
        time.pass_s(1)
        with clock("log"):
            time.pass_s(2)
        time.pass_s(1)
    time.pass_s(4)
    clock.tick(1)
    assert clock.total().shares == {OTHER: 0.5, "env": 0.25, "log": 0.25}
    assert (clock("env").calls, clock("log").calls) == (1, 1)


def test_a_part_inside_itself_is_counted_once(time):
    clock = Clock(now=time)
    with clock("env"):
        time.pass_s(1)
        with clock("env"):
            time.pass_s(1)
    clock.tick(1)
    assert clock.total().shares["env"] == 1.0


def test_a_block_left_by_an_error_ends_its_part(time):
    clock = Clock(now=time)
    with pytest.raises(KeyError), clock("env"):
        raise KeyError
    time.pass_s(1)
    clock.tick(1)
    assert clock.total().shares == {OTHER: 1.0, "env": 0.0}


def test_the_rate_forgets_a_slow_beginning(time):
    clock = Clock(window_s=5.0, now=time)
    time.pass_s(60)  # compilation
    clock.tick(100)
    for chunk in range(1, 101):
        time.pass_s(0.1)
        clock.tick(100 + 1000 * chunk)
    assert clock.window().rate == pytest.approx(10_000, rel=1e-9)
    assert clock.total().rate == pytest.approx(100_100 / 70)


def test_the_shares_of_a_window_are_of_that_window(time):
    clock = Clock(window_s=1.0, now=time)
    with clock("compile"):
        time.pass_s(60)
    for step in range(1, 40):
        with clock("env"):
            time.pass_s(0.075)
        with clock("learn"):
            time.pass_s(0.025)
        clock.tick(step)
    shares = clock.window().shares
    assert shares["compile"] == 0.0
    assert shares["env"] == pytest.approx(0.75)
    assert clock.total().shares["compile"] > 0.9


def test_chunks_longer_than_the_window_still_give_a_rate(time):
    clock = Clock(window_s=5.0, now=time)
    for chunk in range(1, 5):
        time.pass_s(60)
        clock.tick(600 * chunk)
        assert clock.window().rate == pytest.approx(10)
        assert clock.window().seconds == 60


def test_a_resumed_run_does_not_count_the_steps_before(time):
    clock = Clock(step=1_000_000, now=time)
    time.pass_s(2)
    clock.tick(1_000_500)
    assert clock.window().rate == clock.total().rate == 250


def test_there_is_no_rate_before_time_has_passed(time):
    clock = Clock(now=time)
    assert math.isnan(clock.window().rate)
    clock.tick(0)
    assert math.isnan(clock.window().rate)


def test_memory_does_not_grow_with_the_run(time):
    clock = Clock(window_s=5.0, now=time)
    for step in range(10_000):
        time.pass_s(0.01)
        clock.tick(step)
    assert len(clock._marks) <= 20 * LONGEST + 2


def test_a_longer_window_looks_further_back(time):
    clock = Clock(window_s=1.0, now=time)
    for step in range(1, 101):
        time.pass_s(0.1 if step <= 50 else 0.05)
        clock.tick(step)
    assert clock.window().rate == pytest.approx(20)
    assert clock.window(5.0).rate == pytest.approx(75 / 5)


def test_another_thread_may_read_while_the_clock_runs():
    clock, failures, done = Clock(window_s=0.001), [], threading.Event()

    def read():
        try:
            while not done.is_set():
                split = clock.window()
                assert all(share >= 0 for share in split.shares.values())
        except BaseException as error:
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for step in range(20_000):
        clock.switch(f"part {step % 50}")
        clock.tick(step)
    done.set()
    reader.join()
    assert not failures


def test_the_profile_lists_calls_total_and_mean(time):
    clock = Clock(now=time)
    for _ in range(4):
        with clock("learn"):
            time.pass_s(0.5)
    with clock("env"):
        time.pass_s(0.25)
    console = Console(width=60, record=True, quiet=True)
    with console.capture() as captured:
        console.quiet = False
        console.print(clock.table())
    rows = [line.split() for line in captured.get().splitlines()]
    assert rows[0] == ["part", "calls", "total", "mean", "share"]
    assert rows[1] == ["learn", "4", "2.00", "s", "500", "ms", "88.9%"]
    assert rows[2] == ["env", "1", "250", "ms", "250", "ms", "11.1%"]
    assert rows[3] == ["other", "–", "0.00", "µs", "–", "0.0%"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (7, "7"), (9.5, "9.5"), (950, "950"), (999.6, "1k"), (18_432, "18.4k"),
        (210_000, "210k"), (999_600, "1M"), (1_250_000, "1.25M"), (2e9, "2G"), (-1500, "-1.5k"),
        (3e15, "3000T"), (float("nan"), "–"),
    ],
)  # fmt: skip
def test_counts(value, text):
    assert quantities.count(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (487.3123, "487.3"), (21.456, "21.46"), (0.01234, "0.0123"), (0.0, "0.0000"),
        (3.21e-5, "3.2e-05"), (-130.05, "-130.1"), (54321.0, "54321"), (float("inf"), "–"),
    ],
)  # fmt: skip
def test_values(value, text):
    assert quantities.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0:00"), (7.4, "0:07"), (59.6, "1:00"), (750, "12:30"), (10_921, "3:02:01"),
        (187_200, "2 d 04:00"), (-3, "0:00"), (float("inf"), "–"), (float("nan"), "–"),
    ],
)  # fmt: skip
def test_clock_times(value, text):
    assert quantities.clock_time(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(8.12e8, "812 MB"), (1.25e9, "1.25 GB"), (3.1e10, "31 GB")]
)
def test_sizes(value, text):
    assert quantities.size(value) == text


def test_laps_follow_each_other_without_gap(time):
    clock = Clock(now=time)
    for steps, seconds in ((10, 1.0), (30, 2.0)):
        with clock("learn"):
            time.pass_s(seconds)
        clock.tick(clock.step + steps)
        lap = clock.lap()
        assert (lap.steps, lap.seconds, lap.shares["learn"]) == (steps, seconds, 1.0)


def test_every_part_finds_its_place_in_the_log(time):
    clock = Clock(now=time)
    for part, seconds in (("env", 1), ("compile", 2), ("checkpoint", 3), ("learn", 4)):
        with clock(part):
            time.pass_s(seconds)
    clock.tick(100)
    assert clock.lap().metrics() == {
        "steps_per_second": 10.0,
        "time_env": 0.1,
        "time_learn": 0.4,
        "time_other": 0.5,
    }
