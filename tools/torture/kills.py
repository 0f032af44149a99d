"""Kills of real processes: a run that was killed and resumed ends as if it had not been."""

import atexit
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from loopless.runs.checkpoint import Checkpoints
from torture.failure import Failure

COMMON = ["--log-every", "100", "--checkpoint-every", "200", "--run", "run"]
AGENT = ["--eval-every", "0", "--hidden", "8", "--steps", "4000", "--plot-every", "400", *COMMON]
TINY_ALLO = ["--hidden", "8", "--batch-size", "64", "--envs", "10", "--env-steps", "200"]


class Run(NamedTuple):
    """The words of a run, how often it is drawn, and what is asked of it."""

    words: list[str]
    share: float
    exact: bool = True  # whether the end must be the same byte for byte
    draw: bool = False  # whether a process draws beside it, which makes it ten times as slow


RUNS = {
    "seeds": Run(["train", "dqn", "--seeds", "2", *AGENT], 0.2),
    "prioritized": Run(["train", "dqn", "--prioritized", "exact", *AGENT], 0.2),
    "recurrent": Run(["train", "ppo", "--core", "gru", *AGENT], 0.2),
    "overlap": Run(["train", "dqn", "--overlap", *AGENT], 0.2, exact=False),
    "allo": Run(["train", "allo", "--steps", "1200", *TINY_ALLO, *COMMON], 0.1),
    "tensorboard": Run(["train", "dqn", "--tensorboard", *AGENT], 0.05, draw=True),
    "allo with films": Run(
        ["train", "allo", "--steps", "1200", "--plot-every", "400", *TINY_ALLO, *COMMON],
        0.05,
        draw=True,
    ),
}
PATIENCE_S = 900.0  # for a run of seconds: a busy machine is no mistake of ours
MOST_KILLS = 8
OPERATIONS = 400  # of the disk in one run, about


def fuzz(seed: int) -> dict[str, int]:
    """Kill one run several times, resume it to its end, and compare it with one left alone."""
    rng = np.random.default_rng(seed)
    name = str(rng.choice(list(RUNS), p=[run.share for run in RUNS.values()]))
    words, _, is_exact, draw = RUNS[name]
    expected, seconds = uninterrupted(name)
    counts = {"kills": 0, "kills at a moment": 0, "kills at an operation": 0, f"kills, {name}": 0}
    with tempfile.TemporaryDirectory() as folder:
        run, start = Path(folder) / "run", [*words, "--runs", folder]
        for _ in range(int(rng.integers(1, MOST_KILLS + 1))):
            again = ["resume", str(run)] if run.exists() else start
            if rng.integers(2):
                how, patience, operation = "a moment", float(rng.random() * seconds), None
            else:
                operation = int(math.exp(rng.random() * math.log(OPERATIONS)))
                how, patience = "an operation", PATIENCE_S
            what = f"{name}, killed {counts['kills']} times"
            if not server().run(what, again, patience, operation, draw=draw):
                break
            for counted in ("kills", f"kills at {how}", f"kills, {name}"):
                counts[counted] += 1
        again = ["resume", str(run)] if run.exists() else start
        what = f"{name}, killed {counts['kills']} times"
        if server().run(what, again, PATIENCE_S, draw=draw):
            raise Failure(f"{what}: not done after {PATIENCE_S:.0f} s")
        loaded = Checkpoints(run).load()
        for array in expected if is_exact else ():
            if not np.array_equal(expected[array], loaded.arrays[array], equal_nan=True):
                raise Failure(f"{what}: {array} differs")
    return counts


@cache
def uninterrupted(name: str) -> tuple[dict[str, np.ndarray], float]:
    """Return the last arrays of a run that nobody disturbs, and the seconds that it takes."""
    arrays, seconds = {}, 0.0
    for _ in range(2):  # the first one compiles the programs that all others read from the cache
        with tempfile.TemporaryDirectory() as folder:
            start = time.monotonic()
            words = [*RUNS[name].words, "--runs", folder]
            if server().run(f"{name}, not killed", words, PATIENCE_S, draw=RUNS[name].draw):
                raise Failure(f"{name}: not done after {PATIENCE_S:.0f} s")
            arrays = dict(Checkpoints(Path(folder) / "run").load().arrays)
            seconds = time.monotonic() - start
    return arrays, seconds


class Server:
    """The program of `server.py`."""

    def __init__(self) -> None:
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # a fork must have one
        self._process = subprocess.Popen(
            [sys.executable, "-m", "torture.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | threads,
        )
        atexit.register(self.close)

    def run(
        self,
        what: str,
        words: list[str],
        seconds: float,
        operation: int | None = None,
        *,
        draw: bool = False,
    ) -> bool:
        """Run a command; return whether it was killed. If it ends, its exit code must be 0."""
        assert self._process.stdin
        assert self._process.stdout
        request = {"words": words, "seconds": seconds, "operation": operation, "draw": draw}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        killed, code, last = json.loads(self._process.stdout.readline())
        if not killed and code:
            raise Failure(f"{what}: exit code {code}: {last}")
        return killed

    def close(self) -> None:
        """End the server, which removes its cache."""
        self._process.communicate()


@cache
def server() -> Server:
    """Return the server of this process."""
    return Server()
