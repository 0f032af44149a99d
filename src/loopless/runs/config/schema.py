"""The settings of a config class: their names, their types, and how values are read.

A config is a frozen dataclass, perhaps with others nested in it, whose fields all have defaults
and are of type int, float, bool, str, Path, Literal, tuple[X, ...], Table, or X | None with None
as default. Values come from TOML or as words from the command line; both are read here, so that
both mean the same.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints


class Table(dict[str, Any]):
    """A table with any keys, such as the arguments of an environment; nobody changes it."""

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return hash(repr(sorted(self.items())))


def keys_of(cls: type) -> dict[str, Any]:
    """Return the type of every key by its dotted name, such as `replay.capacity`.

    A nested dataclass is a table: its keys are listed, but not the table itself. A field of an
    unknown type raises TypeError.
    """
    return dict(_keys(cls, cls(), ""))


def _keys(cls: type, defaults: Any, prefix: str) -> Iterable[tuple[str, Any]]:
    hints = get_type_hints(cls)
    for field in fields(cls):
        name, hint = prefix + field.name, hints[field.name]
        default = getattr(defaults, field.name)
        if is_dataclass(hint):
            yield from _keys(hint, default, name + ".")  # pyright: ignore[reportArgumentType]
            continue
        describe(hint)
        if is_optional(hint) and default is not None:
            raise TypeError(
                f"config: {name} may be None, so None must be its default: TOML has none"
            )
        yield name, hint


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return {"replay.capacity": 1} as {"replay": {"capacity": 1}}."""
    tree: dict[str, Any] = {}
    for name, value in values.items():
        *tables, last = name.split(".")
        branch = tree
        for table in tables:
            branch = branch.setdefault(table, {})
        branch[last] = value
    return tree


def build(cls: type, values: Mapping[str, Any]) -> Any:
    """Return a config of class `cls` with the nested `values`, and defaults for all others.

    Defaults that depend on other settings are filled in by the class's `__post_init__`.
    """
    default = cls()
    return cls(**{name: _with(getattr(default, name), value) for name, value in values.items()})


def _with(default: Any, value: Any) -> Any:
    """Return `value`; or if it is a table, `default` with the values of the table."""
    if isinstance(value, Table) or not isinstance(value, dict):
        return value
    return replace(default, **{name: _with(getattr(default, name), x) for name, x in value.items()})


def value_of(config: Any, name: str) -> Any:
    """Return the value of a dotted name."""
    for part in name.split("."):
        config = getattr(config, part)
    return config


def is_optional(hint: Any) -> bool:
    """Return whether a type is X | None."""
    return get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint)


def is_many(hint: Any) -> bool:
    """Return whether a type is a tuple, which takes several words."""
    return get_origin(_present(hint)) is tuple


def _present(hint: Any) -> Any:
    """Return X of X | None, and any other type as it is."""
    if not is_optional(hint):
        return hint
    inner = [kind for kind in get_args(hint) if kind is not NoneType]
    return inner[0] if len(inner) == 1 else hint


def describe(hint: Any) -> str:
    """Return in words what a key of this type takes."""
    hint, none = _present(hint), " or None" if is_optional(hint) else ""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(map(_quoted, arguments)) + none
    if origin is tuple and len(arguments) == 2 and arguments[1] is ...:
        return f"a list, each {describe(arguments[0])}{none}"
    if hint not in _READERS:
        raise TypeError(f"config: no field can be of type {hint}; see {__name__}")
    return _READERS[hint].words + none


def placeholder(hint: Any) -> str:
    """Return what stands for a value of this type in the help: INT, PATH, {adam,sgd}."""
    hint = _present(hint)
    if hint is Table:
        return "VALUE"
    if get_origin(hint) is Literal:
        return "{" + ",".join(map(str, get_args(hint))) + "}"
    if get_origin(hint) is tuple:
        return f"{placeholder(get_args(hint)[0])} ..."
    return "TEXT" if hint is str else hint.__name__.upper()


def from_toml(hint: Any, value: Any) -> Any:
    """Convert a value from TOML to the type of its key; raise ValueError if it does not fit."""
    hint = _present(hint)
    if get_origin(hint) is Literal:
        return _only([o for o in get_args(hint) if o == value and type(o) is type(value)])
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise ValueError
        return tuple(from_toml(get_args(hint)[0], item) for item in value)
    return _READERS[hint].value(value)


def from_words(hint: Any, words: list[str]) -> Any:
    """Convert command-line words to the type of their key; raise ValueError if they do not fit."""
    if is_optional(hint) and words == ["None"]:
        return None
    hint = _present(hint)
    if get_origin(hint) is tuple:
        return tuple(from_words(get_args(hint)[0], [word]) for word in words)
    word = _only(words)
    if get_origin(hint) is Literal:
        return _only([option for option in get_args(hint) if str(option) == word])
    return _READERS[hint].word(word)


def to_toml(value: Any) -> Any:
    """Convert a value to what TOML can hold."""
    if isinstance(value, tuple):
        return [to_toml(item) for item in value]
    if isinstance(value, Table):
        return dict(value)
    return str(value) if isinstance(value, Path) else value


def word_to_toml(words: list[str]) -> Any:
    """Return words as TOML would read them: numbers, true and false, lists; all else is text.

    True and False count, too, because the text "False" would be true. Several words are a list.
    """
    if not words:
        raise ValueError
    if len(words) > 1:
        return [word_to_toml([word]) for word in words]
    word = {"True": "true", "False": "false"}.get(words[0], words[0])
    try:
        return tomllib.loads(f"value = {word}")["value"] if "\n" not in word else word
    except ValueError:
        return _text(words[0])


def _only(values: list[Any]) -> Any:
    if len(values) != 1:
        raise ValueError
    return values[0]


def _quoted(option: Any) -> str:
    return f'"{option}"' if isinstance(option, str) else str(option)


def _integer(value: Any) -> int:
    # 1e6 is how people write a million.
    if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
        return int(value)
    if type(value) is not int or not -(2**63) <= value < 2**63:  # the range that TOML promises
        raise ValueError
    return value


def _integer_or_float(word: str) -> int | float:
    try:
        return int(word)
    except ValueError:
        return float(word)


def _number(value: Any) -> float:
    if type(value) is int and abs(value) < 2**63:
        return float(value)
    if type(value) is not float or value != value:  # NaN passes every range check
        raise ValueError
    return value


def _switch(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError
    value.encode("utf-8")  # a UnicodeEncodeError is a ValueError: a file could not hold the text
    return value


def _table(value: Any) -> Table:
    if not isinstance(value, dict):
        raise ValueError
    return Table(value)


class _Reader(NamedTuple):
    """How a plain type is read: its values in words, and functions from TOML and from a word."""

    words: str
    value: Callable[[Any], Any]
    word: Callable[[str], Any]


_READERS: dict[Any, _Reader] = {
    int: _Reader("an integer", _integer, lambda word: _integer(_integer_or_float(word))),
    float: _Reader("a number", _number, lambda word: _number(float(word))),
    bool: _Reader(
        "true or false", _switch, lambda w: _switch({"True": True, "False": False}.get(w))
    ),
    str: _Reader("text", _text, _text),
    Table: _Reader("a table", _table, lambda word: _table(word_to_toml([word]))),
    Path: _Reader("a path", lambda value: Path(_text(value)), lambda word: Path(_text(word))),
}
