"""Runs on text as child processes, none of them made twice, and what is read off their folders.

By the code of `bench.learning`. Imports that. Tests:
`tests/suites/avatarl_learning/test_bench_text_outcomes.py`.
"""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from suites.avatarl_learning.tasks import TextJob
from suites.dqn_learning.runs import RunFailed, Runs, settings_of

PROMPT, SAMPLED = "def ", 120  # what a sample begins with, and how many tokens it has


@dataclass(frozen=True)
class Text:
    """What came out of a run on text."""

    command: str
    settings: str  # the preset's text
    wall_s: float  # of the command, imports and compilation included
    final: dict[str, float]  # the last validation, and what it was compared with
    curve_tokens: list[int]
    curve_losses: list[float]  # validation, nats per token
    tokens_per_s: float  # median over training, compilation aside
    corpus: dict[str, Any]
    sample: str
    commit: str = ""


class TextRuns(Runs):
    """Runs in `folder`, on so many cores."""

    def text_outcomes(self, jobs: Iterable[TextJob]) -> Iterator[tuple[TextJob, Text | RunFailed]]:
        """Each job with what came of it, as they end."""
        return super().outcomes(jobs)  # pyright: ignore[reportArgumentType, reportReturnType]

    def _found(self, job: Any) -> Any:
        try:
            text = (self.folder / job.name / "outcome.json").read_text(encoding="utf-8")
            found = Text(**json.loads(text))
        except (OSError, ValueError, TypeError):
            return None
        same = found.command == job.command and found.settings == settings_of(job)
        return found if same else None

    def _make(self, job: Any, core: int) -> Any:
        settings, path = settings_of(job), self.folder / job.name
        shutil.rmtree(path, ignore_errors=True)
        start = perf_counter()
        self._child(["-m", "loopless.cli", *job.words, *job.where(self.folder)], job, core)
        wall_s = perf_counter() - start
        words = ["sample", str(path), "--prompt", PROMPT, "--tokens", str(SAMPLED), "--seed", "0"]
        sample = self._child(["-m", "loopless.cli", *words], job, core)
        read = {**observed(path), "sample": sample, "commit": self._commit}
        outcome = Text(job.command, settings, wall_s, **read)
        staged = path / "outcome.json.tmp"
        staged.write_text(json.dumps(asdict(outcome)), encoding="utf-8")
        staged.replace(path / "outcome.json")
        return outcome


def observed(path: Path) -> dict[str, Any]:
    """What a run's own log and data tell."""
    from loopless.runs.metrics import read
    from loopless.text.dataset import ABOUT
    from loopless.train.lm.data import FOLDER

    rows = list(read(path / "metrics.jsonl"))
    validated = [row for row in rows if "validation_loss" in row]
    if not validated:
        raise RunFailed(f"{path.name}: no validation in its log")
    speeds = [row["tokens_per_second"] for row in rows if "tokens_per_second" in row]
    last = validated[-1]
    return {
        "final": {x: last[x] for x in last if x.endswith(("_loss", "_per_character"))},
        "curve_tokens": [row["tokens"] for row in validated],
        "curve_losses": [row["validation_loss"] for row in validated],
        # The first chunk compiles.
        "tokens_per_s": statistics.median(speeds[1:] or speeds),
        "corpus": json.loads((path / FOLDER / ABOUT).read_text(encoding="utf-8"))["corpus"],
    }
