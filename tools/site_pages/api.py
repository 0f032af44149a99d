"""An entry of the API pages, from the docstrings: `::: loopless.gae` in Markdown.

A function is its signature and its docstring; a class has its methods and properties under it.
Docstrings are Markdown as they are: their indented formulae are blocks of code. Imports what is
asked for. Tests: `tests/test_docs_api.py`.
"""

import inspect
from importlib import import_module
from types import UnionType
from typing import Any, get_args

WIDTH = 88


def find(path: str) -> Any:
    """The object of a dotted name; AttributeError or ImportError if there is none."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def entry(path: str) -> str:
    """Markdown of a public name, from its heading on."""
    thing, name = find(path), path.rpartition(".")[2]
    parts = [f"### {name} {{ #{path} }}", f"`{path}`{{ .home }}"]
    if isinstance(thing, UnionType):
        return "\n\n".join(
            [*parts, f"One of {', '.join(f'`{x.__name__}`' for x in get_args(thing))}."]
        )
    if not _is_exception(thing):  # theirs take a message, and Python knows no more of them
        parts.append(signature(name, thing))
    parts.append(documented(path, thing))
    if inspect.isclass(thing):
        parts += [member(path, *one) for one in members(thing)]
    return "\n\n".join(parts)


def members(cls: type) -> list[tuple[str, Any]]:
    """Public methods and properties with words of ours, in their order, bases after the class."""
    found: dict[str, Any] = {}
    for base in cls.__mro__:
        if base.__module__.startswith("loopless"):
            public = {name: x for name, x in vars(base).items() if not name.startswith("_")}
            found = {name: x for name, x in public.items() if _documentable(x)} | found
    own = [name for name in vars(cls) if name in found]
    return [(name, found[name]) for name in dict.fromkeys([*own, *found])]


def member(path: str, name: str, thing: Any) -> str:
    """A method or a property, one level below its class."""
    where = f"{path}.{name}"
    if isinstance(thing, property):
        shown = f"```python\n{name}\n```"
    else:
        bound = thing.__func__ if isinstance(thing, classmethod | staticmethod) else thing
        shown = signature(name, bound, skip=0 if isinstance(thing, staticmethod) else 1)
    return "\n\n".join([f"#### {name} {{ #{where} }}", shown, documented(where, thing)])


def signature(name: str, thing: Any, skip: int = 0) -> str:
    """`name(a, b, *, c=1)` as a block of code, its arguments on lines of their own if need be."""
    parameters = list(inspect.signature(thing).parameters.values())[skip:]
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    text = str(inspect.Signature(bare))
    if len(name + text) > WIDTH:
        text = "(\n" + "\n".join(_lines(_split(text[1:-1]))) + "\n)"
    return f"```python\n{name}{text}\n```"


def documented(path: str, thing: Any) -> str:
    """The docstring; ValueError if there is none."""
    text = inspect.getdoc(thing)
    if not text:
        raise ValueError(f"docs: {path} has no docstring.")
    return text


def _is_exception(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, Exception)


def _documentable(x: Any) -> bool:
    methods = classmethod | staticmethod | property
    return bool(inspect.getdoc(x)) and (isinstance(x, methods) or inspect.isfunction(x))


def _lines(arguments: list[str]) -> list[str]:
    """As many arguments on a line as fit."""
    lines = ["   "]
    for argument in arguments:
        if len(lines[-1]) + len(argument) + 2 > WIDTH:
            lines.append("   ")
        lines[-1] += f" {argument},"
    return lines


def _split(inner: str) -> list[str]:
    """Arguments at the commas that stand in no bracket."""
    parts, depth = [""], 0
    for character in inner:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]
