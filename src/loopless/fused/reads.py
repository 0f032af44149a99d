"""What a loss reads besides its arguments: tensors and numbers in closures, globals and objects.

A tensor that the loss reads this way is an input of the compiled program. A number is part of it,
so that another number is another program. Both are looked up anew at each call. `read` finds them
from the bytecode of the loss and of the functions that it calls: every chain `name.attribute[key]`
that begins at a global, at a variable of an enclosing function or at an argument. What
`Reading.watch` adds to a guard is what a later call pays: it compares identities, and everything
else is done again if one differs.
"""

import dis
import functools
import inspect
import types
from collections.abc import Iterator
from operator import is_
from typing import Any

import numpy as np
import torch

from loopless.fused.guard import Guard

_STATIC = (bool, int, float, complex, str, bytes, type(None), np.generic, torch.dtype, torch.device)
_LIBRARIES = ("torch", "numpy", "jax", "builtins", "math", "functools", "typing", "collections")
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_LAWS = (torch.distributions.Distribution, torch.distributions.Transform)
_MOST = 2000  # entries of a container that are looked at

Chain = tuple[str, tuple]  # the first name, then ("attribute", name) and ("key", constant)


class Reading:
    """The tensors, numbers and modules that some functions read, and how to notice a change."""

    def __init__(self):
        self.tensors: list[torch.Tensor] = []
        self.names: list[str] = []
        self.modules: list[torch.nn.Module] = []
        self.numbers: dict[str, Any] = {}
        self._places: dict[int, int] = {}
        self._entries: list[tuple] = []
        self._seen: set = set()
        self._kept: list = []  # objects whose identities are in `_seen`
        self._dicts: dict[int, tuple[Any, dict]] = {}
        self._sized: list = []
        self._cells: dict[int, tuple[Any, Any]] = {}
        self._lists: list[tuple[list, list]] = []
        self._arrays: list[tuple[np.ndarray, bytes]] = []
        self._hooks: list = [*global_hooks().values()]

    @property
    def signature(self) -> tuple:
        """What decides which program fits: paths, numbers, and the kinds of tensors."""
        return tuple(self._entries)

    def place(self, tensor: torch.Tensor) -> int | None:
        """Return where a tensor stands in `tensors`, or None."""
        return self._places.get(id(tensor))

    def index(self, tensor: torch.Tensor) -> int:
        """Return where a tensor that has been read stands in `tensors`."""
        return self._places[id(tensor)]

    def watch(self, guard: Guard) -> None:
        """Have a guard notice when something that was read has been replaced."""
        for holder, entries in self._dicts.values():
            for name, value in entries.items():
                guard.add("{}[{}] is {}", holder, name, value)
        empty = [holder for holder in self._sized if not holder]
        guard.add("not any({})", [*self._hooks, *empty])
        for cell, contents in self._cells.values():
            guard.add("{}.cell_contents is {}", cell, contents)
        for holder in self._sized:
            if holder:
                guard.add("len({}) == {}", holder, len(holder))
        for holder, values in self._lists:
            guard.add("len({}) == {}", holder, len(values))
            guard.add("all(map({}, {}, {}))", is_, holder, values)
        for array, data in self._arrays:
            guard.add("{}.tobytes() == {}", array, data)

    def tensor(self, path: str, tensor: torch.Tensor) -> int:
        """Note a tensor and return its place; a tensor that is met again keeps its first place."""
        place = self._places.setdefault(id(tensor), len(self.tensors))
        if place == len(self.tensors):
            self.tensors.append(tensor)
            self.names.append(path)
        kind = tensor.shape, tensor.dtype, tensor.requires_grad
        self._entries.append((path, place, *kind))
        return place

    def value(self, path: str, value: Any) -> None:
        """Note a value that a function reads, and what can be reached from it."""
        if isinstance(value, torch.Tensor):
            self.tensor(path, value)
        elif isinstance(value, _STATIC):
            self.numbers[path] = value
            self._entries.append((path, type(value), value))
        elif isinstance(value, torch.nn.Module):
            self.module(path, value)
        elif isinstance(value, types.FunctionType | types.MethodType | functools.partial):
            self.function(path, value)
        elif isinstance(value, type | types.ModuleType | types.BuiltinFunctionType):
            self._entries.append((path, value))
        elif self._is_new(value):
            self._contents_of(path, value)

    def module(self, path: str, module: torch.nn.Module) -> None:
        """Note a module's parameters, buffers and settings, and what its own `forward` reads."""
        if not self._is_new(module):
            self._entries.append((path, [m is module for m in self.modules].index(True)))
            return
        self._entries.append((path, type(module)))
        self.modules.append(module)
        fields = vars(module)
        self._hooks += [fields[kind] for kind in HOOKS]
        for kind in ("_parameters", "_buffers", "_modules"):
            self._sized.append(fields[kind])
            for name, part in fields[kind].items():
                self._watch(fields[kind], name)
                self.value(f"{path}.{name}", part)
        for name, value in fields.items():
            if not name.startswith("_") and not callable(value):
                self._watch(fields, name)
                self.value(f"{path}.{name}", value)
        if not type(module).__module__.startswith("torch."):
            self.function(f"{path}.forward", types.MethodType(type(module).forward, module))

    def function(self, path: str, function: Any, arguments: dict[str, Any] | None = None) -> None:
        """Note what a function reads; `arguments` are those of its arguments that are known."""
        if isinstance(function, functools.partial):
            self.value(f"{path}.args", function.args)
            self.value(f"{path}.keywords", function.keywords)
            self.value(path, function.func)
            return
        arguments = dict(arguments or {})
        if isinstance(function, types.MethodType):
            owner, function = function.__self__, function.__func__
            code = getattr(function, "__code__", None)
            if code is not None and code.co_argcount:
                arguments[code.co_varnames[0]] = owner
        if not isinstance(function, types.FunctionType) or _is_library(function.__module__):
            return
        if not self._is_new(
            (function.__code__, *sorted((k, id(v)) for k, v in arguments.items())), keep=arguments
        ):
            return
        self._entries.append((path, function.__code__))
        for name, value in _defaults(function).items():
            if name not in arguments:
                self.value(f"{path}({name})", value)
                arguments[name] = value
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for base, steps in _chains(function.__code__):
            if base in arguments:
                self._follow(base, arguments[base], steps)
            elif base in cells:
                try:
                    value = cells[base].cell_contents
                except ValueError:  # not yet assigned
                    continue
                self._cells[id(cells[base])] = cells[base], value
                self._follow(base, value, steps)
            elif base in function.__globals__ and base not in function.__code__.co_varnames:
                value = function.__globals__[base]
                if not (isinstance(value, types.ModuleType) and _is_library(value.__name__)):
                    self._watch(function.__globals__, base)
                    self._follow(base, value, steps)

    def _follow(self, path: str, value: Any, steps: tuple) -> None:
        for kind, name in steps:
            if isinstance(value, (torch.Tensor, np.ndarray, *_STATIC)):
                break
            if kind == "key":
                if not isinstance(value, dict | list | tuple):
                    break
                path = f"{path}[{name!r}]"
                try:
                    part = value[name]
                except (KeyError, IndexError, TypeError):
                    return
                if isinstance(value, dict):
                    self._watch(value, name)
                elif isinstance(value, list):
                    self._lists.append((value, list(value)))
                value = part
                continue
            path, value = f"{path}.{name}", self._attribute(f"{path}.{name}", value, name)
            if value is _NOTHING:
                return
        self.value(path, value)

    def _attribute(self, path: str, owner: Any, name: str) -> Any:
        """Return an attribute's value, or _NOTHING where it is not simply stored."""
        if isinstance(owner, types.ModuleType) and _is_library(owner.__name__):
            return _NOTHING
        fields = getattr(owner, "__dict__", {})
        holders = [fields]
        if isinstance(owner, torch.nn.Module):
            holders += [fields["_parameters"], fields["_buffers"], fields["_modules"]]
        for holder in holders:
            if name in holder:
                self._watch(holder, name)
                return holder[name]
        classes = owner.__mro__ if isinstance(owner, type) else type(owner).__mro__
        holder = next((vars(cls) for cls in classes if name in vars(cls)), {})
        found = holder.get(name, _NOTHING)
        if isinstance(found, types.FunctionType):
            if isinstance(owner, _LAWS):
                self.value(path.rpartition(".")[0], owner)
            return found if isinstance(owner, type) else types.MethodType(found, owner)
        if isinstance(found, staticmethod | classmethod):
            return found.__func__
        if isinstance(found, property) and found.fget is not None:
            self.function(path, types.MethodType(found.fget, owner))
            return _NOTHING
        if not isinstance(found, _STATIC):
            return _NOTHING
        self._watch(holder, name)
        return found

    def _contents_of(self, path: str, value: Any) -> None:
        """Note what a container or an object of plain data holds."""
        self._entries.append((path, type(value)))
        if isinstance(value, np.ndarray):
            data = value.tobytes()
            self._arrays.append((value, data))
            self._entries.append((path, value.shape, value.dtype.str, data))
        elif isinstance(value, dict) and len(value) <= _MOST:
            self._sized.append(value)
            for name, part in list(value.items()):
                self._watch(value, name)
                self.value(f"{path}[{name!r}]", part)
        elif isinstance(value, list | tuple) and len(value) <= _MOST:
            if isinstance(value, list):
                self._lists.append((value, list(value)))
            for number, part in enumerate(value):
                self.value(f"{path}[{number}]", part)
        elif isinstance(value, _LAWS):
            for name, part in vars(value).items():
                self._watch(vars(value), name)
                self.value(f"{path}.{name}", part)
        elif hasattr(value, "__dict__") and not _is_library(type(value).__module__):
            for name, part in list(vars(value).items()):
                if isinstance(part, _STATIC) and not name.startswith("_"):
                    self._watch(vars(value), name)
                    self.value(f"{path}.{name}", part)
            if isinstance(vars(type(value)).get("__call__"), types.FunctionType):
                self.function(path, types.MethodType(type(value).__call__, value))

    def _watch(self, holder: Any, name: Any) -> None:
        self._dicts.setdefault(id(holder), (holder, {}))[1][name] = holder[name]

    def _is_new(self, thing: Any, keep: Any = None) -> bool:
        key = thing if isinstance(thing, tuple) and keep is not None else id(thing)
        if key in self._seen:
            return False
        self._seen.add(key)
        self._kept.append(thing if keep is None else keep)
        return True


