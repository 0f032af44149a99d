"""The suite `felt`: from the start of a process to a solved CartPole, as a user waits for it.

Everything counts: imports, compilation, evaluation, every process. Each contender is a whole
command or script (`sb3.py`, `compiled.py`) and plays ten greedy episodes every 5,000 steps; the
clock stops when they reach 475 on average. Ours starts three times for each seed: with an empty
cache of programs, again, and again with another learning rate. PPO has the settings that are our
defaults, DQN those that RL Baselines3 Zoo has tuned for Stable-Baselines3 on CartPole.

Every process has one core to itself, and libraries have one thread each: idle threads that look for
work would be counted, and SB3 and SBX are slower with two. On two cores two seeds run at a time,
and all contenders of a seed run one after the other on the same core.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from time import perf_counter, sleep
from typing import NamedTuple

from loopless.bench.result import Measurement, Result
from loopless.bench.suites import Options, Say
from loopless.bench.targets import at_most, attach, ratio, stated, values
from pages import Lines, markdown_table, section
from suites.processes import command_line, one_thread

TITLES = {
    "ppo": "PPO, from the start of the process to a greedy 475 on CartPole",
    "dqn": "DQN, from the start of the process to a greedy 475 on CartPole",
}
CASE = "CartPole-v1, median of the seeds"
SEEDS, ENOUGH, LIMIT_S = 5, 475.0, 300.0
LANES = 2  # at most so many seeds at a time
FIRST, SECOND, OTHER = "first start", "second start", "second start, another learning rate"
RATES = {"ppo": "0.0011", "dqn": "0.0024"}
FLAGS = {
    "ppo": "",
    "dqn": "--steps 100000 --hidden 256 256 --learning-rate 0.0023 --batch-size 64 --train-every "
    "256 --updates 128 --target-every 256 --buffer-size 100000 --learning-starts 1000 "
    "--explore-steps 8000 --explore-end 0.04 --loss huber --max-gradient-norm 10",
}
SB3 = "Stable-Baselines3"
PEERS = {  # name → module that it needs, script and its words
    SB3: ("stable_baselines3", "sb3.py", "stable_baselines3"),
    "SBX": ("sbx", "sb3.py", "sbx"),
    "rejax": ("rejax", "compiled.py"),
}
HERE = Path(__file__).parent


class Start(NamedTuple):
    """What one start cost until CartPole was solved; `steps` is 0 if it was not."""

    cpu_s: float
    wall_s: float
    steps: int


def run(options: Options, result: Result, say: Say) -> None:
    """Start everything, seed by seed; a row is there once its first seed has ended."""
    seeds = 1 if options.quick else SEEDS
    cores = SimpleQueue[int]()
    lanes = min(LANES, seeds, os.cpu_count() or 1)
    for core in range(os.cpu_count() or 1)[-lanes:]:
        cores.put(core)
    result.settings |= {"seeds": seeds, "checked_every_steps": 5_000, "episodes": 10}
    result.settings |= {"seeds_at_a_time": lanes}
    stop = Event()
    for trainer in ["ppo"] if options.quick else list(TITLES):
        before, starts = list(result.measurements), dict[str, dict[int, Start]]()
        start_seed = partial(_start_seed, trainer, options.peers, cores, stop, say)
        with ThreadPoolExecutor(lanes) as pool:
            jobs = {pool.submit(start_seed, seed): seed for seed in range(seeds)}
            try:
                for job in as_completed(jobs):
                    for name, start in job.result().items():
                        starts.setdefault(name, {})[jobs[job]] = start
                    rows = [_row(trainer, name, _in_order(x)) for name, x in starts.items()]
                    result.measurements[:] = before + judge(trainer, rows)
            except BaseException:
                stop.set()
                pool.shutdown(cancel_futures=True)
                raise


def _in_order(starts: dict[int, Start]) -> list[Start]:
    return [start for _, start in sorted(starts.items())]


def _start_seed(
    trainer: str, peers: bool, cores: SimpleQueue[int], stop: Event, say: Say, seed: int
) -> dict[str, Start]:
    """Start all contenders with one seed, one after the other on one core."""
    core, starts = cores.get(), dict[str, Start]()
    try:
        for name, start in _start_all(trainer, seed, peers, core):
            starts[name] = start
            say(f"felt: {trainer}, seed {seed}, {name}: {start.cpu_s:.1f} CPU s")
            if stop.is_set():
                break
    finally:
        cores.put(core)
    return starts


def _start_all(trainer: str, seed: int, peers: bool, core: int) -> Iterator[tuple[str, Start]]:
    with tempfile.TemporaryDirectory() as folder:
        environment = one_thread() | {"XDG_CACHE_HOME": folder, "LOOPLESS_CACHE": "1"}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
        words = ["--seed", str(seed), "--runs", folder, "--eval-every", "5000"]
        words += ["--eval-episodes", "10", *FLAGS[trainer].split()]
        for name in (FIRST, SECOND, OTHER):
            rate = ["--learning-rate", RATES[trainer]] if name == OTHER else []
            command = command_line("loopless.cli", "train", trainer, *words, *rate, "--run", name)
            yield name, _watch(command, environment, core, Path(folder) / name / "metrics.jsonl")
        for name, (module, script, *more) in PEERS.items():
            if peers and find_spec(module) is not None:
                command = [sys.executable, str(HERE / script), *more, trainer, str(seed)]
                yield name, _watch(command, environment, core)


def _watch(
    command: list[str], environment: dict[str, str], core: int, log: Path | None = None
) -> Start:
    """Start a process on a core, and return what it and its children cost until it has solved it.

    It says so in a row of its log, or else by a line that it prints.
    """
    began = perf_counter()
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, env=environment, **quiet) as child:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(child.pid, [core])
        steps, cpu_s = 0, 0.0
        while not steps and child.poll() is None and perf_counter() - began < LIMIT_S:
            if log is None:
                assert child.stdout is not None
                words = child.stdout.readline().split()
                steps = int(words[1]) if words[:1] == ["solved"] else 0
                cpu_s = _cpu_seconds(child.pid)
                if not words:
                    break
            else:
                sleep(0.02)
                cpu_s = _cpu_seconds(child.pid) or cpu_s
                steps = _solved_at(log)
        wall_s = perf_counter() - began
        child.terminate()  # ours saves and ends; the others have ended
    return Start(cpu_s, wall_s, steps)


def _solved_at(log: Path) -> int:
    with suppress(OSError, ValueError):
        for line in log.read_text().splitlines():
            row = json.loads(line)
            if row.get("eval_return", 0.0) >= ENOUGH:
                return row["step"]
    return 0


def _cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process, its ended children, and its children that still run."""
    with suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        spent = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
        for task in Path(f"/proc/{pid}/task").iterdir():
            spent += sum(map(_cpu_seconds, map(int, (task / "children").read_text().split())))
        return spent
    return 0.0


