"""Write the tables of the pages that are made from the code and the committed results.

The metrics come from the glossary of runs, the commands and flags from the command line itself, the
mutants from `verify`, the claims from benchmarks/results, and the results from
benchmarks/RESULTS.md. `filling.py` calls these functions.
"""

import inspect
import re
from pathlib import Path
from typing import Any

from loopless.bench.result import Measurement, load
from loopless.runs.config.flags import Flag, of_class, of_function
from pages import cell
from pages import markdown_row as line
from site_pages.api import anchor

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def metrics() -> str:
    """Return the glossary: every metric with its unit, its picture and what it means."""
    from loopless.runs.glossary import METRICS

    rows = [
        line([f"`{name}`", m.unit, m.explanation, f"`{m.picture}`" if m.picture else "–"])
        for name, m in METRICS.items()
    ]
    head = [line(["metric", "unit", "what it is", "picture"]), line(["---"] * 4)]
    return "\n".join(head + rows)


def results() -> str:
    """Return benchmarks/RESULTS.md without its heading, marks and links to other files.

    Such links would lead nowhere on the site.
    """
    text = (ROOT / "benchmarks" / "RESULTS.md").read_text()
    text = re.sub(r"<!-- .*? -->\n", "", text.partition("\n")[2])
    return re.sub(r"\[([^\]]+)\]\((?!http)[^)]*\)", r"\1", text)


def claims() -> str:
    """Return what the founding notes claimed and what was measured, suite by suite."""
    files = {path.stem: load(path).measurements for path in sorted(RESULTS.glob("*.json"))}
    texts = {suite: _claims(rows) for suite, rows in files.items()}
    return "\n\n".join(f"### {suite}\n\n{text}" for suite, text in texts.items() if text)


def _claims(rows: list[Measurement]) -> str:
    races = dict.fromkeys((r.section, r.case) for r in rows if r.role == "proposal")
    head = [line(["", "claimed", "measured", "what we saw"]), line(["---", "---", "--:", "---"])]
    blocks = []
    for section, case in races:
        race = [r for r in rows if (r.section, r.case) == (section, case)]
        beside = [r for r in race if r.claim or r.role in ("ours", "reference")]
        again = section != next(place for place, other in races if other == case)
        blocks.append(f"**{case}**" + (f" ({section})" if again else ""))
        blocks.append("\n".join(head + [_claim(row) for row in beside]))
    return "\n\n".join(blocks)


def _claim(row: Measurement) -> str:
    remarks = "; ".join(text for text in (row.reason, row.note) if text)
    return line([_plain(row.contender), _plain(row.claim), cell(row), _plain(remarks)])


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def commands() -> str:
    """Return every subcommand of `loopless` with its description, arguments and defaults."""
    return "\n\n".join(_command(name, function) for name, function in subcommands().items())


def subcommands() -> dict[str, Any]:
    """Return the functions of the command line by name."""
    from loopless import cli

    return cli.COMMANDS


def _command(name: str, function: Any) -> str:
    words = (inspect.getdoc(function) or "").partition("\nArgs:\n")[0]
    return "\n\n".join(
        [
            anchor(name),
            f"## loopless {name}",
            words.strip(),
            _table("argument", of_function(function)),
        ]
    )


def _table(head: str, flags: list[Flag]) -> str:
    rows = [
        line([f"`{flag.spelling}`", _words(flag.text), _default(flag.default)]) for flag in flags
    ]
    return "\n".join([line([head, "what it is", "default"]), line(["---"] * 3), *rows])


def _words(text: str) -> str:
    return _plain(" ".join(text.split()))


def environments() -> str:
    """Return the ids of the compiled environments."""
    from loopless.envs import compiled_ids

    return ", ".join(f"`{name}`" for name in compiled_ids()) + "."


def mutants() -> str:
    """Return a table of the known mistakes: the function, and the sentence about the mistake."""
    from loopless.verify.mutants import MUTANTS

    rows = [line([f"`{m.estimator}`", _words(m.sentence)]) for m in MUTANTS]
    return "\n".join([line(["of", "mistake"]), line(["---"] * 2), *rows])


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty or value is None or value in ((), ""):
        return "–"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"`{' '.join(map(str, value)) if isinstance(value, tuple) else value}`"


def flags(trainer: str) -> str:
    """Return every flag of a trainer with its description in the config and its default."""
    from loopless.train.registry import config_class

    return _table("flag", of_class(config_class(trainer)))
