"""The command line: `loopless play RUN --episodes 5`, `loopless train dqn --hidden 64 64`.

A `Flag` is one setting. The flags of a trainer are the fields of its config class; those of any
other command are the parameters of its function, whose positional parameters are words without a
flag. All mistakes are reported at once, together with those of a config file. For the values
themselves see `schema`.
"""

import ast
import inspect
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, get_type_hints

from loopless.refusals import did_you_mean, printable
from loopless.runs.config import schema
from loopless.runs.config.schema import Table

# A negative number is a value: -3, -.5, -1e-4, -inf.
_FLAG = re.compile(r"--?(?!\d|\.\d|inf$)[^\s=]")
_HELP = ("-h", "--help")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
OTHER_SPELLINGS = {"--out": "--output"}  # of an earlier version
_TEXT_COLUMN = 24  # where explanations begin in the help


class Flag(NamedTuple):
    """One setting of a command: its name in Python, its type, its default and its explanation."""

    name: str
    hint: Any
    default: Any
    text: str
    is_positional: bool = False

    @property
    def spelling(self) -> str:
        """How it is written on the command line."""
        name = self.name.rstrip("_").replace("_", "-")
        name += ".NAME" if self.hint is schema.Table else ""
        return name.upper() if self.is_positional else f"--{name}"

    @property
    def negation(self) -> str:
        """How a switch is turned off: `--no-double`, `--replay.no-prioritized`."""
        tables, dot, last = self.spelling.removeprefix("--").rpartition(".")
        return f"--{tables}{dot}no-{last}"


def of_class(cls: type) -> list[Flag]:
    """Return the flags of a config class: its fields, and those of nested classes, dotted."""
    default = cls()
    return [
        Flag(name, hint, schema.value_of(default, name), _field_text(cls, name))
        for name, hint in schema.keys_of(cls).items()
    ]


def of_function(function: Callable[..., Any]) -> list[Flag]:
    """Return the words and flags of a command: the parameters of its function."""
    hints = get_type_hints(function)
    texts = _arguments_text(function)
    flags = []
    for name, parameter in inspect.signature(function).parameters.items():
        many = parameter.kind is inspect.Parameter.VAR_POSITIONAL
        hint = tuple[hints[name], ...] if many else hints[name]
        default = () if many else parameter.default
        flags.append(Flag(name, hint, default, texts[name], parameter.kind in _POSITIONAL))
    return flags


def run(function: Callable[..., int], words: Sequence[str], prog: str) -> int:
    """Call a command with the arguments that `words` describe, and return its exit code.

    A function with the parameter `*arguments` gets all words unread. Mistakes are printed, and the
    exit code is 2.
    """
    flags = of_function(function)
    if words and any(flag.name == "arguments" for flag in flags) and words[0] not in _HELP:
        return function(*words)
    if set(_HELP) & set(words):
        show_help(prog, inspect.getdoc(function) or "", flags)
        return 0
    values, problems = read(flags, words)
    positional = [flag for flag in flags if flag.is_positional]
    problems += [
        f"{flag.spelling} is missing."
        for flag in positional
        if flag.name not in values and flag.default is inspect.Parameter.empty
    ]
    if problems:
        text = "\n".join(f"{prog}: {problem}" for problem in problems)
        print(printable(text), file=sys.stderr)
        return 2
    first: list[Any] = []
    for flag in positional:
        value = values.pop(flag.name, flag.default)
        first += value if schema.is_many(flag.hint) else [value]
    return function(*first, **values)


