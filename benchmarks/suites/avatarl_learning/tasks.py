"""The runs on the default corpus: one critic, and students that differ by their loss alone.

Each job is a command of `loopless train` with a preset of src/loopless/train/presets/avatarl.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from suites.dqn_learning.tasks import PRESETS

CRITIC = "critic"  # the name of its run
SEEDS = 3
STEPS = 3000
QUICK_STEPS = 100
TOKENS_A_STEP = 8 * 64  # in the presets: windows of an update × tokens of a window


@dataclass(frozen=True)
class TextJob:
    """One training run. `where` adds a student's critic to its command."""

    name: str
    trainer: str
    preset: str
    flags: tuple[str, ...] = ()
    seed: int | None = None  # instead of the preset's
    steps: int | None = None

    @property
    def path(self) -> Path:
        """Return the path of its preset, from the root of the checkout."""
        return PRESETS / "avatarl" / f"{self.preset}.toml"

    @property
    def words(self) -> list[str]:
        """Return the words of the command, without those that say where runs are."""
        words = ["train", self.trainer, "--config", str(self.path), *self.flags]
        words += ["--seed", str(self.seed)] if self.seed is not None else []
        words += ["--steps", str(self.steps)] if self.steps is not None else []
        return words

    def where(self, runs: Path) -> list[str]:
        """Return the flags that say where the run and its critic are."""
        critic = ["--critic", str(runs / CRITIC)] if self.trainer == "avatarl" else []
        return [*critic, "--runs", str(runs), "--run", self.name]

    @property
    def command(self) -> str:
        return shlex.join(["loopless", *self.words, *self.where(Path("runs"))])


@dataclass(frozen=True)
class Student:
    """A row: students with one loss, which differ by seed."""

    label: str
    name: str  # of its runs
    flags: tuple[str, ...]

    def jobs(self, seeds: int = SEEDS, steps: int | None = None) -> list[TextJob]:
        return [
            TextJob(f"{self.name}-seed{seed}", "avatarl", "student", self.flags, seed, steps)
            for seed in range(seeds)
        ]


def critic(steps: int | None = None) -> TextJob:
    return TextJob(CRITIC, "lm", "critic", steps=steps)


STUDENTS = (
    Student("AvataRL, fixed", "fixed", ("--variant", "fixed")),
    Student("AvataRL, original", "original", ("--variant", "original")),
    Student("AvataRL, subset", "subset", ("--variant", "subset")),
    Student("AvataRL, full", "full", ("--variant", "full")),
    Student("cross-entropy to AvataRL's target", "soft", ("--loss", "soft")),
    Student("distillation of the critic", "distillation", ("--loss", "distillation")),
    Student("cross-entropy to the text", "ce", ("--loss", "ce")),
)