def global_hooks() -> dict[str, dict]:
    """Return the hooks of all modules there are, by the name of their kind."""
    home = vars(torch.nn.modules.module)
    return {kind: home[f"_global{kind}"] for kind in HOOKS}


_NOTHING = object()


def _is_library(name: str | None) -> bool:
    return (name or "").partition(".")[0] in _LIBRARIES


def _defaults(function: types.FunctionType) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def _is_subscript(instruction: dis.Instruction) -> bool:
    return instruction.opname == "BINARY_SUBSCR" or instruction.argrepr == "[]"


@functools.lru_cache(maxsize=1024)
def _chains(code: types.CodeType) -> tuple[Chain, ...]:
    """Return the chains that a function reads, and those of the functions written inside it."""
    chains = dict.fromkeys(_own_chains(code))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner = set(constant.co_varnames)
            chains |= dict.fromkeys(c for c in _chains(constant) if c[0] not in inner)
    return tuple(chains)


def _own_chains(code: types.CodeType) -> Iterator[Chain]:
    aliases: dict[str, Chain] = {}
    base, steps, constant = None, (), _NOTHING
    for instruction in dis.get_instructions(code):
        name, value = instruction.opname, instruction.argval
        if base is not None and name in {"LOAD_ATTR", "LOAD_METHOD"}:
            steps = (*steps, ("attribute", value))
            continue
        if base is not None and name == "LOAD_CONST" and isinstance(value, str | int):
            constant = value
            continue
        if base is not None and _is_subscript(instruction) and constant is not _NOTHING:
            steps, constant = (*steps, ("key", constant)), _NOTHING
            continue
        if base is not None:
            yield base, steps
            if name == "STORE_FAST" and constant is _NOTHING and isinstance(value, str):
                aliases[value] = base, steps
        base, steps, constant = None, (), _NOTHING
        if name.startswith(("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME", "LOAD_FAST", "LOAD_CLOSURE")):
            for variable in value if isinstance(value, tuple) else (value,):
                if base is not None:
                    yield base, steps
                base, steps = aliases.get(variable, (variable, ()))
