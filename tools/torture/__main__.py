"""`make torture MINUTES=60 SEED=1`: campaigns of faults side by side until time is up.

Each case has a seed of its own, which follows from SEED, the campaign and a count. The first case
that fails is printed with its seed, and `--campaign NAME --case SEED` runs it alone. There is one
process for each core; the workers share the cases of a campaign, and each gives every campaign its
share of the time.
"""

import argparse
import multiprocessing
import os
import queue
import signal
import sys
import time
from collections import Counter
from typing import Any

from loopless.process import cores
from torture.campaigns import CAMPAIGNS, work
from torture.failure import Failure

NEWS_S = 300.0  # how often counts are printed
LAST_CASE_S = 1200.0  # how long a case under way may take when time is up


def run(minutes: float, seed: int, workers: int, counts: Counter) -> None:
    """Run all campaigns until time is up; raise Failure at the first case that fails."""
    context = multiprocessing.get_context("spawn")
    news, start = context.Queue(), time.time()
    end = start + 60 * minutes
    processes = [
        context.Process(target=work, args=(seed, worker, workers, end, news))
        for worker in range(workers)
    ]
    for process in processes:
        process.start()
    try:
        printed = start
        while any(process.is_alive() for process in processes) or not news.empty():
            _receive(news, counts)
            if time.time() - printed > NEWS_S:
                printed = time.time()
                print(f"after {(printed - start) / 60:.0f} minutes: {_line(counts)}", flush=True)
            if time.time() > end + LAST_CASE_S:
                raise Failure(f"a case still runs {LAST_CASE_S:.0f} s after the end")
        for process in processes:
            process.join()
            if process.exitcode:
                raise Failure(f"a worker ended with code {process.exitcode}")
    finally:
        for process in processes:
            process.terminate()


def _receive(news: Any, counts: Counter) -> None:
    try:
        received = news.get(timeout=1.0)
    except queue.Empty:
        return
    if isinstance(received, str):
        raise Failure(received)
    counts.update(received)


def _line(counts: Counter) -> str:
    return ", ".join(f"{counts[name]:,} {name}" for name in sorted(counts) if "," not in name)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=cores())
    parser.add_argument("--campaign", choices=CAMPAIGNS)
    parser.add_argument("--case", type=int)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the counts are printed then too
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # one core for each worker
    counts, start = Counter(), time.monotonic()
    try:
        if options.case is not None:
            counts.update(CAMPAIGNS[options.campaign or "calls"].load()(options.case))
        else:
            run(options.minutes, options.seed, options.workers, counts)
    except Failure as failure:
        print(f"FAILED {failure}")
        return 1
    except KeyboardInterrupt:
        print("stopped before the end; nothing had failed:")
        return 130
    finally:
        for name, count in sorted(counts.items()):
            print(f"{count:>12,}  {name}")
        print(f"seed {options.seed}, {(time.monotonic() - start) / 60:.1f} minutes", flush=True)
    print("clean")
    return 0


if __name__ == "__main__":
    sys.exit(main())
