"""Time several calls against each other, interleaved, so that a noisy moment hits them all.

`contest.py` checks the calls before it times them; `loopless verify` uses `Race` directly.
"""

from __future__ import annotations

import gc
import math
import signal
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from types import FrameType
from typing import Any

Clock = Callable[[], float]
_interrupted = False  # whether Ctrl-C was pressed since `remember_interrupts`


@dataclass(frozen=True)
class Budget:
    """How long to measure one contender.

    A sample is one call, or as many calls as take `sample_s`. There are as many samples as fit into
    `total_s`, at least one and at most `most_samples`. Calls shorter than `warm_s` run once,
    untimed, before each sample, so that nobody is timed on what a neighbour left in the caches.
    """

    sample_s: float = 25e-6
    total_s: float = 1.0
    most_samples: int = 200
    warm_s: float = 2e-3


@dataclass(frozen=True)
class Timing:
    """Seconds per call."""

    median: float
    lower_quartile: float
    upper_quartile: float
    samples: int
    calls_per_sample: int


@dataclass
class _Lane:
    call: Callable[[], Any]
    calls_per_sample: int
    planned: int
    warm: bool
    seconds: list[float]


class Race:
    """Interleaved samples of several calls. Each call must have run once before, to be warm.

    `between` runs untimed before every sample, for example to empty a cache. `timings` can be read
    at any moment, also after `run` was interrupted.
    """

    def __init__(
        self,
        calls: Mapping[str, Callable[[], Any]],
        budget: Budget | None = None,
        clock: Clock = perf_counter,
        between: Callable[[], Any] = lambda: None,
    ) -> None:
        self._calls = dict(calls)
        self._budget = budget or Budget()
        self._clock = clock
        self._between = between
        self._lanes: dict[str, _Lane] = {}

    def run(self) -> None:
        """Take all samples; garbage is not collected meanwhile."""
        was_enabled = gc.isenabled()
        gc.collect()
        gc.disable()
        try:
            for name, call in self._calls.items():
                self._lanes[name] = self._plan(call)
            self._sample()
        finally:
            if was_enabled:
                gc.enable()

    def timings(self) -> dict[str, Timing]:
        """Summarize the samples so far, by name; a call without any is left out."""
        return {name: _summary(lane) for name, lane in self._lanes.items() if lane.seconds}

    def _plan(self, call: Callable[[], Any]) -> _Lane:
        budget = self._budget
        count, elapsed = 1, self._elapsed(call, 1)
        if elapsed < budget.warm_s:
            # A short call's first run may have found its caches cold.
            elapsed = min(elapsed, self._elapsed(call, 1), self._elapsed(call, 1))
        if elapsed >= budget.total_s:
            # It is too slow to run again: this call is its only sample.
            return _Lane(call, 1, 0, False, [elapsed])
        while elapsed < budget.sample_s:
            growth = 1.2 * budget.sample_s / max(elapsed, 1e-9)
            count = math.ceil(count * min(max(growth, 2.0), 100.0))
            elapsed = self._elapsed(call, count)
        planned = max(1, min(budget.most_samples, int(budget.total_s / elapsed)))
        return _Lane(call, count, planned, elapsed / count < budget.warm_s, [])

    def _sample(self) -> None:
        lanes = list(self._lanes.values())
        rounds = max((lane.planned for lane in lanes), default=0)
        for number in range(rounds):
            first = number % len(lanes)
            for lane in lanes[first:] + lanes[:first]:
                if not _has_turn(lane.planned, number, rounds):
                    continue
                if _interrupted:  # Ctrl-C was pressed, and a contender swallowed the exception
                    raise KeyboardInterrupt
                self._between()
                if lane.warm:
                    lane.call()
                elapsed = self._elapsed(lane.call, lane.calls_per_sample)
                lane.seconds.append(elapsed / lane.calls_per_sample)

    def _elapsed(self, call: Callable[[], Any], count: int) -> float:
        start = self._clock()
        for _ in range(count):
            call()
        return self._clock() - start


def _has_turn(planned: int, number: int, rounds: int) -> bool:
    """Return whether a lane samples in this round: its turns are spread evenly over the rounds."""
    return (number + 1) * planned // rounds > number * planned // rounds


def _summary(lane: _Lane) -> Timing:
    seconds = lane.seconds
    lower, upper = seconds[0], seconds[0]
    if len(seconds) > 1:
        lower, _, upper = statistics.quantiles(seconds, n=4, method="inclusive")
    return Timing(statistics.median(seconds), lower, upper, len(seconds), lane.calls_per_sample)


def remember_interrupts() -> None:
    """Remember Ctrl-C as well as raising it: a peer's callback may swallow the exception."""
    global _interrupted
    _interrupted = False
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # only in the main thread
        signal.signal(signal.SIGINT, _remember)


def _remember(number: int, frame: FrameType | None) -> None:
    global _interrupted
    _interrupted = True
    raise KeyboardInterrupt
