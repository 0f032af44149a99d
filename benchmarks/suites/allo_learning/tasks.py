"""What ALLO has to learn, by which preset, and how well: six results, a few runs each.

A preset is a file that `loopless train allo --config` takes. The paper's own layouts are not ours
to ship; they are run if `--grids DIR` names a folder that holds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suites.dqn_learning.tasks import PRESETS, Job

ALLO, GGDO = "ALLO", "GGDO"
MAZES = ("GridMaze-7", "GridMaze-9")  # of the paper
FIVE, THREE = 5, 3


def allo_job(
    preset: str,
    *flags: str,
    seeds: int = FIVE,
    folder: Path | None = None,
    layout: str = "",
) -> Job:
    """Return the job of a preset; `folder` holds the paper's layouts, of which it takes one."""
    grid = ("--grid", str(folder / f"{layout}.txt")) if folder else ()
    words = [word.strip("-").replace(".", "_") for word in flags]
    name = "-".join([preset, *([layout] if layout else []), *words])
    path, flags = PRESETS / "allo" / f"{preset}.toml", (*grid, *flags, "--seeds", str(seeds))
    return Job(name, "allo", path, flags, seeds, folder)


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


def mazes(label: str, **layout: Any) -> list[Task]:
    """Return both tasks of a maze that ALLO learns, and GGDO does not."""
    ggdo = allo_job("corridors", "--objective", "ggdo", **layout)
    return [
        Task(1, label, ALLO, allo_job("corridors", **layout), each=0.995),
        Task(1, label, GGDO, ggdo, most=0.45),
    ]


# In many rooms a walk is slow: only long gaps set its eigenvalues apart.
FAR = ("--discount", "0.99", "--episode-length", "500")
# The paper's barrier rate, which is for its scale, "full". With a large barrier, neighboring
# components separate slowly.
RISING = ("--scale", "full", "--barrier", "0.1", "1", "10", "--barrier-rate", "0.01")
SHIPPED = (
    *mazes("GridCorridor-12"),
    Task(2, "GridRoom-4, 20k steps", ALLO, allo_job("rooms"), mean=0.99),
    Task(
        2, "GridRoom-16, 20k steps", ALLO, allo_job("rooms", "--grid", "GridRoom-16", *FAR),
        mean=0.98,
    ),
    Task(
        2, "GridRoom-1 by eigenspaces, 20k steps", ALLO, allo_job("rooms", "--grid", "GridRoom-1"),
        mean=0.99,
    ),
    *(
        Task(2, f"{maze}, 40k steps", ALLO, allo_job("mazes", "--grid", maze), mean=0.98)
        for maze in ("GridMaze-19-seed0", "GridMaze-19-seed1", "GridMaze-19-seed2")
    ),
    Task(3, "GridRoom-4, eigenvalues", ALLO, allo_job("eigenvalues"), percent=2.0, first=0.002),
    Task(
        4, "GridRoom-4, outputs permuted at 20k of 40k steps", ALLO,
        allo_job("rooms", "--steps", "40000", "--permute-at", "20000", seeds=THREE), each=0.98,
    ),
    Task(
        4, "GridRoom-4, barrier from 0.1, 1, 10", ALLO,
        allo_job("rooms", *RISING, "--dual-rate", "0.005", "--steps", "80000", seeds=THREE),
        spread=0.01,
    ),
    Task(
        5, "GridRoom-4 with 5 one-way doors", ALLO,
        allo_job(
            "rooms", "--doors", "5", "--steps", "60000", "--env-steps", "5000", seeds=THREE,
        ),
        each=0.98,
    ),
    Task(6, "GridRoom-4 from pixels", ALLO, allo_job("pixels", seeds=THREE), each=0.98),
)  # fmt: skip
QUICK = (
    Task(
        1, "GridCorridor-12, 2k steps", ALLO, allo_job("corridors", "--steps", "2000", seeds=2),
        mean=0.5,
    ),
)  # fmt: skip


def tasks(grids: Path | None) -> list[Task]:
    """Return all tasks, with those of the paper's layouts if there is a folder of them."""
    paper = [
        task
        for name in (MAZES if grids else ())
        for task in mazes(f"the paper's {name}", folder=grids, layout=name)
    ]
    return [*SHIPPED[:2], *paper, *SHIPPED[2:]]
