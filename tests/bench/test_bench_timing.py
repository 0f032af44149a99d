"""Interleaving and summaries, on a clock that only calls move."""

import pytest

from loopless.bench.timing import Budget, Race


class FakeClock:
    """Stands still but for the calls it makes; `log` is the order in which they ran."""

    def __init__(self):
        self.now = 0.0
        self.log = []

    def __call__(self):
        return self.now

    def call(self, name, *durations):
        remaining = iter(durations)
        last = [durations[-1]]

        def run():
            self.log.append(name)
            last[0] = next(remaining, last[0])
            self.now += last[0]

        return run


def budget(**changes):
    return Budget(**{"sample_s": 1.0, "total_s": 6.0, "most_samples": 3, "warm_s": 0.0} | changes)


def test_contenders_take_turns_and_each_round_starts_with_the_next():
    clock = FakeClock()
    race = Race({name: clock.call(name, 1.0) for name in "abc"}, budget(), clock)
    race.run()
    calibration, rounds = clock.log[:3], clock.log[3:]
    assert calibration == ["a", "b", "c"]
    assert rounds == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]


def test_calibration_is_no_sample_and_the_summary_is_median_and_quartiles():
    clock = FakeClock()
    # Durations as binary fractions: the fake clock then adds them up exactly.
    race = Race({"a": clock.call("a", 1.0, 2.0, 4.0, 3.0, 6.0, 5.0)}, budget(most_samples=5), clock)
    race.run()
    timing = race.timings()["a"]
    assert (timing.lower_quartile, timing.median, timing.upper_quartile) == (3.0, 4.0, 5.0)
    assert timing.samples == 5


def test_a_short_call_is_repeated_until_a_sample_is_long_enough():
    clock = FakeClock()
    race = Race({"a": clock.call("a", 0.125)}, budget(), clock)
    race.run()
    timing = race.timings()["a"]
    assert timing.calls_per_sample * 0.125 >= 1.0
    assert timing.median == 0.125


def test_a_call_longer_than_the_budget_runs_once():
    clock = FakeClock()
    race = Race({"slow": clock.call("slow", 7.0), "a": clock.call("a", 1.0)}, budget(), clock)
    race.run()
    assert clock.log.count("slow") == 1
    assert race.timings()["slow"].median == 7.0
    assert race.timings()["a"].samples == 3


def test_a_slow_call_has_fewer_samples_spread_over_the_rounds():
    clock = FakeClock()
    calls = {"a": clock.call("a", 1.0), "slow": clock.call("slow", 3.0)}
    race = Race(calls, budget(most_samples=6), clock)
    race.run()
    assert race.timings()["slow"].samples == 2
    assert race.timings()["a"].samples == 6
    assert "".join(name[0] for name in clock.log[2:]) == "aaasaasa"


def test_a_short_call_runs_once_untimed_before_each_sample():
    clock = FakeClock()
    calls = {"a": clock.call("a", 1.0), "b": clock.call("b", 5.0)}
    race = Race(calls, budget(warm_s=2.0, most_samples=1), clock)
    race.run()
    assert clock.log == ["a", "a", "a", "b", "a", "a", "b"]
    assert race.timings()["a"].median == 1.0


def test_something_else_runs_untimed_before_every_sample():
    clock = FakeClock()
    calls = {"a": clock.call("a", 1.0), "b": clock.call("b", 2.0)}
    race = Race(calls, budget(most_samples=2), clock, between=clock.call("between", 100.0))
    race.run()
    assert clock.log[2:] == ["between", "a", "between", "b", "between", "b", "between", "a"]
    assert {name: timing.median for name, timing in race.timings().items()} == {"a": 1.0, "b": 2.0}


def test_an_interrupted_race_keeps_its_samples():
    clock = FakeClock()
    count = 0

    def stops():
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        clock.now += 1.0

    race = Race({"a": clock.call("a", 1.0), "b": stops}, budget(), clock)
    with pytest.raises(KeyboardInterrupt):
        race.run()
    assert race.timings()["a"].samples == 1
    assert race.timings()["b"].samples == 1


def test_nothing_to_time_is_no_error():
    race = Race({})
    race.run()
    assert race.timings() == {}
