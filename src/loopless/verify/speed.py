"""Time a user's function beside ours, on the same large case in the same library."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from loopless.bench.timing import Budget, Race
from loopless.verify import arrays
from loopless.verify.calling import Caller, TimeUp, limited, muted
from loopless.verify.samplers.laws import Priorities, Ring, Stream
from loopless.verify.verdicts import Timing

BUDGET = Budget(total_s=0.4, most_samples=50)
SAMPLER_LIMIT_S = 20.0
STEPS, LENGTH, BATCH = 100_000, 100, 256  # of the buffer that samplers are timed on

# The array whose shape names a case.
_MAIN = ("rewards", "x", "student_logits", "features", "q")


def measure(caller: Caller, settle: Callable[[dict], dict]) -> Timing | None:
    """Return the seconds of a call of each, or None if theirs fails or is too slow at this size."""
    contract = caller.contract
    case = settle(contract.speed(0))
    calls = [caller.arguments(part) for part in caller.parts(case)]
    library, dtype = caller.plan.library, caller.plan.dtype
    our_case = {name: arrays.to_library(library, x, dtype) for name, x in case.items()}

    def theirs() -> Any:
        return [arrays.wait(caller.invoke(dict(arguments))) for arguments in calls]

    def ours() -> Any:
        return [arrays.wait(x) for x in contract.ours(our_case).values()]

    shape = next((np.shape(case[name]) for name in _MAIN if name in case), ())
    return _race("×".join(map(str, shape)) or "one case", theirs, ours, caller.call_s)


def measure_sampler(claim: str, sample: Callable[[Any, int, int], Any]) -> Timing | None:
    """Time `sample(buffer, seed, batch)` on a large buffer beside the `sample` of our buffer."""
    buffer = _large_buffer(claim)
    return _race(
        f"{BATCH} of {STEPS:,}",
        lambda: arrays.wait(sample(buffer, 1, BATCH)),
        _our_sampler(claim),
        SAMPLER_LIMIT_S,
    )


def _race(
    case: str, theirs: Callable[[], Any], ours: Callable[[], Any], limit_s: float
) -> Timing | None:
    try:
        with limited(limit_s), muted():
            theirs()
            ours()
            race = Race({"theirs": theirs, "ours": ours}, BUDGET)
            race.run()
    except (TimeUp, Exception):  # the report already says what is wrong with it
        return None
    timings = race.timings()
    return Timing(case, timings["theirs"].median, timings["ours"].median)


class _ManyPriorities(Priorities):
    @cached_property
    def values(self) -> np.ndarray:
        return np.random.default_rng(0).uniform(0.1, 1.0, STEPS)


def _large_buffer(claim: str) -> Any:
    if claim == "uniform_sampler":
        return Ring(STEPS)
    if claim == "prioritized_sampler":
        return _ManyPriorities(0.6, 0.4)
    return Stream((LENGTH,) * (STEPS // LENGTH), 0.9)


def _our_sampler(claim: str) -> Callable[[], Any]:
    from loopless.replay import EpisodicReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer

    obs = np.arange(STEPS, dtype=np.float32)
    if claim == "geometric_sampler":
        episodic = EpisodicReplayBuffer.from_padded(obs.reshape(-1, LENGTH), convention="none")
        return lambda: episodic.sample(BATCH, discount=0.9)
    fields = {"obs": ((), np.float32)}
    if claim == "uniform_sampler":
        ring = ReplayBuffer(STEPS, fields)
        ring.add(obs=obs)
        return lambda: ring.sample(BATCH)
    prioritized = PrioritizedReplayBuffer(STEPS, fields)
    prioritized.add(obs=obs)
    return lambda: prioritized.sample(BATCH, beta=0.4)
