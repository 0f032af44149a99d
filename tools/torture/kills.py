"""Kills of real processes: a run that was killed and resumed ends as if it had not been."""

import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import numpy as np

from loopless.runs.checkpoint import Checkpoints
from torture.failure import Failure

COMMON = ["--log-every", "100", "--checkpoint-every", "200", "--plot-every", "400", "--run", "run"]
AGENT = [*["--eval-every", "0", "--hidden", "8", "--steps", "4000"], *COMMON]
RUNS = {  # words, and whether the end must be the same byte for byte
    "seeds": (["train", "dqn", "--seeds", "2", *AGENT], True),
    "prioritized": (["train", "dqn", "--prioritized", "exact", *AGENT], True),
    "tensorboard": (["train", "dqn", "--tensorboard", *AGENT], True),
    "recurrent": (["train", "ppo", "--core", "gru", *AGENT], True),
    "overlap": (["train", "dqn", "--overlap", *AGENT], False),
    "allo with films": (
        ["train", "allo", "--steps", "1200", "--hidden", "8", "--batch-size", "64",
         "--envs",
            "10",
            "--env-steps",
            "200", *COMMON],
        True,
    ),
}  # fmt: skip
PATIENCE_S = 300
MAIN = "import sys; from loopless.cli import main; sys.exit(main())"


def fuzz(seed: int) -> dict[str, int]:
    """Kill one run up to three times, resume it to its end, and compare it with one left alone."""
    rng = np.random.default_rng(seed)
    name = list(RUNS)[rng.integers(len(RUNS))]
    words, is_exact = RUNS[name]
    expected, seconds = uninterrupted(name)
    kills = 0
    with tempfile.TemporaryDirectory() as folder:
        process = _start([*words, "--runs", folder])
        for _ in range(int(rng.integers(1, 4))):
            try:
                process.wait(rng.random() * seconds)
                break
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                kills += 1
            run = Path(folder) / "run"
            again = ["resume", str(run)] if run.exists() else [*words, "--runs", folder]
            process = _start(again)
        if process.wait(PATIENCE_S) != 0:
            raise Failure(f"{name}, killed {kills} times: exit code {process.returncode}")
        loaded = Checkpoints(Path(folder) / "run").load()
        for array in expected if is_exact else ():
            if not np.array_equal(expected[array], loaded.arrays[array], equal_nan=True):
                raise Failure(f"{name}, killed {kills} times: {array} differs")
    return {"kills": kills, f"kills, {name}": kills}


@cache
def uninterrupted(name: str) -> tuple[dict[str, np.ndarray], float]:
    """Return the last arrays of a run that nobody disturbs, and the seconds that it takes."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        process = _start([*RUNS[name][0], "--runs", folder])
        if process.wait(PATIENCE_S) != 0:
            raise Failure(f"{name}: exit code {process.returncode} without a kill")
        return dict(Checkpoints(Path(folder) / "run").load().arrays), time.monotonic() - start


def _start(words: list[str]) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
