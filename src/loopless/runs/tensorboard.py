"""TensorBoard's event files, written from the log by the process that draws the plots.

The training process neither writes them nor imports TensorBoard. Since the log is the truth, a
resumed run writes its files anew instead of mending what an interrupted one left. Several seeds
become several runs, `seed_0` and so on. Needs the extra `tensorboard`, and no TensorFlow.
"""

from __future__ import annotations

import math
import os
import socket
import stat
import time
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from loopless.files import plain
from loopless.runs.failures import BadConfig
from loopless.runs.glossary import METRICS

NAME = "events.out.tfevents"


def problems() -> list[str]:
    """Return why event files cannot be written, so that a config can be refused in advance."""
    if find_spec("tensorboard") is None:
        problem = (
            "tensorboard is set, but the package tensorboard is not installed. Install it with "
            "`pip install 'loopless[tensorboard]'`, or leave tensorboard off."
        )
        return [problem]
    return []


class EventFiles:
    """The event files of a run, under `tensorboard/` in its folder."""

    def __init__(self, folder: Path):
        if missing := problems():
            raise BadConfig(missing)
        self._folder = Path(folder) / "tensorboard"
        for old in [*self._folder.glob(f"{NAME}.*"), *self._folder.glob(f"seed_*/{NAME}.*")]:
            # Emptied now and removed next time: a TensorBoard that has it open would get stuck.
            # What is a link, or has another name elsewhere, is not ours to empty.
            status = old.lstat()
            if status.st_size and stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                os.truncate(old, 0)
            else:
                old.unlink()
        self._files: dict[str, _EventFile] = {}

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows of the log; values that are not finite are left out."""
        for row in rows:
            scalars: dict[str, dict[str, float]] = {}
            for name, value in row.items():
                if name not in METRICS:
                    continue
                tag = f"{row['kind']}/{name.removeprefix('eval_')}"
                several = isinstance(value, list)
                for seed, numbers in enumerate(value if several else [value]):
                    place = f"seed_{seed}" if several else ""
                    tagged = {tag: numbers}
                    if isinstance(numbers, list):  # one for each component
                        tagged = {f"{tag}/{i}": number for i, number in enumerate(numbers, 1)}
                    for tag_, number in tagged.items():
                        if number is not None and math.isfinite(number):
                            scalars.setdefault(place, {})[tag_] = number
            for place, values in scalars.items():
                self._file(place).write(row["step"], row["time"], values)
        for file in self._files.values():
            file.flush()

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _file(self, place: str) -> _EventFile:
        if place not in self._files:
            self._files[place] = _EventFile(self._folder / place)
        return self._files[place]


class _EventFile:
    def __init__(self, folder: Path):
        from tensorboard.summary.writer.record_writer import RecordWriter

        # The message classes are made at run time, where a type checker does not see them.
        events: Any = import_module("tensorboard.compat.proto.event_pb2")
        summaries: Any = import_module("tensorboard.compat.proto.summary_pb2")
        self._event, self._summary = events.Event, summaries.Summary
        plain.make_folder(folder)
        # TensorBoard moves on to the file whose name sorts last.
        name = f"{NAME}.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}"
        self._file = (folder / name).open("wb")
        self._records = RecordWriter(self._file)
        now = time.time()
        self._add(self._event(wall_time=now, file_version="brain.Event:2"))
        # A TensorBoard that has read an older file forgets it here.
        start = events.SessionLog(status=events.SessionLog.START)
        self._add(self._event(wall_time=now, step=0, session_log=start))

    def write(self, step: int, wall_time: float, values: Mapping[str, float]) -> None:
        summaries = [
            self._summary.Value(tag=tag, simple_value=value) for tag, value in values.items()
        ]
        self._add(
            self._event(wall_time=wall_time, step=step, summary=self._summary(value=summaries))
        )

    def _add(self, event: Any) -> None:
        self._records.write(event.SerializeToString())

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()