def _row(trainer: str, name: str, starts: list[Start]) -> Measurement:
    ours = name not in PEERS
    costs = sorted(start.cpu_s for start in starts)
    low, _, high = statistics.quantiles(costs, n=4) if len(costs) > 1 else costs * 3
    solved = sum(start.steps > 0 for start in starts)
    row = Measurement(
        trainer, CASE, name, "loopless" if ours else name, "ours" if ours else "peer",
        unit="CPU s", value=statistics.median(costs), lower_quartile=low, upper_quartile=high,
        samples=len(starts), calls_per_sample=1,
        note=f"`loopless train {trainer} {FLAGS[trainer]}".strip() + "`"
        if ours
        else "keeps no programs: every start is a first",
        details={"starts": [start._asdict() for start in starts], "solved": solved},
    )  # fmt: skip
    if solved == len(starts):
        return row
    return replace(row, status="failed", reason=f"{len(starts) - solved} seeds did not solve it")


def judge(trainer: str, rows: list[Measurement]) -> list[Measurement]:
    """Attach the bars: those of PPO are promised, those of DQN stated."""
    cost = values(rows)
    for name in (FIRST, SECOND, OTHER):
        share = ratio(cost.get(name), cost.get(SB3))
        limit = 1.0 if name == FIRST else 0.5
        if trainer != "ppo":
            rows = attach(rows, name, [stated(share, f"of the CPU seconds of {SB3}")])
            continue
        targets = [at_most(limit, share, f"{limit:g} of the CPU seconds of {SB3}")]
        if name != FIRST:
            targets.append(at_most(3.5, cost.get(name), "3.5 CPU s"))
        rows = attach(rows, name, targets)
    return rows


def page(result: Result) -> list[Lines]:
    """Lay out the results page: CPU and wall seconds, and steps, of every contender."""
    head = ["", "contender", "CPU s", "from … to", "wall s", "steps", "solved"]
    rows = [_cells(row) for name in TITLES for row in section(result, name)]
    return [markdown_table(head, rows, "llrrrrr")]


def _cells(row: Measurement) -> list[str]:
    starts = row.details["starts"]
    costs = [start["cpu_s"] for start in starts]
    name = f"loopless, {row.contender}" if row.role == "ours" else row.contender
    return [
        row.section.upper(), name, f"{row.value:.1f}", f"{min(costs):.1f} … {max(costs):.1f}",
        f"{statistics.median(start['wall_s'] for start in starts):.1f}",
        f"{statistics.median(start['steps'] for start in starts):,.0f}",
        f"{row.details['solved']} of {len(starts)}",
    ]  # fmt: skip
