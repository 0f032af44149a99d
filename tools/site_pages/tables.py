"""Tables of the site that are made from the code and the committed results.

`metrics` from the glossary of runs, `commands` and `flags` from the command line itself, `mutants`
from `verify`, `claims` from benchmarks/results, `results` from the page beside them. Imports
`loopless`. Tests: `tests/test_docs_site.py`.
"""

import ast
import inspect
import re
import textwrap
from dataclasses import fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, get_type_hints

from loopless.bench.result import Measurement, load
from pages import cell
from pages import markdown_row as line

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
_NO_COMMAND = {"main"}


def metrics() -> str:
    """The glossary: every metric with its unit, its picture and what it means."""
    from loopless.runs.glossary import METRICS

    rows = [
        line([f"`{name}`", m.unit, m.explanation, f"`{m.picture}`" if m.picture else "–"])
        for name, m in METRICS.items()
    ]
    head = [line(["metric", "unit", "what it is", "picture"]), line(["---"] * 4)]
    return "\n".join(head + rows)


def results() -> str:
    """benchmarks/RESULTS.md without its heading; links out of it lead nowhere here."""
    text = (ROOT / "benchmarks" / "RESULTS.md").read_text()
    text = text.partition("\n")[2]
    return re.sub(r"\[([^\]]+)\]\((?!http)[^)]*\)", r"\1", text)


def claims() -> str:
    """What the founding notes proposed and claimed, and what was measured, suite by suite."""
    files = {path.stem: load(path).measurements for path in sorted(RESULTS.glob("*.json"))}
    shown = {suite: _claims(rows) for suite, rows in files.items()}
    return "\n\n".join(f"### {suite}\n\n{text}" for suite, text in shown.items() if text)


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
    seen = "; ".join(text for text in (row.reason, row.note) if text)
    return line([_plain(row.contender), _plain(row.claim), cell(row), _plain(seen)])


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def commands() -> str:
    """Every subcommand of `loopless` with its words, arguments and defaults."""
    return "\n\n".join(_command(name, function) for name, function in subcommands().items())


def subcommands() -> dict[str, Any]:
    """The functions of the command line by name, in the order of its text."""
    from loopless import cli

    return {
        name: x
        for name, x in vars(cli).items()
        if inspect.isfunction(x) and x.__module__ == cli.__name__ and name not in _NO_COMMAND
        if not name.startswith("_")
    }


def _command(name: str, function: Any) -> str:
    words, _, arguments = (inspect.getdoc(function) or "").partition("\nArgs:\n")
    explained = dict(re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", arguments, re.MULTILINE))
    hints = get_type_hints(function, include_extras=True)
    rows = []
    for key, parameter in inspect.signature(function).parameters.items():
        text = explained.get(key) or _note(hints[key], "help")
        if not text:
            raise ValueError(f"docs: nothing explains {key} of `loopless {name}`.")
        rows.append(
            line([_spelled(parameter, hints[key]), _words(text), _default(parameter.default)])
        )
    head = [line(["argument", "what it is", "default"]), line(["---"] * 3)]
    table = "\n".join(head + rows) if rows else ""
    return "\n\n".join([f"## loopless {name} {{ #{name} }}", words.strip(), table])


def _note(hint: Any, name: str) -> str:
    """What `arg(name=…, help=…)` says within an annotation."""
    texts = [getattr(note, name, None) for note in getattr(hint, "__metadata__", ())]
    return next(filter(None, texts), "")


def _words(text: str) -> str:
    return _plain(" ".join(text.split()))


def environments() -> str:
    """The ids of the compiled environments."""
    from loopless.envs import compiled_ids

    return ", ".join(f"`{name}`" for name in compiled_ids()) + "."


def mutants() -> str:
    """The known mistakes by what they break, each with its sentence."""
    from loopless.verify.mutants import MUTANTS

    rows = [line([f"`{m.estimator}`", _words(m.sentence)]) for m in MUTANTS]
    return "\n".join([line(["of", "mistake"]), line(["---"] * 2), *rows])


def _spelled(parameter: inspect.Parameter, hint: Any) -> str:
    if "Positional" in str(parameter.annotation):
        return f"`{_note(hint, 'metavar') or parameter.name.upper()}`"
    return _flag(_note(hint, "name") or parameter.name)


def _flag(name: str) -> str:
    return f"`--{name.replace('_', '-')}`"


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty or value is None or value in ((), ""):
        return "–"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"`{' '.join(map(str, value)) if isinstance(value, tuple) else value}`"


def flags(trainer: str) -> str:
    """Every flag of a trainer with its default and the config's own words."""
    from loopless.train.registry import config_class

    cls = config_class(trainer)
    head = [line(["flag", "what it is", "default"]), line(["---"] * 3)]
    return "\n".join(head + _flags(cls, cls(), ""))


def _flags(cls: type, defaults: Any, prefix: str) -> list[str]:
    words, hints = _field_words(cls), get_type_hints(cls)
    rows: list[str] = []
    for field in fields(cls):  # pyright: ignore[reportArgumentType]
        value = getattr(defaults, field.name)
        if is_dataclass(hints[field.name]):
            rows += _flags(hints[field.name], value, f"{prefix}{field.name}.")
            continue
        name = _flag(prefix + field.name)
        rows.append(line([name, _plain(words.get(field.name, "")), _default(value)]))
    return rows


def _field_words(cls: type) -> dict[str, str]:
    """The string under each field of a dataclass, its bases' included."""
    words: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not is_dataclass(base):
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        for before, after in pairwise(tree.body[0].body):  # pyright: ignore[reportAttributeAccessIssue]
            match before, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                    value=ast.Constant(value=text)
                ):
                    words[name] = " ".join(str(text).split())
    return words
