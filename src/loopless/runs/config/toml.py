"""The config of a run: a TOML file first, then the flags of the command line, checked together.

    config = resolve(DQN, sys.argv[3:], prog="loopless train dqn")      # may raise BadConfig
    text = to_toml(config);  from_toml(DQN, text) == config

A config class may have a method `problems()`, which says in words which of its values make no
sense. It sees the merged config, before anything is allocated.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from loopless.files import atomic
from loopless.refusals import did_you_mean
from loopless.runs.config import flags, schema
from loopless.runs.config.flags import Flag
from loopless.runs.failures import BadConfig

LARGEST_FILE = 1 << 20  # bytes; a config has a few thousand
DEEPEST = 16  # tables in tables; ours have two
MOST_PROBLEMS = 20  # that are listed
MOST_LINES = 100  # of a statement whose first line is looked for

_STRINGS = re.compile(
    r'''"""(?:\\.|(?!""").)*+(?:"""|\Z)|\'{3}(?:(?!\'{3}).)*+(?:\'{3}|\Z)'''
    r"""|"(?:\\.|[^"\\\n])*+(?:"|$)|\'[^\'\n]*+(?:\'|$)|\#[^\n]*+""",
    re.DOTALL | re.MULTILINE,
)  # and comments
_BRACKETS = re.compile(r"[\[\]{}]")
_DEEP_KEY = re.compile(rf'(?:(?:[\w-]++|"")[ \t]*+\.[ \t]*+){{{DEEPEST}}}')
FILE = Flag("config", Path | None, None, "TOML file with settings; flags override it.")
PRESET = Flag(
    "preset", str | None, None,
    "Settings that are known to work, by name (`loopless presets`); file and flags override them.",
)  # fmt: skip

Config = TypeVar("Config")


def resolve(
    cls: type[Config],
    arguments: Sequence[str],
    prog: str,
    preset: Callable[[str], Path] | None = None,
) -> Config:
    """Return the config that a command line describes; `preset` finds the file of `--preset NAME`.

    All problems of files, flags and values make one BadConfig. `--help` prints the flags and exits.
    """
    known = [FILE, *([PRESET] if preset else []), *flags.of_class(cls)]
    if {"-h", "--help"} & set(arguments):
        flags.show_help(prog, cls.__doc__ or "", known, getattr(cls, "GROUPS", None))
        raise SystemExit(0)
    from_flags, problems = flags.read(known, arguments)
    files: list[Path] = []
    if preset and (name := from_flags.pop("preset", None)) is not None:
        try:
            files.append(preset(name))
        except BadConfig as error:
            problems += error.problems
    if (file := from_flags.pop("config", None)) is not None:
        files.append(file)
    from_file: dict[str, Any] = {}
    for file in files:
        values, wrong = read_file(cls, file)
        from_file |= values
        problems = wrong + problems
    for name, value in from_flags.items():
        if isinstance(value, schema.Table):  # flags add to a table of the file
            from_flags[name] = schema.Table({**from_file.get(name, {}), **value})
    return _checked(cls, from_file | from_flags, problems)


