"""The campaigns, and the loop of a worker that gives each its share of the time."""

import time
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple
from zlib import crc32

from torture.failure import Failure

TURN_S = 5.0  # how long a campaign goes on before another has its turn


class Campaign(NamedTuple):
    """A function of a module of this package, and its share of the time."""

    module: str
    function: str
    share: float

    def load(self) -> Callable[[int], dict[str, int]]:
        """Return the function that runs the case of a seed."""
        return getattr(import_module(f"torture.{self.module}"), self.function)


CAMPAIGNS = {
    "calls": Campaign("calls", "fuzz", 0.40),
    "kills": Campaign("kills", "fuzz", 0.42),
    "power": Campaign("power", "fuzz", 0.06),
    "envs": Campaign("envs", "fuzz", 0.03),
    "buffers": Campaign("files", "fuzz_buffer", 0.03),
    "runs": Campaign("files", "fuzz_run", 0.06),
}


def first_case(name: str, seed: int) -> int:
    """Return the seed of a campaign's first case; the others follow it."""
    return crc32(f"{seed} {name}".encode()) << 24


def work(seed: int, worker: int, workers: int, end: float, news: Any) -> None:
    """Run every campaign's cases number `worker`, `worker + workers`, … until time is up.

    Counts are put into `news` after each turn; at the first case that fails, a sentence.
    """
    campaigns = {name: campaign.load() for name, campaign in CAMPAIGNS.items()}
    case = {name: first_case(name, seed) + worker for name in CAMPAIGNS}
    used = dict.fromkeys(CAMPAIGNS, 0.0)
    while time.time() < end:
        name = min(used, key=lambda name: used[name] / CAMPAIGNS[name].share)
        counts, start = Counter(), time.monotonic()
        while time.monotonic() - start < TURN_S and time.time() < end:
            try:
                counts.update(campaigns[name](case[name]))
            except Failure as failure:
                news.put(f"--campaign {name} --case {case[name]}: {failure}")
                return
            case[name] += workers
        used[name] += time.monotonic() - start
        news.put(counts)
