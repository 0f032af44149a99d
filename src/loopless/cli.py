"""The `loopless` command. A subcommand imports what it needs only when it runs.

Each function below is one subcommand. `runs.config.flags` reads the command line from its
signature: positional parameters are words, keyword parameters are flags, and the section "Args:"
of the docstring is the help.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from loopless.refusals import did_you_mean, printable
from loopless.runs.config import flags

SHOW_TRACEBACKS = "LOOPLESS_TRACEBACK"  # a variable of the environment, for developers
UNFORESEEN = 70
DESCRIPTION = """\
Reinforcement-learning hot paths with no Python loop in them, checked against the loop they
replace. `loopless COMMAND --help` explains a command, `loopless --version` prints the version.
"""


def bench(
    *suites: str,
    quick: bool = False,
    json: Path | None = None,
    threads: int = 1,
    peers: bool = True,
    ablate: bool = False,
    compare: Path | None = None,
    grids: Path | None = None,
    stale: bool = False,
) -> int:
    """Time our functions against the loops they replace and against every installed peer.

    Without a suite all of them run, quick, and give one table. Answers are checked before anything
    is timed; exit code 1 means that ours were wrong, or that a suite failed.

    Args:
        suites: What to measure: returns, replay, q_learning, own_code, dqn_speed, dqn_learning,
            ppo_speed, ppo_learning, avatarl, avatarl_learning, allo_speed, allo_learning, felt,
            pictures, or the path of your own suite.
        quick: Fewer shapes and short budgets: about a minute a suite.
        json: File for the result; if none is named, bench-results/SUITE.json.
        threads: Threads for every library, and cores to pin to.
        peers: Measure other libraries too, those that are installed.
        ablate: Add the proposals of the founding notes: what was claimed, what is measured.
        compare: An older result: show what has become faster or slower since. With a newer result
            in place of a suite, nothing is measured: `bench --compare old.json new.json`.
        grids: Folder with layouts of ALLO's paper, for allo_learning.
        stale: Measure nothing; list suites whose sources changed since they were measured.
    """
    from loopless.bench import command
    from loopless.bench.suites import Options

    return command.run(
        suites,
        Options(
            quick=quick,
            json=json,
            threads=threads,
            peers=peers,
            ablate=ablate,
            compare=compare,
            grids=grids,
        ),
        stale=stale,
    )


def verify(
    function: str,
    /,
    *,
    as_: str | None = None,
    library: Literal["numpy", "torch", "jax"] | None = None,
    layout: str | None = None,
    map: tuple[str, ...] = (),
    fix: tuple[str, ...] = (),
    cases: int = 1000,
    seconds: float = 30.0,
    truncation: bool = True,
    strict: bool = False,
    timing: bool = True,
    json: Path | None = None,
) -> int:
    """Check your own function against the reference loop, and time it beside ours.

    Exit code 0: equal. 1: it differs, with the smallest case and what is wrong in words.

    Args:
        function: Your function, as MODULE:FUNCTION or FILE.py:FUNCTION.
        as_: What it should be: gae, lambda_returns, discounted_returns, n_step_returns, vtrace,
            retrace, upgo, token_gae, normalize, q_targets, q_loss, ppo_loss, avatarl_loss,
            allo_loss, uniform_sampler, prioritized_sampler or geometric_sampler.
        library: The library of its arrays; detected if left out.
        layout: time, batch, trailing, single or lists; for losses rows, columns or sample.
            Detected if left out.
        map: What its parameters are, where their names do not tell.
        fix: Numbers that are built into it, such as gamma=0.99.
        cases: How many cases to try.
        seconds: For how many seconds to try cases.
        truncation: Whether its rollouts may be cut off by a time limit.
        strict: Count a function as wrong if it is right only on finite numbers.
        timing: Time it beside ours.
        json: File for the report; - prints it in place of the tables.
    """
    from loopless.verify import command

    return command.verify(
        function,
        as_,
        library=library,
        layout=layout,
        map=map,
        fix=fix,
        cases=cases,
        seconds=seconds,
        truncation=truncation,
        strict=strict,
        timing=timing,
        json=json,
    )


def train(trainer: str, /, *arguments: str) -> int:
    """Train an agent: `loopless train dqn --env CartPole-v1`.

    `loopless train TRAINER --help` lists the flags of a trainer.

    Args:
        trainer: dqn, ppo, allo, avatarl or lm.
        arguments: Flags of that trainer.
    """
    from loopless.train import commands

    return commands.train([trainer, *arguments])


def resume(
    run: Path, /, *, steps: int | None = None, on_nan: Literal["stop", "skip"] | None = None
) -> int:
    """Continue a run that was interrupted, from its newest whole checkpoint.

    Args:
        run: Folder of the run.
        steps: Number of steps of the whole run, instead of the number in its config.
        on_nan: What to do from now on about an update that is not finite: stop the run, or skip
            that update.
    """
    from loopless.train import commands

    return commands.resume(run, steps, on_nan)


def play(
    run: Path,
    /,
    *,
    episodes: int = 20,
    checkpoint: str = "best",
    seed: int = 0,
    agent: int = 0,
    record: Path | None = None,
) -> int:
    """Evaluate a trained policy without exploration, and record it if asked.

    Args:
        run: Folder of the run.
        episodes: How many episodes to play.
        checkpoint: best, latest, or the name of a checkpoint.
        seed: Seed of the environments.
        agent: Number of the agent, in a run with several seeds.
        record: File to record one episode to, a .gif or an .mp4.
    """
    from loopless.train import commands

    return commands.play(run, episodes, checkpoint, seed, agent, record)


def plot(*runs: Path, output: Path | None = None) -> int:
    """Draw runs beside each other; those that differ only by seed become one curve with a band.

    Args:
        runs: Folders of the runs.
        output: File of the picture; comparison.png if none is named.
    """
    from loopless.train import commands

    return commands.plot(runs, output)


def sample(
    run: Path,
    /,
    *,
    prompt: str = "",
    tokens: int = 200,
    temperature: float = 0.8,
    top_k: int | None = None,
    repetition_penalty: float = 1.0,
    seed: int = 0,
    checkpoint: str = "best",
) -> int:
    """Write text with a trained language model: `loopless sample RUN --prompt "def "`.

    Args:
        run: Folder of the run, of lm or avatarl.
        prompt: How the text begins; the beginning of a document if left out.
        tokens: How many tokens to write at most; the end of the document also ends the text.
        temperature: Above 1 more surprising, below 1 less; 0 takes the likeliest token.
        top_k: Choose among this many of the likeliest tokens; among all if left out.
        repetition_penalty: Above 1, tokens that have occurred become less likely.
        seed: The same seed writes the same text.
        checkpoint: best, latest, or the name of a checkpoint.
    """
    from loopless.train import commands

    manner = {"tokens": tokens, "temperature": temperature, "top_k": top_k, "seed": seed}
    manner["repetition_penalty"] = repetition_penalty
    return commands.sample(run, prompt, checkpoint, manner)


def export(
    run: Path, /, *, output: Path | None = None, checkpoint: str = "best", agent: int = 0
) -> int:
    """Write a policy as one safetensors file, with a JSON card that says how to use it from NumPy.

    Args:
        run: Folder of the run.
        output: Name of the file; policy.safetensors in the run's folder if none is named.
        checkpoint: best, latest, or the name of a checkpoint.
        agent: Number of the agent, in a run with several seeds.
    """
    from loopless.train import commands

    return commands.export(run, output, checkpoint, agent)


def presets() -> int:
    """List the presets: settings that are known to work, what each reaches, and in how long."""
    from loopless.train import presets

    print(presets.table())
    return 0


def cache(*, clear: bool = False) -> int:
    """Show the folder in which compiled programs are kept between runs, or clear it.

    `--no-cache` trains without it, and so does everything while LOOPLESS_CACHE is 0.

    Args:
        clear: Delete all programs that are kept.
    """
    from loopless.files import cache

    try:
        print(*(cache.describe_cleared() if clear else cache.describe()), sep="\n")
        return 0
    except cache.NoCache as reason:
        print(f"loopless cache: {reason}", file=sys.stderr)
        return 2


def report(
    *runs: Path,
    bench: tuple[Path, ...] = (),
    verify: tuple[Path, ...] = (),
    output: Path = Path("report.html"),
) -> int:
    """Write one page of runs and benchmarks that opens anywhere and loads nothing.

    Exit code 1 means that something could not be read; it is named on the page.

    Args:
        runs: Folders of runs, or a folder that holds some; with nothing named, runs/.
        bench: Files of `loopless bench`, or a folder of them; with nothing named, bench-results/.
        verify: Files of `loopless verify --json`.
        output: File of the page.
    """
    from loopless.report import command

    return command.report(runs, bench, output, verify)


def demo(*parts: str, folder: Path | None = None) -> int:
    """See everything once, small: under five minutes on two cores, and a page at the end.

    Each part runs as a command of its own; exit code 1 means that a part failed, which is named.

    Args:
        parts: verify, returns, q_learning, dqn, ppo, allo, avatarl, sample; all if none is named.
        folder: Where everything goes; the next free demo-results/N if left out.
    """
    from loopless import demo

    return demo.demo(parts, folder)


_RUNS = (train, resume, play, sample, plot, export, presets, cache)
COMMANDS = {function.__name__: function for function in (*_RUNS, verify, bench, report, demo)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _run(words)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `loopless … | head`: the reader has left, and nothing is to be said
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if os.environ.get(SHOW_TRACEBACKS):
            raise
        return _report(words, error)
    finally:
        if arguments is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            # All is saved. Ctrl-C while Python leaves would print a traceback of its exit handlers.
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _report(words: Sequence[str], error: Exception) -> int:
    """Save the traceback of an error that nobody foresaw, say where it is, and return 70."""
    import shlex
    import tempfile
    import traceback

    lines = [f"loopless {shlex.join(words)}\n\n", *traceback.format_exception(error)]
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", errors="backslashreplace",
            prefix="loopless-report-", suffix=".txt", delete=False,
        ) as file:  # fmt: skip
            file.write("".join(lines))
        saved = f"The traceback is in {file.name}"
    except OSError as problem:
        saved = f"The traceback could not be saved ({problem.strerror})"
    first = str(error).partition("\n")[0][:200]
    message = (
        f"loopless: unforeseen {type(error).__name__}: {first}. {saved}; please report it. "
        f"{SHOW_TRACEBACKS}=1 shows tracebacks at once."
    )
    print(printable(message), file=sys.stderr)
    return UNFORESEEN


def _run(words: Sequence[str]) -> int:
    name = words[0] if words else ""
    if name in ("--version", "-V"):
        from loopless import __version__

        print(f"loopless {__version__}")
        return 0
    if name in ("--help", "-h"):
        _show_help()
        return 0
    if name not in COMMANDS:
        problem = f"there is no command {name!r}." if name else "name a command."
        hint = did_you_mean(name, COMMANDS, repr, or_list=True)
        print(printable(f"loopless: {problem}{hint}"), file=sys.stderr)
        return 2
    return flags.run(COMMANDS[name], words[1:], f"loopless {name}")


def _show_help() -> None:
    print("usage: loopless COMMAND ...", "", DESCRIPTION, sep="\n")
    for name, function in COMMANDS.items():
        print(f"  {name:<10}{(function.__doc__ or '').splitlines()[0]}")


if __name__ == "__main__":
    sys.exit(main())
