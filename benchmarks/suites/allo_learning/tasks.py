"""What ALLO has to learn, by which preset, and how well: six results, a few runs each.

A preset is a file that `loopless train allo --config` takes. The paper's own layouts are not ours
to ship; they are run if `--grids DIR` names a folder that holds them.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from suites.dqn_learning.tasks import PRESETS

ALLO, GGDO = "ALLO", "GGDO"
MAZES = ("GridMaze-7", "GridMaze-9")  # of the paper
FIVE, THREE = 5, 3


@dataclass(frozen=True)
class Job:
    """One training run, of several agents."""

    preset: str
    flags: tuple[str, ...] = ()
    seeds: int = FIVE
    folder: Path | None = None  # where the paper's layouts are
    layout: str = ""  # of those

    @property
    def path(self) -> Path:
        """Return the path of its preset, from the root of the checkout."""
        return PRESETS / "allo" / f"{self.preset}.toml"

    @property
    def name(self) -> str:
        """Return the name of its folder."""
        words = [word.strip("-").replace(".", "_") for word in self.flags]
        return "-".join([self.preset, *([self.layout] if self.layout else []), *words])

    @property
    def words(self) -> list[str]:
        """Return the words of the command, without those that say where the run is put."""
        return self._words(str(self.folder / f"{self.layout}.txt") if self.folder else "")

    @property
    def command(self) -> str:
        """Return the command for the result, which does not say where the layouts were."""
        return shlex.join(["loopless", *self._words(f"DIR/{self.layout}.txt")])

    def _words(self, grid: str) -> list[str]:
        words = ["train", "allo", "--config", str(self.path)]
        words += ["--grid", grid] if self.layout else []
        return [*words, *self.flags, "--seeds", str(self.seeds)]


@dataclass(frozen=True)
class Task:
    """A row: a run, and what its agents' similarities at the end must be.

    Their mean is at least `mean` and at most `most`, every one is at least `each`, and they differ
    by at most `spread`. Eigenvalues 2 … d are within `percent` of the truth, and the first is at
    most `first`.
    """

    number: int  # of the result
    label: str
    agent: str
    job: Job
    each: float | None = None
    mean: float | None = None
    most: float | None = None
    spread: float | None = None
    percent: float | None = None
    first: float | None = None


def mazes(label: str, job: Job) -> list[Task]:
    """Return both tasks of a maze that ALLO learns, and GGDO does not."""
    ggdo = replace(job, flags=(*job.flags, "--objective", "ggdo"))
    return [Task(1, label, ALLO, job, each=0.995), Task(1, label, GGDO, ggdo, most=0.45)]


ROOMS = Job("rooms")
# In many rooms a walk is slow: only long gaps set its eigenvalues apart.
FAR = ("--discount", "0.99", "--episode-length", "500")
THREE_ROOMS = replace(ROOMS, seeds=THREE)
# The paper's barrier rate, which is for its scale, "full". With a large barrier, neighboring
# components separate slowly.
RISING = ("--scale", "full", "--barrier", "0.1", "1", "10", "--barrier-rate", "0.01")
SHIPPED = (
    *mazes("GridCorridor-12", Job("corridors")),
    Task(2, "GridRoom-4, 20k steps", ALLO, ROOMS, mean=0.99),
    Task(
        2, "GridRoom-16, 20k steps", ALLO, replace(ROOMS, flags=("--grid", "GridRoom-16", *FAR)),
        mean=0.98,
    ),
    Task(
        2, "GridRoom-1 by eigenspaces, 20k steps", ALLO,
        replace(ROOMS, flags=("--grid", "GridRoom-1")), mean=0.99,
    ),
    *(
        Task(
            2, f"GridMaze-19-seed{seed}, 40k steps", ALLO,
            Job("mazes", ("--grid", f"GridMaze-19-seed{seed}")), mean=0.98,
        )
        for seed in range(3)
    ),
    Task(3, "GridRoom-4, eigenvalues", ALLO, Job("eigenvalues"), percent=2.0, first=0.002),
    Task(
        4, "GridRoom-4, outputs permuted at 20k of 40k steps", ALLO,
        replace(THREE_ROOMS, flags=("--steps", "40000", "--permute-at", "20000")), each=0.98,
    ),
    Task(
        4, "GridRoom-4, barrier from 0.1, 1, 10", ALLO,
        replace(THREE_ROOMS, flags=(*RISING, "--dual-rate", "0.005", "--steps", "80000")),
        spread=0.01,
    ),
    Task(
        5, "GridRoom-4 with 5 one-way doors", ALLO,
        replace(THREE_ROOMS, flags=("--doors", "5", "--steps", "60000", "--env-steps", "5000")),
        each=0.98,
    ),
    Task(6, "GridRoom-4 from pixels", ALLO, Job("pixels", seeds=THREE), each=0.98),
)  # fmt: skip
QUICK = (
    Task(
        1, "GridCorridor-12, 2k steps", ALLO, Job("corridors", ("--steps", "2000"), seeds=2),
        mean=0.5,
    ),
)  # fmt: skip


def tasks(grids: Path | None) -> list[Task]:
    """Return all tasks, with those of the paper's layouts if there is a folder of them."""
    if grids is None:
        return [*SHIPPED]
    paper = [
        mazes(f"the paper's {name}", Job("corridors", (), FIVE, grids, name)) for name in MAZES
    ]
    return [*SHIPPED[:2], *(task for both in paper for task in both), *SHIPPED[2:]]