def read_file(cls: type, file: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the settings of class `cls` in a file by dotted name, and all problems, in words."""
    text, unreadable = _read(file)
    values, wrong = _parse(schema.keys_of(cls), text, str(file))
    return values, unreadable + wrong


def from_values(
    cls: type[Config], values: Mapping[str, Any], caller: str, preset: Path | None = None
) -> Config:
    """Return the config with these values, as Python passes them; `preset` is a file below them.

    All problems make one BadConfig. None means the default of a setting that may be left out.
    """
    keys = schema.keys_of(cls)
    settings, problems = read_file(cls, preset) if preset else ({}, [])
    for name, value in values.items():
        if name not in keys:
            problems.append(f"{caller} has no setting {name!r}.{did_you_mean(name, keys, repr)}")
        elif value is not None:
            try:
                settings[name] = schema.from_toml(keys[name], _as_toml(value))
            except ValueError:
                kind = schema.describe(keys[name])
                problems.append(f"{name} must be {kind}; received {_show(value)}.")
    return _checked(cls, settings, problems)


def _as_toml(value: Any) -> Any:
    """Return a value of Python's as TOML has it: NumPy's numbers are numbers, tuples are lists."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_as_toml(item) for item in value]
    if isinstance(value, dict):
        return schema.Table({name: _as_toml(item) for name, item in value.items()})
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    raise ValueError


def from_toml(cls: type[Config], text: str, source: str = "config.toml") -> Config:
    """Return the config that `text` describes; what it does not mention has its default."""
    return _checked(cls, *_parse(schema.keys_of(cls), text, source))


def from_run(cls: type[Config], text: str, source: str) -> Config:
    """Return the config of a run; a setting that it does not mention means what it meant before.

    That is its default, unless `cls.BEFORE` knows how runs were made before there was the setting.
    """
    values, problems = _parse(schema.keys_of(cls), text, source)
    return _checked(cls, {**getattr(cls, "BEFORE", {}), **values}, problems)


def to_toml(config: Any, header: str = "") -> str:
    """Return all values of a config as TOML, for `from_toml`. None is left out."""
    import tomli_w

    values = {name: schema.value_of(config, name) for name in schema.keys_of(type(config))}
    plain = {name: schema.to_toml(value) for name, value in values.items() if value is not None}
    comment = "".join(f"# {line}\n" for line in header.splitlines())
    return comment + tomli_w.dumps(schema.nested(plain))


def parse(text: str) -> dict[str, Any]:
    """Return the tree of a TOML text, which may come from anybody; ValueError says what is wrong.

    A text that is nested deeply is refused before it is parsed: tomllib takes minutes for a few
    thousand dots, and no recursion would end.
    """
    plain = _STRINGS.sub('""', text)
    depth = deepest = 0
    for bracket in _BRACKETS.findall(plain):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    if deepest > DEEPEST or _DEEP_KEY.search(plain):
        raise ValueError(f"it is nested more than {DEEPEST} deep")
    return tomllib.loads(text)


def tree_of(config: Any) -> dict[str, Any]:
    """Return all values of a config as a tree of plain values."""
    return tomllib.loads(to_toml(config))


def _checked(cls: type[Config], values: Mapping[str, Any], problems: list[str]) -> Config:
    config = schema.build(cls, schema.nested(values))
    problems = [*problems, *getattr(config, "problems", list)()]
    if problems:
        raise BadConfig(problems)
    return config


def _read(file: Path) -> tuple[str, list[str]]:
    try:
        return atomic.read_small(file, LARGEST_FILE).decode(), []
    except FileNotFoundError:
        return "", [f"there is no file {file}."]
    except UnicodeDecodeError:
        return "", [f"{file} is not text in UTF-8."]
    except OSError as error:
        return "", [f"cannot read {file}: {error.strerror}."]


def _parse(keys: Mapping[str, Any], text: str, source: str) -> tuple[dict[str, Any], list[str]]:
    """Return the values in a TOML text by dotted name, and all problems, in words."""
    try:
        tree = parse(text)
    except ValueError as error:  # also of integers with thousands of digits
        return {}, [f"{source} is not TOML: {error}."]
    values, wrong = _read_values(keys, tree)
    lines = _lines(text) if wrong else {}
    names = [*keys, *_tables(keys)]
    problems = [
        _problem(name, why, source, lines, names)
        for name, why in islice(wrong.items(), MOST_PROBLEMS)
    ]
    if len(wrong) > MOST_PROBLEMS:
        problems.append(f"{source} has {len(wrong) - MOST_PROBLEMS:,} more such problems.")
    return values, problems


def read_tree(cls: type, tree: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the settings of class `cls` in a tree by dotted name, and what is wrong by name."""
    return _read_values(schema.keys_of(cls), tree)


def _read_values(
    keys: Mapping[str, Any], tree: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    values: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    tables = _tables(keys)
    for name, value in _leaves(tree, tables):
        if name in keys:
            try:
                values[name] = schema.from_toml(keys[name], value)
            except ValueError:
                wrong[name] = f"must be {schema.describe(keys[name])}; received {_show(value)}."
        elif name in tables:
            wrong[name] = f"must be a table, [{name}]; received {_show(value)}."
        else:
            wrong[name] = ""
    return values, wrong


def _tables(keys: Mapping[str, Any]) -> set[str]:
    return {name[:dot] for name in keys for dot in _dots(name)}


def _problem(name: str, why: str, source: str, lines: Mapping[str, int], names: list[str]) -> str:
    where = f'"{_cut(name, 80)}" in {source}, line {lines.get(name, "?")}'
    if why:
        return f"{where}, {why}"
    return f"unknown key {where}." + did_you_mean(name, names, '"{}"'.format)


def _dots(name: str) -> Iterator[int]:
    return (at for at, letter in enumerate(name) if letter == ".")


def _leaves(
    tree: Mapping[str, Any], tables: set[str], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield dotted names and values; a dict is a value unless it stands where a table belongs."""
    for key, value in tree.items():
        if isinstance(value, dict) and prefix + key in tables:
            yield from _leaves(value, tables, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _show(value: Any) -> str:
    return _cut("a table" if isinstance(value, dict) else repr(value), 60)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _lines(text: str) -> dict[str, int]:
    """Return the line on which each dotted name of a valid TOML text begins.

    tomllib does not say, so the text is parsed once more, statement by statement: lines are taken
    until they make sense under the table header that stands above them.
    """
    first_lines: dict[str, int] = {}
    header, statement, start = "", "", 1
    for number, line in enumerate(text.split("\n"), 1):
        statement += line + "\n"
        if statement.lstrip().startswith("["):
            header, candidate = statement, statement
        else:
            candidate = header + statement
        try:
            tree = tomllib.loads(candidate)
        except tomllib.TOMLDecodeError:
            if number - start > MOST_LINES:  # each attempt parses all of them
                break
            continue
        for name in _names(tree):
            first_lines.setdefault(name, start)
        statement, start = "", number + 1
    return first_lines


def _names(tree: Any, prefix: str = "") -> Iterator[str]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield prefix + key
            yield from _names(value, f"{prefix}{key}.")
