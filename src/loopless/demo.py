"""`loopless demo`: run everything once, small, in under five minutes; then show a table and a page.

Each part is a command that a user could give, in a process of its own: a part that fails does not
stop the others, and Ctrl-C lets the part that runs save its state. The two races need the suites of
a clone; an installed loopless leaves them out.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from loopless.bench.suites import names as suite_names
from loopless.refusals import did_you_mean, printable
from loopless.runs.progress import parts as progress
from loopless.runs.progress.parts import Part, run_all
from loopless.runs.progress.quantities import clock_time, count

FOLDER = Path("demo-results")
WRONG_GAE = "loopless.verify.wrong.gae:termination_only"
PROMPT = "def "
MANNER = ("--tokens", "160", "--temperature", "0.6", "--top-k", "20")
USAGE = 2
RACES = ("returns", "q_learning")
NO_RACES = (
    "The races (returns, q_learning) are left out: an installed loopless has no suites. "
    "They run in a clone of its repository."
)


@dataclass(frozen=True)
class Piece:
    """One part of the demo: its command line and its result in words, for a folder."""

    title: str
    arguments: Callable[[Path], Sequence[str]]
    conclusion: Callable[[Path], str]
    about_s: float
    good: tuple[int, ...] = (0,)


def pieces() -> dict[str, Piece]:
    """Return the parts by name, in the order in which they run."""
    return {
        "verify": Piece(
            "a wrong GAE, verified",
            lambda at: ("verify", WRONG_GAE, "--as", "gae", "--json", str(at / "verify.json")),
            verdict,
            5,
            good=(1,),  # the function is wrong, so it must differ
        ),
        "returns": _bench("returns", "GAE beside loop and peers", 25),
        "q_learning": _bench("q_learning", "a DQN update beside peers", 24),
        "dqn": _train(
            "dqn", "DQN on CartPole", 20, "--steps", "200000", "--explore-steps", "60000"
        ),
        "ppo": _train("ppo", "PPO on CartPole", 16),
        "allo": _train("allo", "ALLO on GridRoom-4", 32, "--grid", "GridRoom-4"),
        "avatarl": _train(
            "avatarl", "AvataRL on Python's source", 75, "--critic-steps", "700", "--steps", "700",
            "--eval-every", "200",
        ),
        "sample": Piece(
            "what AvataRL writes",
            lambda at: ("sample", str(_run(at, "avatarl")), "--prompt", PROMPT, *MANNER),
            written,
            10,
        ),
    }  # fmt: skip


def _bench(suite: str, title: str, about_s: float) -> Piece:
    def file(at: Path) -> Path:
        return at / "bench" / f"{suite}.json"

    def conclusion(at: Path) -> str:
        from loopless.bench.command import conclusion

        return conclusion(file(at))

    return Piece(
        title, lambda at: ("bench", suite, "--quick", "--json", str(file(at))), conclusion, about_s
    )


def _train(trainer: str, title: str, about_s: float, *flags: str) -> Piece:
    return Piece(
        title,
        lambda at: ("train", trainer, *flags, "--runs", str(at / "runs"), "--run", trainer),
        lambda at: learned(_run(at, trainer)),
        about_s,
    )


def _run(at: Path, name: str) -> Path:
    return at / "runs" / name


def verdict(at: Path) -> str:
    """Return what `verify` said about the wrong function."""
    found = json.loads((at / "verify.json").read_text(encoding="utf-8"))
    diagnosis = " ".join(found["diagnosis"]) or "It differs."
    faster = found.get("ratio")
    return diagnosis + (f" Ours is {faster:.0f}× faster." if faster else "")


def learned(folder: Path) -> str:
    """Return the result of a run in words."""
    from loopless.report.gathering import read_run
    from loopless.report.learning import result

    problems: list[str] = []
    run = read_run(folder, problems)
    found = result(run) if run else None
    if run is None or found is None:
        raise ValueError(" ".join(problems) or f"nothing is logged in {folder}")
    return f"{found[0]} {found[1]} after {count(run.step)} steps"


def written(at: Path) -> str:
    """Copy the sampled text into its run, for the page to show; return how it begins."""
    text = (at / "sample.txt").read_text(encoding="utf-8", errors="replace").strip()
    if not text:
        raise ValueError("it wrote nothing")
    samples = _run(at, "avatarl") / "samples"
    samples.mkdir(exist_ok=True)
    (samples / f"after_{PROMPT.strip()}.txt").write_text(text + "\n", encoding="utf-8")
    line = " ".join(text.split())
    return f"“{line[:70]}…”" if len(line) > 70 else f"“{line}”"


def demo(
    names: Sequence[str],
    folder: Path | None,
    command: Callable[..., list[str]] = progress.loopless_command,
) -> int:
    """Run the demo; return 0, 1 if something failed, 2 for wrong usage, 130 after Ctrl-C."""
    known = pieces()
    if not suite_names():
        print(f"demo: {NO_RACES}", file=sys.stderr)
        known = {name: piece for name, piece in known.items() if name not in RACES}
    if problem := _problem(names, known, folder):
        print(printable(problem), file=sys.stderr)
        return USAGE
    chosen = {name: piece for name, piece in known.items() if not names or name in names}
    try:
        at = _made(folder)
    except OSError as problem:
        print(printable(f"demo: cannot make a folder for it: {problem}"), file=sys.stderr)
        return USAGE
    (at / "bench").mkdir(exist_ok=True)
    by_title = {piece.title: piece for piece in chosen.values()}
    parts = [
        Part(piece.title, command(*piece.arguments(at)), piece.about_s, piece.good,
             output=at / "sample.txt" if name == "sample" else None)
        for name, piece in chosen.items()
    ]  # fmt: skip
    where = f"Everything goes to {at}; Ctrl-C stops and keeps what there is."
    print(printable(where), file=sys.stderr)
    start = monotonic()
    with _frequent_lines(), progress.board(parts) as show:
        whole = run_all(parts, at / "logs", lambda part: by_title[part.name].conclusion(at), show)
    page = _page(at)
    _tell(parts, monotonic() - start, page, whole)
    return max(progress.exit_code(parts, whole=whole), int(page is None))


def _problem(names: Sequence[str], known: dict[str, Piece], folder: Path | None) -> str | None:
    unknown = [name for name in names if name not in known]
    if unknown:
        hint = did_you_mean(unknown[0], known, repr, or_list=True)
        return f"demo: there is no part {unknown[0]!r}.{hint}"
    if "sample" in names and "avatarl" not in names:
        return "demo: sample writes with what avatarl trained. Name both."
    if folder and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        return f"demo: --folder {folder} is there already. Name a new one."
    return None


def _made(folder: Path | None) -> Path:
    """Create the folder that was asked for, or the next numbered one, and return it."""
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    FOLDER.mkdir(exist_ok=True)
    taken = [int(path.name) for path in FOLDER.iterdir() if path.name.isdecimal()]
    made = FOLDER / str(max(taken, default=-1) + 1)
    made.mkdir()
    return made


@contextmanager
def _frequent_lines() -> Iterator[None]:
    """Let trainers print a line every second inside the block, for the board to show."""
    from loopless.runs.progress.display import LINES_VARIABLE

    before = os.environ.get(LINES_VARIABLE)
    os.environ[LINES_VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[LINES_VARIABLE]
        else:
            os.environ[LINES_VARIABLE] = before


def _page(at: Path) -> Path | None:
    """Write a page about what there is, and return its path; None if that fails."""
    from loopless.report.command import write
    from loopless.report.gathering import gather
    from loopless.report.page import page

    try:
        runs = [path.parent for path in sorted((at / "runs").glob("*/run.json"))]
        contents = gather(runs, [at / "bench"], sorted(at.glob("verify.json")))
        write(at / "report.html", page(contents, "loopless demo"))
    except Exception as problem:  # which must not keep the results of the parts from being shown
        print(f"demo: no page could be made: {problem}", file=sys.stderr)
        return None
    return at / "report.html"


def _tell(parts: Sequence[Part], seconds: float, page: Path | None, whole: bool) -> None:
    from rich.console import Console
    from rich.text import Text

    out = Console(highlight=False)
    progress.show_outcome(parts, out)
    done = sum(part.state == "done" for part in parts)
    out.print(Text(f" {done} of {len(parts)} parts in {clock_time(seconds)}"))
    if not whole:
        out.print(Text(" Interrupted; what was done until then is kept.", style="yellow"))
    if page:
        out.print(Text.assemble(" Open ", (str(page), "bold")), soft_wrap=True)
