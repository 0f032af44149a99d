"""`make torture MINUTES=60 SEED=1`: campaigns of faults, one after the other, until time is up.

Each case has a seed of its own, which follows from SEED, the campaign and a count. The first case
that fails is printed with its seed, and `--campaign NAME --case SEED` runs it alone.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from zlib import crc32

from torture import calls, envs, files, kills, power
from torture.failure import Failure

# name → the campaign, and how many cases it runs in its turn
CAMPAIGNS: dict[str, tuple[Callable[[int], dict[str, int]], int]] = {
    "calls": (calls.fuzz, 2_000),
    "power": (power.fuzz, 12),
    "envs": (envs.fuzz, 200),
    "buffers": (files.fuzz_buffer, 40),
    "runs": (files.fuzz_run, 4),
    "kills": (kills.fuzz, 1),
}


def seeds(name: str, seed: int) -> Iterator[int]:
    """Yield the seeds of a campaign's cases."""
    first = crc32(f"{seed} {name}".encode()) << 24
    yield from range(first, first + (1 << 24))


def run(minutes: float, seed: int, counts: Counter) -> None:
    """Run all campaigns in turn until time is up; raise Failure at the first case that fails."""
    end = time.monotonic() + 60 * minutes
    cases = {name: seeds(name, seed) for name in CAMPAIGNS}
    while time.monotonic() < end:
        for name, (fuzz, turn) in CAMPAIGNS.items():
            for _ in range(turn):
                case = next(cases[name])
                try:
                    counts.update(fuzz(case))
                except Failure as failure:
                    raise Failure(f"--campaign {name} --case {case}: {failure}") from failure
                if time.monotonic() > end:
                    return


def main() -> int:
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--campaign", choices=CAMPAIGNS)
    parser.add_argument("--case", type=int)
    options = parser.parse_args()
    counts: Counter = Counter()
    try:
        if options.case is not None:
            counts.update(CAMPAIGNS[options.campaign or "calls"][0](options.case))
        else:
            run(options.minutes, options.seed, counts)
    except Failure as failure:
        print(f"FAILED {failure}")
        return 1
    finally:
        for name, count in sorted(counts.items()):
            print(f"{count:>12,}  {name}")
    print(f"clean: seed {options.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
