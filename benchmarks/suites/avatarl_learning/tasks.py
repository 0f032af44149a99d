"""The runs on the default corpus: one critic, and students that differ by their loss alone.

Each job is a command of `loopless train` with a preset of src/loopless/train/presets/avatarl.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from suites.dqn_learning.tasks import PRESETS, Job

CRITIC = "critic"  # the name of its run
SEEDS = 3
STEPS = 3000
QUICK_STEPS = 100
TOKENS_A_STEP = 8 * 64  # in the presets: windows of an update × tokens of a window


def text_job(
    name: str, preset: str, *flags: str, steps: int | None = None, critic: str = ""
) -> Job:
    """Return the job of a preset, a student's if it has a critic; `steps` is not the preset's."""
    path, trainer = PRESETS / "avatarl" / f"{preset}.toml", "avatarl" if critic else "lm"
    flags += ("--steps", str(steps)) if steps is not None else ()
    return Job(name, trainer, path, flags, critic=critic, placed=True)


@dataclass(frozen=True)
class Student:
    """A row: students with one loss, which differ by seed."""

    label: str
    name: str  # of its runs
    flags: tuple[str, ...]

    def jobs(self, seeds: int = SEEDS, steps: int | None = None) -> list[Job]:
        job = partial(text_job, steps=steps, critic=CRITIC)
        return [
            job(f"{self.name}-seed{seed}", "student", *self.flags, "--seed", str(seed))
            for seed in range(seeds)
        ]


def critic(steps: int | None = None) -> Job:
    return text_job(CRITIC, "critic", steps=steps)


STUDENTS = (
    Student("AvataRL, fixed", "fixed", ("--variant", "fixed")),
    Student("AvataRL, original", "original", ("--variant", "original")),
    Student("AvataRL, subset", "subset", ("--variant", "subset")),
    Student("AvataRL, full", "full", ("--variant", "full")),
    Student("cross-entropy to AvataRL's target", "soft", ("--loss", "soft")),
    Student("distillation of the critic", "distillation", ("--loss", "distillation")),
    Student("cross-entropy to the text", "ce", ("--loss", "ce")),
)
