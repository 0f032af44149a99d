"""Pictures for the tests of the renderer process: slow ones, counted ones, broken ones."""

import os
import time

from loopless.runs.pictures.plots import PICTURES, Run, picture

for name in {*PICTURES} - {"return"}:  # one of the usual ones is enough, and quick
    del PICTURES[name]


@picture("slow", suffix=".txt")
def slow(run: Run) -> bytes | None:
    if not (run.folder / "wait").exists():
        return None
    (run.folder / "drawing").touch()
    while not (run.folder / "go").exists():
        time.sleep(0.01)
    return b"drawn"


@picture("counted", suffix=".txt")
def counted(run: Run) -> bytes:
    with (run.folder / "count").open("a") as file:
        file.write("x")
    return b"drawn"


@picture("broken")
def broken(run: Run) -> None:
    if (run.folder / "break").exists():
        raise ValueError("there is no such eigenvector")


@picture("deadly")
def deadly(run: Run) -> None:
    if (run.folder / "die").exists():
        os._exit(9)


@picture("words", suffix=".txt")
def words(run: Run) -> bytes | None:
    return run.snapshots["words"].read_bytes() if run.snapshots else None


@picture("facts", suffix=".txt")
def facts(run: Run) -> bytes:
    nice = os.nice(0)
    return f"{os.getpid()} {os.getsid(0)} {nice}".encode()