def read(flags: Sequence[Flag], arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the values that `arguments` give to `flags`, and all problems, in words."""
    spelled = {flag.spelling: flag for flag in flags if not flag.is_positional}
    negated = {flag.negation: flag for flag in spelled.values() if flag.hint is bool}
    positional = [flag for flag in flags if flag.is_positional]
    values: dict[str, Any] = {}
    problems: list[str] = []
    free: list[str] = []  # words that belong to no flag

    def leave(words: list[str], why: str) -> None:
        if words and not positional:
            problems.append(f"{' '.join(words)!r} belongs to no flag: {why}.")
        free.extend(words)

    tables = {flag.spelling.removesuffix("NAME"): flag for flag in flags if flag.hint is Table}
    for spelling, words in _groups(arguments):
        name = spelling.replace("_", "-")
        name = name if name in spelled else OTHER_SPELLINGS.get(name, name)
        table, dot, key = spelling.partition(".")
        if not spelling:
            leave(words, "a flag begins with --")
        elif key and table.replace("_", "-") + dot in tables:
            flag = tables[table.replace("_", "-") + dot]
            try:
                value = schema.word_to_toml(words)
                values[flag.name] = Table({**values.get(flag.name, {}), key: value})
            except ValueError:
                problems.append(f"{spelling} must have a value, as in TOML; received none.")
        elif name in negated:
            values[negated[name].name] = False
            leave(words, f"{spelling} takes no value")
        elif name not in spelled:
            near = did_you_mean(name, [*spelled, *negated]) or " See --help."
            problems.append(f"unknown flag {spelling}.{near}")
            free.extend(words)
        elif (flag := spelled[name]).hint is bool:
            values[flag.name] = True
            leave(words, f"{spelling} takes no value; its opposite is {flag.negation}")
        else:
            if not schema.is_many(flag.hint):
                leave(words[1:], f"{spelling} takes one value")
                words = words[:1]
            _read_value(values, problems, flag, words, spelling)
    if positional:
        problems += _read_positional(values, positional, free)
    return values, problems


def _read_positional(values: dict[str, Any], flags: list[Flag], words: list[str]) -> list[str]:
    problems: list[str] = []
    for flag in flags:
        count = len(words) if schema.is_many(flag.hint) else 1
        if words:
            _read_value(values, problems, flag, words[:count], flag.spelling)
        words = words[count:]
    return problems + ([f"unexpected {' '.join(words)!r}. See --help."] if words else [])


def _read_value(
    values: dict[str, Any], problems: list[str], flag: Flag, words: list[str], spelling: str
) -> None:
    try:
        if not words and not flag.is_positional:
            raise ValueError
        value = schema.from_words(flag.hint, words)
        # Names may be given one flag each: --wrapper a:A --wrapper b:B.
        before = values.get(flag.name, ()) if flag.hint == tuple[str, ...] else ()
        values[flag.name] = (*before, *value) if before else value
    except ValueError:
        received = repr(" ".join(words)[:200]) if words else "no value"
        problems.append(f"{spelling} must be {schema.describe(flag.hint)}; received {received}.")


def _groups(arguments: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return each flag with the words that follow it. Words before the first flag belong to ""."""
    groups: list[tuple[str, list[str]]] = []
    for word in arguments:
        if _FLAG.match(word):
            flag, equals, value = word.partition("=")
            groups.append((flag, [value] if equals else []))
        elif groups:
            groups[-1][1].append(word)
        else:
            groups.append(("", [word]))
    return groups


def show_help(
    prog: str,
    documentation: str,
    flags: Sequence[Flag],
    groups: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Print what a command does, and its words and flags with types, defaults and explanations.

    groups: names of flags by the heading that they stand under; all others come last.
    """
    words = [_usage(flag) for flag in flags if flag.is_positional]
    named = [flag for flag in flags if not flag.is_positional]
    print("usage:", prog, *words, *(["[flags]"] if named else []))
    text = inspect.cleandoc(documentation).partition("\nArgs:\n")[0].strip()
    print("", "\n\n".join(map(_fit, text.split("\n\n"))), "", sep="\n")
    for flag in flags:
        if flag.is_positional:
            _print_entry(flag.spelling, flag.text)
    for number, (heading, members) in enumerate(_grouped(named, groups or {}).items()):
        if heading:
            print("\n" if number else "", f"{heading}:", sep="")
        for flag in members:
            switch = flag.hint is bool
            kind = f", {flag.negation}" if switch else f" {schema.placeholder(flag.hint)}"
            _print_entry(f"{flag.spelling}{kind}", f"{flag.text} {_default(flag.default)}".strip())


def _grouped(flags: Sequence[Flag], groups: Mapping[str, Sequence[str]]) -> dict[str, list[Flag]]:
    """Return the flags under each heading, in the order of the headings; the rest is last."""
    heading_of = {name: heading for heading, names in groups.items() for name in names}
    found: dict[str, list[Flag]] = {heading: [] for heading in groups}
    for flag in flags:
        found.setdefault(heading_of.get(flag.name, "learning" if groups else ""), []).append(flag)
    return {heading: members for heading, members in found.items() if members}


def _fit(paragraph: str) -> str:
    """Return a paragraph with lines as wide as the terminal; a list or code stays as it is."""
    if any(line.startswith(" ") for line in paragraph.splitlines()):
        return paragraph
    return textwrap.fill(" ".join(paragraph.split()), _width())


def _width() -> int:
    return min(shutil.get_terminal_size().columns, 100)


def _usage(flag: Flag) -> str:
    return f"[{flag.spelling} ...]" if schema.is_many(flag.hint) else flag.spelling


def _default(value: Any) -> str:
    if value is None or value in ((), "", {}):
        return ""
    if isinstance(value, bool):
        return f"(default: {'on' if value else 'off'})"
    return f"(default: {' '.join(map(str, value)) if isinstance(value, tuple) else value})"


def _print_entry(name: str, text: str) -> None:
    lines = textwrap.wrap(text, max(30, _width() - _TEXT_COLUMN)) or [""]
    head = f"  {name}"
    if len(head) >= _TEXT_COLUMN:
        print(head)
        head = ""
    for line in lines:
        print(f"{head:<{_TEXT_COLUMN}}{line}")
        head = ""


def _field_text(cls: type, name: str) -> str:
    """Return the string under a field of a dataclass, or of one that it inherits or holds."""
    table, _, rest = name.partition(".")
    if rest:
        return _field_text(get_type_hints(cls)[table], rest)
    return next((texts[name] for base in cls.__mro__ if name in (texts := _field_texts(base))), "")


@cache
def _field_texts(cls: type) -> dict[str, str]:
    if not is_dataclass(cls):
        return {}
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    texts: dict[str, str] = {}
    for field, below in pairwise(tree.body[0].body):  # pyright: ignore[reportAttributeAccessIssue]
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=text)):
                texts[name] = " ".join(str(text).split())
    return texts


def _arguments_text(function: Callable[..., Any]) -> Mapping[str, str]:
    """Return what the section "Args:" of a docstring says of each parameter."""
    arguments = (inspect.getdoc(function) or "").partition("\nArgs:\n")[2]
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", arguments, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}
