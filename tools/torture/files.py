"""Hostile files: damaged buffers and run folders are refused in words, or read as they were."""

import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from unittest import mock

import numpy as np

from loopless import cli
from loopless.replay import EpisodicReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer
from torture.failure import Failure

FIELDS = {"obs": ((3,), np.float32)}
CODES = {0, 1, 2, 70, 74}  # what a command on a damaged run may end with; 1: `report`, in part
COMMANDS = ("plot", "export", "report", "resume")
TINY = (
    "train", "dqn", "--steps", "600", "--log-every", "100", "--checkpoint-every", "200",
    "--eval-every", "0", "--plot-every", "0", "--hidden", "8", "--run", "run",
)  # fmt: skip


def fuzz_buffer(seed: int) -> dict[str, int]:
    """Damage the file of a buffer; loading must refuse it or give the same buffer."""
    rng = np.random.default_rng(seed)
    kind = (ReplayBuffer, PrioritizedReplayBuffer, EpisodicReplayBuffer)[rng.integers(3)]
    buffer = kind(32, FIELDS)
    obs = rng.random((9, 3)).astype(np.float32)
    if isinstance(buffer, EpisodicReplayBuffer):
        buffer.add_episode(obs=obs, terminals=np.zeros(9, bool))
    else:
        buffer.add(obs=obs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "buffer"
        buffer.save(path)
        how = _damage(path, rng)
        try:
            loaded = kind.load(path)
        except (ValueError, OSError):
            return {"damaged buffers": 1}
        except Exception as error:
            raise Failure(f"{kind.__name__}, {how}: {type(error).__name__}: {error}") from error
        if not np.array_equal(loaded.state()["data/obs"], buffer.state()["data/obs"]):
            raise Failure(f"{kind.__name__}, {how}: other data were read")
    return {"damaged buffers": 1}


def fuzz_run(seed: int) -> dict[str, int]:
    """Damage one file of a run, and use the run: a documented exit code, no exception."""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        shutil.copytree(trained_run(), run, symlinks=True)
        places = sorted(place for place in run.rglob("*") if place.is_file())
        place = places[rng.integers(len(places))]
        how = f"{place.relative_to(run)} {_damage(place, rng)}"
        name = COMMANDS[rng.integers(len(COMMANDS))]
        words = [name, str(run)] + (["--steps", "700"] if name == "resume" else [])
        words += ["--out", str(Path(folder) / "page.html")] if name == "report" else []
        code = _command(words, how)
        if code not in CODES:
            raise Failure(f"{name}, {how}: exit code {code}")
    return {"damaged runs": 1, f"damaged runs, exit {code}": 1}


@cache
def trained_run() -> Path:
    """Return the folder of a small run, trained once."""
    folder = tempfile.mkdtemp()
    if _command([*TINY, "--runs", folder], "nothing") != 0:
        raise Failure("a small run cannot be trained")
    return Path(folder) / "run"


def _command(words: list[str], how: str) -> int:
    with (
        mock.patch.dict(os.environ, {"LOOPLESS_TRACEBACK": "1"}),
        open(os.devnull, "w") as nowhere,
        mock.patch("sys.stdout", nowhere),
        mock.patch("sys.stderr", nowhere),
    ):
        try:
            return cli.main(words)
        except SystemExit as end:
            return int(end.code or 0)
        except Exception as error:
            raise Failure(f"{words[0]}, {how}: {type(error).__name__}: {error}") from error


def _damage(path: Path, rng: np.random.Generator) -> str:
    """Damage a file in one of several ways; return it in words."""
    data = bytearray(path.read_bytes())
    kind = rng.integers(6)
    if kind == 0 and data:
        for _ in range(1 + rng.integers(4)):
            data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        path.write_bytes(data)
        return "has other bits"
    if kind == 1:
        path.write_bytes(data[: rng.integers(len(data) + 1)])
        return "is cut off"
    if kind == 2:
        start = rng.integers(len(data) + 1)
        path.write_bytes(data[:start] + rng.bytes(int(rng.integers(1, 60))) + data[start:])
        return "has more bytes"
    if kind == 3:
        path.write_bytes(rng.bytes(int(rng.integers(0, 200))))
        return "is noise"
    path.unlink()
    if kind == 4:
        path.mkdir()
        return "is a folder"
    os.mkfifo(path)
    return "is a pipe"
