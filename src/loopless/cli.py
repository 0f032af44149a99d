"""The `loopless` command. A subcommand imports what it needs only when it runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg
from tyro.extras import SubcommandApp

DESCRIPTION = (
    "Reinforcement-learning hot paths with no Python loop in them, "
    "checked against the loop they replace. `loopless --version` prints the version."
)

app = SubcommandApp()


@app.command
def bench(
    suite: Annotated[Positional[str], arg(metavar="[SUITE]")] = "returns",
    quick: bool = False,
    json: Annotated[Path | None, arg(metavar="PATH")] = None,
    threads: Annotated[int, arg(metavar="N")] = 1,
    peers: bool = True,
    ablate: bool = False,
) -> int:
    """Time our functions against the loops they replace and against every installed peer.

    Answers are checked before anything is timed; exit code 1 means that ours were wrong.

    Args:
        suite: What to measure: returns.
        quick: Three shapes and short budgets: under a minute.
        json: File for the result; if none is named, bench-results/SUITE.json.
        threads: Threads for every library, and cores to pin to.
        peers: Measure other libraries too, those that are installed.
        ablate: Add the proposals of the founding notes: what was claimed, what is measured.
    """
    from loopless.bench import command

    return command.bench(
        command.Options(
            suite=suite, quick=quick, json=json, threads=threads, peers=peers, ablate=ablate
        )
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return its exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments in (["--version"], ["-V"]):
        from loopless import __version__

        print(f"loopless {__version__}")
        return 0
    try:
        return app.cli(prog="loopless", description=DESCRIPTION, args=arguments) or 0
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
