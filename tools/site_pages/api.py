"""Write the entries of the API pages from docstrings, as Markdown.

The entry of a function is its signature and its docstring; the entry of a class also has its
methods and properties. Docstrings are used as Markdown without changes: their indented formulas
become blocks of code. `filling.py` calls `entry`.
"""

import inspect
from importlib import import_module
from types import UnionType
from typing import Any, get_args

WIDTH = 88


def find(path: str) -> Any:
    """Return the object of a dotted name; AttributeError or ImportError if there is none."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def entry(path: str) -> str:
    """Return the entry of a public name as Markdown, with its heading."""
    thing, name = find(path), path.rpartition(".")[2]
    parts = [anchor(path), f"### {name}", f"`{path}`"]
    if isinstance(thing, UnionType):
        return "\n\n".join(
            [*parts, f"One of {', '.join(f'`{x.__name__}`' for x in get_args(thing))}."]
        )
    if not _is_exception(thing):  # an exception takes a message and has no signature of its own
        parts.append(signature(name, thing))
    parts.append(documented(path, thing))
    if inspect.isclass(thing):
        parts += [member(path, name, value) for name, value in members(thing)]
    return "\n\n".join(parts)


def anchor(name: str) -> str:
    """Return a place that links lead to, on a code host as on the site."""
    return f'<a id="{name}"></a>'


def members(cls: type) -> list[tuple[str, Any]]:
    """Return the documented public methods and properties: of the class, then of its bases."""
    documentable: dict[str, Any] = {}
    for base in cls.__mro__:
        if base.__module__.startswith("loopless"):
            public = {name: x for name, x in vars(base).items() if not name.startswith("_")}
            new = {name: x for name, x in public.items() if _documentable(x)}
            documentable = new | documentable
    of_class = [name for name in vars(cls) if name in documentable]
    names = dict.fromkeys([*of_class, *documentable])
    return [(name, documentable[name]) for name in names]


def member(path: str, name: str, thing: Any) -> str:
    """Return the entry of a method or a property, one level below its class."""
    where = f"{path}.{name}"
    if isinstance(thing, property):
        code = f"```python\n{name}\n```"
    else:
        bound = thing.__func__ if isinstance(thing, classmethod | staticmethod) else thing
        code = signature(name, bound, skip=0 if isinstance(thing, staticmethod) else 1)
    return "\n\n".join([anchor(where), f"#### {name}", code, documented(where, thing)])


def signature(name: str, thing: Any, skip: int = 0) -> str:
    """Return `name(a, b, *, c=1)` as a block of code, broken into lines if it is too long."""
    parameters = list(inspect.signature(thing).parameters.values())[skip:]
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    text = str(inspect.Signature(bare))
    if len(name + text) > WIDTH:
        text = "(\n" + "\n".join(_lines(_split(text[1:-1]))) + "\n)"
    return f"```python\n{name}{text}\n```"


def documented(path: str, thing: Any) -> str:
    """Return the docstring; ValueError if there is none."""
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
    """Put as many arguments on each line as fit."""
    lines = ["   "]
    for argument in arguments:
        if len(lines[-1]) + len(argument) + 2 > WIDTH:
            lines.append("   ")
        lines[-1] += f" {argument},"
    return lines


def _split(inner: str) -> list[str]:
    """Split arguments at the commas that are not inside brackets."""
    parts, depth = [""], 0
    for character in inner:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]
