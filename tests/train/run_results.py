"""Whole runs in this process, and what is left of them on the disk."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import jax

from loopless import cli
from loopless.runs import session
from loopless.runs.checkpoint import Checkpoints
from loopless.runs.folder import RunFolder
from loopless.train import registry
from loopless.train.dqn.config import DQN

TIMES = {"time", "steps_per_second", "updates_per_second", "tokens_per_second", "memory_bytes"}

TINY = DQN(
    env="loopless/Chain-v0", hidden=(6,), envs=2, train_every=8, steps=400, learning_starts=80,
    buffer_size=96, batch_size=8, target_every=40, explore_steps=200, log_every=40,
    eval_every=80, eval_episodes=4, checkpoint_every=80, learning_rate=0.01,
)  # fmt: skip


class Killed(BaseException):
    """The process dies here: no handler of ours may take it for a failure of a run."""


def trainer_of(config):
    return registry.trainer(type(config).__name__.lower()).make(config)


def train(root: Path, config, name: str, dies_after: int | None = None) -> Path:
    """A run from its start; it dies when the chunk after this step begins."""
    trainer = trainer_of(config)
    with RunFolder.create(root, name, type(config).__name__.lower(), config) as run:
        go(trainer, run, config, None, dies_after)
    return root / name


def resume(path: Path, dies_after: int | None = None, **changes) -> Path:
    with RunFolder.open(path, lock=True) as run:
        config = replace(run.config(registry.config_class(run.trainer)), **changes)
        trainer = trainer_of(config)
        found = Checkpoints(path).load(template=trainer.arrays())
        go(trainer, run, config, found, dies_after)
    return path


def go(trainer, run, config, found, dies_after) -> None:
    advance = trainer.advance

    def mortal(clock):
        if dies_after is not None and trainer.step >= dies_after:
            raise Killed
        return advance(clock)

    trainer.advance = mortal
    try:
        session.train(trainer, run, config, found)
    except Killed:
        return
    assert dies_after is None


def checkpoint_files(path: Path) -> dict[str, bytes]:
    """The bytes of all checkpoints by name."""
    files = sorted(file for file in (path / "checkpoints").rglob("*") if file.is_file())
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def rows(path: Path, events: bool = False) -> list[dict]:
    """The rows of the log but for what is about time, and but for events."""
    found = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [
        {k: v for k, v in row.items() if k not in TIMES and not k.startswith("time_")}
        for row in found
        if events or row["kind"] != "event"
    ]


def events(path: Path) -> list[tuple[int, str]]:
    return [(row["step"], row["event"]) for row in rows(path, True) if row["kind"] == "event"]


def flags(config=TINY, **changed) -> list[str]:
    """What to type for a config."""
    words = []
    for name, value in vars(replace(config, **changed)).items():
        if value != getattr(type(config)(), name):
            given = map(str, value) if isinstance(value, tuple) else [str(value)]
            words += [f"--{name.replace('_', '-')}", *([] if value is True else given)]
    return words


def command(*words) -> int:
    """The exit code of a command in this process."""
    try:
        return cli.main([str(word) for word in words])
    except SystemExit as end:
        return end.code


def calls_of_programs(folder: Path, work) -> int:
    """How many compiled programs `work` has the device execute, by JAX's own trace."""
    with jax.profiler.trace(str(folder)):
        work()
    (file,) = folder.rglob("*.xplane.pb")
    names = Counter(
        event.name
        for plane in jax.profiler.ProfileData.from_file(str(file)).planes
        for line in plane.lines
        for event in line.events
    )
    return names["CommonPjRtLoadedExecutable::ExecuteHelperOnSingleDevice"]
